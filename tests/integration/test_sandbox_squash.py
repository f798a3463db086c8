"""Deep stacks become short ones in the background, and nobody notices."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from burnish.errors import SandboxError, UserError
from burnish.observe.emit import attached
from burnish.sandbox.objects import ObjectStore
from burnish.sandbox.process import squashing
from burnish.sandbox.process.backend import ProcessBackend
from burnish.sandbox.process.box import ProcessBox
from burnish.sandbox.process.snapshots import ProcessSnapshot
from burnish.types import Limits

pytestmark = pytest.mark.namespaces

SMALL = Limits(wall_s=10.0, memory_bytes=64 << 20, num_pids=16, output_bytes=64 << 10, disk_bytes=4 << 20)
LARGE = Limits(wall_s=10.0, memory_bytes=64 << 20, num_pids=16, disk_bytes=256 << 20)
_NUM_BELOW = 5  # layers of the stack that `large_box` makes, one more than are left alone


@pytest.fixture
async def backend() -> AsyncIterator[ProcessBackend]:
    async with ProcessBackend(pool=0) as backend:
        try:
            await backend.capabilities()
        except UserError as error:
            pytest.skip(str(error))
        yield backend


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squashes stacks of five layers."""
    monkeypatch.setattr(squashing, "LONGEST", _NUM_BELOW - 1)
    monkeypatch.setattr(squashing, "_NUM_KEPT", 2)


def num_layers(backend: ProcessBackend) -> int:
    return Path(f"/proc/{backend.host_pid}/mountinfo").read_text().count(" /layers/")


def jobs_of(backend: ProcessBackend) -> list[int]:
    """The host's children in its own pid namespace."""
    host = Path(f"/proc/{backend.host_pid}")
    children = [Path("/proc", pid) for pid in (host / f"task/{host.name}/children").read_text().split()]
    own = (host / "ns/pid").readlink()
    return [int(child.name) for child in children if (child / "ns/pid").readlink() == own]


async def until_none_runs(backend: ProcessBackend) -> None:
    for _ in range(1000):
        if not len(backend._stacks.squashes):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("a squash does not end")


async def until_no_layers(backend: ProcessBackend) -> None:
    await until_none_runs(backend)
    for _ in range(500):
        if not num_layers(backend):
            break
        await asyncio.sleep(0.01)
    assert num_layers(backend) == 0
    squashes = backend._stacks.squashes
    assert not squashes._merged and not squashes._parts
    assert not backend._stacks._families and not backend._stacks.table._used_bytes


async def chain(box: ProcessBox, num: int) -> list[ProcessSnapshot]:
    """One file in each, which the next does not have."""
    held = []
    for number in range(num):
        await box.commands.run(f"mkdir -p d; rm -f d/*; echo {number} > d/f{number}")
        held.append(await box.snapshot())
    return held


async def test_six_hundred_in_a_row(backend: ProcessBackend) -> None:
    seen: list[dict[str, Any]] = []
    with attached(seen.append):
        async with await backend.create(limits=SMALL) as box:
            held, longest = [], 0
            for number in range(600):
                await box.files.write(f"f{number}", str(number))
                if number % 5 == 4:
                    await box.commands.run(f"rm f{number - 2}")
                snapshot = await box.snapshot()
                longest = max(longest, len(snapshot.stack))
                if number % 100 == 50:
                    held.append((number, snapshot))
                else:
                    await snapshot.release()
            expected = {f"f{number}": str(number) for number in range(600) if number % 5 != 2}
            assert await files_of(box) == expected
            assert longest < 300
            for number, snapshot in held:
                await box.restore(snapshot)
                last = number - number % 5
                assert await files_of(box) == {
                    f"f{one}": str(one) for one in range(number + 1) if one % 5 != 2 or one >= last
                }
                await snapshot.release()
        await until_no_layers(backend)
    squashed = [event for event in seen if event["event"] == "sandbox.squash"]
    assert squashed and not [event for event in squashed if event["cause"]]


async def files_of(box: ProcessBox) -> dict[str, str]:
    result = await box.commands.run("for f in f*; do echo $f $(cat $f); done")
    return dict(line.split(" ") for line in result.stdout.decode().splitlines())


