"""Stacks of layers and jobs on them, with a real host."""

import asyncio
import itertools
import os
import resource
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from burnish.errors import SandboxError, UserError
from burnish.sandbox.objects import ObjectStore
from burnish.sandbox.process import manifest, overlay, squashing
from burnish.sandbox.process.backend import ProcessBackend
from burnish.types import Limits

pytestmark = pytest.mark.namespaces

SMALL = Limits(wall_s=10.0, memory_bytes=64 << 20, num_pids=16, output_bytes=4 << 10, disk_bytes=4 << 20)


@pytest.fixture
async def backend() -> AsyncIterator[ProcessBackend]:
    async with ProcessBackend(pool=0) as backend:
        try:
            await backend.capabilities()
        except UserError as error:
            pytest.skip(str(error))
        yield backend


async def test_a_stack_too_deep_is_refused_and_the_sandbox_lives_on(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "_MAX_LAYERS", 3)
    async with await backend.create(limits=SMALL) as box:
        for number in range(2):
            await box.files.write("a", str(number))
            await (await box.snapshot()).release()
        await box.files.write("a", "last")
        for attempt in (box.snapshot, box.fork):
            with pytest.raises(SandboxError, match="3 layers are more than can be mounted"):
                await attempt()
        assert await box.files.read("a") == b"last"
        assert (await box.commands.run("echo alive")).stdout == b"alive\n"