@pytest.mark.usefixtures("soon")
async def test_those_that_exist_keep_what_they_hold(backend: ProcessBackend) -> None:
    async with await backend.create(limits=SMALL) as box:
        held = await chain(box, 8)
        await until_none_runs(backend)
        for number, snapshot in enumerate(held):
            async with await backend.create(limits=SMALL, snapshot=snapshot) as copy:
                assert len(copy.generation.stack) < _NUM_BELOW + 2
                result = await copy.commands.run("ls -A d; cat d/*")
                assert result.stdout.decode() == f"f{number}\n{number}\n"
        await held[-1].release()
        (fork,) = await box.fork()
        async with fork:
            assert (await fork.commands.run("ls d")).stdout == b"f7\n"
        for snapshot in held:
            await snapshot.release()
    await until_no_layers(backend)


@pytest.mark.usefixtures("soon")
async def test_what_was_deleted_long_ago_takes_no_room(backend: ProcessBackend) -> None:
    async with await backend.create(limits=SMALL) as box:
        assert (await box.commands.run("head -c 3000000 /dev/zero > filler")).ok
        await (await box.snapshot()).release()
        assert not (await box.commands.run("rm filler; head -c 3000000 /dev/zero > more")).ok
        await box.commands.run("rm more")
        for snapshot in await chain(box, _NUM_BELOW):
            await snapshot.release()
        await until_none_runs(backend)
        await (await box.snapshot()).release()
        assert (await box.commands.run("head -c 3000000 /dev/zero > more")).ok


@pytest.mark.usefixtures("soon")
async def test_a_squashed_snapshot_goes_to_another_backend(backend: ProcessBackend, tmp_path: Path) -> None:
    store = ObjectStore.at(str(tmp_path / "store"))
    async with await backend.create(limits=SMALL) as box:
        for snapshot in await chain(box, 3):
            await snapshot.release()
        for number in range(2 * _NUM_BELOW):  # until the deletions are in the lowest layer, and nothing lies above them
            await box.files.write("a", str(number))
            await (await box.snapshot()).release()
            await until_none_runs(backend)
        name = await backend.export_snapshot(await box.snapshot(), store)
    async with ProcessBackend(pool=0) as other:
        imported = await other.import_snapshot(name, store)
        async with await other.create(limits=SMALL, snapshot=imported) as copy:
            assert (await copy.commands.run("ls -A d")).stdout == b"f2\n"


async def large_box(backend: ProcessBackend) -> ProcessBox:
    """One whose squash, which has just begun, takes a while."""
    box = await backend.create(limits=LARGE)
    assert (await box.commands.run("head -c 200000000 /dev/zero > filler")).ok
    for snapshot in await chain(box, _NUM_BELOW):
        await snapshot.release()
    assert len(backend._stacks.squashes) == 1
    return box


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("begun", [False, True])
async def test_a_sandbox_killed_meanwhile_leaves_nothing(backend: ProcessBackend, begun: bool) -> None:
    box = await large_box(backend)
    await asyncio.sleep(0.02 if begun else 0)
    await box.kill()
    await until_no_layers(backend)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("begun", [False, True])
async def test_a_host_killed_meanwhile_leaves_nothing(backend: ProcessBackend, begun: bool) -> None:
    box = await large_box(backend)
    await asyncio.sleep(0.02 if begun else 0)
    assert backend.host_pid is not None
    os.kill(backend.host_pid, signal.SIGKILL)
    with pytest.raises(SandboxError):
        while True:
            await box.files.exists("a")
    await until_none_runs(backend)
    async with await backend.create(limits=SMALL) as after:
        assert (await after.commands.run("echo alive")).ok
    await until_no_layers(backend)


@pytest.mark.usefixtures("soon")
async def test_a_backend_closed_meanwhile_leaves_no_task(backend: ProcessBackend) -> None:
    await large_box(backend)
    await backend.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.usefixtures("soon")
async def test_one_that_fails_changes_nothing(backend: ProcessBackend) -> None:
    seen: list[dict[str, Any]] = []
    with attached(seen.append):
        box = await large_box(backend)
        await asyncio.sleep(0.02)
        (job,) = jobs_of(backend)
        os.kill(job, signal.SIGKILL)
        await until_none_runs(backend)
        (event,) = [event for event in seen if event["event"] == "sandbox.squash"]
        assert "killed by signal 9" in event["cause"]
        assert num_layers(backend) == _NUM_BELOW
        for snapshot in await chain(box, 2):  # the next try succeeds
            await snapshot.release()
        await until_none_runs(backend)
        await (await box.snapshot()).release()
        assert len(box.generation.stack) < _NUM_BELOW + 2
        assert (await box.commands.run("ls d; wc -c < filler")).stdout == b"f1\n200000000\n"
        await box.kill()
    await until_no_layers(backend)