async def test_as_deep_as_is_allowed_can_be_mounted(backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not refused works: snapshots until one is refused, and the sandbox has all it wrote."""
    monkeypatch.setattr(squashing, "LONGEST", 10_000)
    async with await backend.create(limits=SMALL) as box:
        num_taken = 0
        with pytest.raises(SandboxError, match="layers are more than can be mounted"):
            for _ in range(600):
                await box.files.write("count", str(num_taken))
                await (await box.snapshot()).release()
                num_taken += 1
        assert num_taken > 200
        assert (await box.commands.run("cat count")).stdout == str(num_taken).encode()


def first_free(pid: int) -> int:
    """The number that the next descriptor of a process will get."""
    used = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in itertools.count() if number not in used)


async def test_a_host_without_descriptors_refuses_the_job_and_goes_on(backend: ProcessBackend) -> None:
    async with await backend.create(limits=SMALL) as box:
        assert backend.host_pid is not None
        command = asyncio.create_task(box.commands.run("echo > begun; sleep 100"))
        for _ in range(1000):
            if await box.files.exists("begun"):
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.5)  # the host has made what the next sandbox needs, and nothing was asked for lately
        free = first_free(backend.host_pid)
        soft, hard = resource.prlimit(backend.host_pid, resource.RLIMIT_NOFILE)
        # room for the descriptor that comes with the request and for no other
        resource.prlimit(backend.host_pid, resource.RLIMIT_NOFILE, (free + 1, hard))
        with pytest.raises(SandboxError, match="copying the files: Too many open files"):
            await box.snapshot()
        resource.prlimit(backend.host_pid, resource.RLIMIT_NOFILE, (soft, hard))
        async with await box.snapshot() as snapshot:
            assert snapshot.was_live
        command.cancel()


class SlowStore:
    """Forgets nothing, and stops at the first archive until it is told to go on."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reached, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def has(self, key: str) -> bool:
        return key in self.objects

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        data = self.objects[key]
        if key.endswith(".tar"):
            yield data[:512]
            data = data[512:]
            await self._stop()
        yield data

    async def write(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        parts = []
        async for piece in pieces:
            parts.append(piece)
            if key.endswith(".tar"):
                await self._stop()
        self.objects[key] = b"".join(parts)

    async def _stop(self) -> None:
        self.reached.set()
        await self.may_go_on.wait()


def jobs_of(host_pid: int) -> list[int]:
    """The host's children in its own pid namespace."""
    found, own = [], Path(f"/proc/{host_pid}/ns/pid").readlink()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == host_pid and fields[0] != "Z" and (stat.parent / "ns/pid").readlink() == own:
                found.append(int(stat.parent.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def layers_of(host_pid: int) -> int:
    return Path(f"/proc/{host_pid}/mountinfo").read_text().count(" /layers/")


async def until_as_before(host_pid: int, num_layers: int) -> None:
    for _ in range(500):
        if not jobs_of(host_pid) and layers_of(host_pid) == num_layers:
            return
        await asyncio.sleep(0.01)
    raise AssertionError((jobs_of(host_pid), layers_of(host_pid), num_layers))


@pytest.mark.parametrize("what", ["export", "import"])
@pytest.mark.parametrize("end", ["cancel", "deadline", "host"])
async def test_a_transfer_that_ends_early_leaves_nothing(backend: ProcessBackend, what: str, end: str) -> None:
    async with await backend.create(limits=SMALL) as box:
        await box.commands.run("head -c 3000000 /dev/urandom > noise")  # more than a pipe holds
        snapshot, store = await box.snapshot(), SlowStore()
        if what == "import":
            store.may_go_on.set()
            name = await backend.export_snapshot(snapshot, store)
            store.reached.clear()
            store.may_go_on.clear()
        await box.commands.run("true")
        host_pid = backend.host_pid
        assert host_pid is not None
        num_layers, descriptors = layers_of(host_pid), set(os.listdir("/proc/self/fd"))  # noqa: PTH208, ASYNC240
        timeout_s = 0.5 if end == "deadline" else 60.0
        transfer: asyncio.Task[object] = asyncio.create_task(
            backend.export_snapshot(snapshot, store, timeout_s=timeout_s)
            if what == "export"
            else backend.import_snapshot(name, store, timeout_s=timeout_s)
        )
        await store.reached.wait()
        if end == "cancel":
            transfer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await transfer
        elif end == "deadline":
            with pytest.raises(SandboxError, match=r"not done within 0\.5 s"):
                await transfer
        else:
            os.kill(host_pid, signal.SIGKILL)
            store.may_go_on.set()
            with pytest.raises(SandboxError):
                await transfer
            await backend.close()
            return
        await until_as_before(host_pid, num_layers)
        assert set(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208, ASYNC240
        store.may_go_on.set()
        name = await backend.export_snapshot(snapshot, store)
        async with await backend.import_snapshot(name, store) as imported:
            assert layers_of(host_pid) == num_layers + 1
            async with await backend.create(limits=SMALL, snapshot=imported) as copy:
                assert (await copy.commands.run("wc -c < noise; id -un")).stdout == b"3000000\nagent\n"
        await until_as_before(host_pid, num_layers)


async def test_a_snapshot_goes_to_another_backend_through_a_folder(backend: ProcessBackend, tmp_path: Path) -> None:
    store = ObjectStore.at(str(tmp_path / "store"))
    async with await backend.create(limits=SMALL) as box:
        await box.files.write("a", "from far")
        name = await backend.export_snapshot(await box.snapshot(), store)
    async with ProcessBackend(pool=0) as other:
        await (await other.create(limits=SMALL)).kill()  # so that it hands out other uids
        imported = await other.import_snapshot(name, store)
        async with await other.create(limits=SMALL, snapshot=imported) as box:
            result = await box.commands.run("cat a; echo more >> a && id -un && ls -ld . / | cut -d' ' -f1")
            assert result.stdout.startswith(b"from faragent\n"), result


async def test_an_image_that_is_not_here_is_named(backend: ProcessBackend) -> None:
    store = SlowStore()
    digest = "sha256:" + "5" * 64
    name, data = manifest.encode(manifest.Manifest(digest, (manifest.Layer(digest, 1024),)))
    store.objects[manifest.key_of(name)] = data
    with pytest.raises(UserError, match="555"):
        await backend.import_snapshot(name, store)
