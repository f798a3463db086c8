"""Life and death of the process backend."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from burnish.errors import SandboxError, UserError
from burnish.observe.emit import Event, attached
from burnish.sandbox import Sandbox, SyncSandbox
from burnish.sandbox.process import cgroups
from burnish.sandbox.process.backend import ProcessBackend
from burnish.types import Limits

pytestmark = pytest.mark.namespaces

SMALL = Limits(wall_s=10.0, memory_bytes=64 << 20, num_pids=16, output_bytes=4 << 10, disk_bytes=4 << 20)


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def supervisors_of(host_pid: int) -> list[int]:
    """Those of sandboxes. Children that wait to become one still have the host's root."""
    waiting = Path(f"/proc/{host_pid}/root").stat().st_dev
    return [pid for pid in children_of(host_pid) if Path(f"/proc/{pid}/root").stat().st_dev != waiting]


async def until_nothing_is_left(host_pid: int) -> None:
    """Children that wait to become sandboxes are let go a second after the last sandbox."""
    for _ in range(200):
        if not children_of(host_pid) and not box_folders(host_pid):
            return
        await asyncio.sleep(0.05)
    raise AssertionError((children_of(host_pid), box_folders(host_pid)))


def groups_of(host_pid: int) -> list[str]:
    parents = {path for paths in cgroups.candidate_parents().values() for path in paths}
    pattern = f"{cgroups.PREFIX}*-{host_pid}-*"
    return [str(folder) for parent in parents for folder in Path(parent).glob(pattern)]


def box_folders(host_pid: int) -> list[str]:
    """Control groups of single sandboxes."""
    return [str(entry) for folder in groups_of(host_pid) for entry in Path(folder).iterdir() if entry.is_dir()]


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_host_that_is_killed_ends_every_call_with_its_cause(backend: ProcessBackend) -> None:
    box = await backend.create(limits=SMALL)
    idle = await backend.create(limits=SMALL)
    call = asyncio.create_task(box.commands.run("sleep 1000"))
    await asyncio.sleep(0.1)
    assert backend.host_pid is not None
    os.kill(backend.host_pid, signal.SIGKILL)
    with pytest.raises(SandboxError, match="host died: killed by signal 9"):
        await call
    for later in (idle.commands.run("true"), idle.files.read("a"), idle.snapshot(), idle.fork()):
        with pytest.raises(SandboxError, match="host died: killed by signal 9"):
            await later
    await idle.kill()
    await backend.close()
    assert groups_of(backend.host_pid) == []


async def test_the_next_sandbox_gets_a_new_host(backend: ProcessBackend) -> None:
    box = await backend.create(limits=SMALL)
    snapshot = await box.snapshot()
    killed = []
    for _ in range(3):
        assert backend.host_pid is not None
        killed.append(backend.host_pid)
        os.kill(backend.host_pid, signal.SIGKILL)
        with pytest.raises(SandboxError, match="host died"):
            await (await backend.create(limits=SMALL)).commands.run("true")
        if len(killed) < 3:
            async with await backend.create(limits=SMALL) as other:
                assert (await other.commands.run("echo new")).stdout == b"new\n"
            with pytest.raises(SandboxError, match="lost with the sandbox host"):
                await backend.create(limits=SMALL, snapshot=snapshot)
    with pytest.raises(SandboxError, match="host died"):  # three within a minute are no accident
        await backend.create(limits=SMALL)
    await snapshot.release()
    await backend.close()
    assert [groups_of(pid) for pid in killed] == [[], [], []]


async def test_a_supervisor_that_is_killed_is_an_error_and_not_a_result(backend: ProcessBackend) -> None:
    assert backend.host_pid is not None
    box = await backend.create(limits=SMALL)
    [supervisor] = supervisors_of(backend.host_pid)
    call = asyncio.create_task(box.commands.run("sleep 1000"))
    await asyncio.sleep(0.1)
    os.kill(supervisor, signal.SIGKILL)
    with pytest.raises(SandboxError, match=r"ended unexpectedly: killed by signal 9"):
        await call
    async with await backend.create(limits=SMALL) as other:
        assert (await other.commands.run("true")).ok


async def test_a_silent_supervisor_is_given_up(backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.sandbox.process.box.ANSWER_GRACE_S", 0.2)
    assert backend.host_pid is not None
    box = await backend.create(limits=SMALL)
    [supervisor] = supervisors_of(backend.host_pid)
    os.kill(supervisor, signal.SIGSTOP)
    with pytest.raises(SandboxError, match="no answer to run within"):
        await box.commands.run("true", timeout_s=0.1)
    await until_nothing_is_left(backend.host_pid)


async def test_cancelled_creations_leave_nothing(backend: ProcessBackend) -> None:
    assert backend.host_pid is not None
    host = backend.host_pid
    for turn in range(30):
        creation = asyncio.create_task(backend.create(limits=SMALL))
        for _ in range(turn % 10):
            await asyncio.sleep(0.0005)
        creation.cancel()
        await asyncio.wait([creation])
        if not creation.cancelled():
            await creation.result().kill()
    async with asyncio.timeout(10):
        await asyncio.gather(*(box.kill() for box in backend._boxes.values()))
    await until_nothing_is_left(host)
    async with await backend.create(limits=SMALL) as box:
        assert (await box.commands.run("echo in step")).stdout == b"in step\n"


async def test_fifty_creations_at_once(backend: ProcessBackend) -> None:
    assert backend.host_pid is not None
    boxes = await asyncio.gather(*(backend.create(limits=SMALL) for _ in range(50)))
    results = await asyncio.gather(*(box.commands.run(["echo", box.id]) for box in boxes))
    assert [result.stdout.decode().strip() for result in results] == [box.id for box in boxes]
    uids = await asyncio.gather(*(box.commands.run(["id", "-u"]) for box in boxes[:10]))
    assert len({uid.stdout for uid in uids}) in (1, 10)  # one user namespace each, or a uid of the machine each
    await asyncio.gather(*(box.kill() for box in boxes))
    await until_nothing_is_left(backend.host_pid)


async def test_closing_leaves_nothing() -> None:
    before = (mounts(), num_descriptors())
    backend = ProcessBackend()
    box = await backend.create(limits=SMALL)
    call = asyncio.create_task(box.commands.run("sleep 1000"))
    await asyncio.sleep(0.05)
    host = backend.host_pid
    assert host is not None and children_of(host)
    await backend.close()
    await backend.close()
    with pytest.raises(SandboxError, match="closed"):
        await call
    with pytest.raises(SandboxError, match="closed"):
        await backend.create()
    assert not is_there(host)
    assert groups_of(host) == []
    assert (mounts(), num_descriptors()) == before


async def test_a_backend_that_was_never_used_closes_too() -> None:
    backend = ProcessBackend()
    await backend.close()
    with pytest.raises(SandboxError, match="closed"):
        await backend.create()


async def test_what_happens_is_told(backend: ProcessBackend) -> None:
    seen: list[Event] = []
    with attached(seen.append):
        async with await backend.create(limits=SMALL) as box:
            pass
    assert [(event["event"], event["id"]) for event in seen] == [("sandbox.create", box.id), ("sandbox.kill", box.id)]


async def test_limits_hold_in_a_sandbox_that_was_hurt(backend: ProcessBackend) -> None:
    """A full disk, then a timeout, then an ordinary command: each result stands for itself."""
    async with await backend.create(limits=SMALL) as box:
        full = await box.commands.run("head -c 9M /dev/zero > big")
        late = await box.commands.run("rm big; sleep 60", timeout_s=0.2)
        fine = await box.commands.run("echo fine")
    assert [result.limit_hit for result in (full, late, fine)] == ["disk", "wall", None]


async def test_the_facade() -> None:
    async with await Sandbox.create(image="host", network=None, limits=SMALL) as box:
        await box.files.write("a.py", "print(6 * 7)")
        result = await box.commands.run("python3 a.py", timeout_s=5)
    assert (result.exit_code, result.signal, result.stdout, result.stderr) == (0, None, b"42\n", b"")
    assert (result.timed_out, result.limit_hit, result.dropped_bytes) == (False, None, 0)


def test_the_facade_without_await() -> None:
    with SyncSandbox.create(limits=SMALL) as box:
        box.files.write("a", b"x")
        assert box.commands.run("cat a").stdout == b"x"
        with pytest.raises(SandboxError):
            box.kill()
            box.commands.run("true")


async def test_a_live_snapshot_of_a_dying_sandbox_harms_nobody_else(backend: ProcessBackend) -> None:
    neighbour = await backend.create(limits=SMALL)
    box = await backend.create(limits=SMALL)
    assert backend.host_pid is not None
    host = backend.host_pid
    supervisor = max(supervisors_of(host))
    call = asyncio.create_task(box.commands.run("sleep 1000"))
    await asyncio.sleep(0.1)
    os.kill(supervisor, signal.SIGSTOP)  # so that it does not answer
    snapshot = asyncio.create_task(box.snapshot())
    await asyncio.sleep(0.1)
    os.kill(supervisor, signal.SIGKILL)
    with pytest.raises(SandboxError, match="killed by signal 9"):
        await snapshot
    with pytest.raises(SandboxError):
        await call
    assert (await neighbour.commands.run("echo unharmed")).stdout == b"unharmed\n"
    assert backend.host_pid == host
    await neighbour.kill()


async def test_a_cancelled_snapshot_does_not_spoil_the_next(backend: ProcessBackend) -> None:
    async with await backend.create(limits=SMALL) as box:
        await box.files.write("a", "kept")
        for turn in range(8):
            taking = asyncio.create_task(box.snapshot())
            for _ in range(turn):
                await asyncio.sleep(0)
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            if not taking.cancelled():
                await taking.result().release()
        async with await box.snapshot(), await backend.create(limits=SMALL) as other:
            assert await box.files.read("a") == b"kept"
            assert (await other.commands.run("true")).ok


async def test_a_host_that_is_behind_does_not_change_the_user(backend: ProcessBackend) -> None:
    """A life that became a snapshot ends at once; its files must keep their owner until the host hears of them."""
    async with await backend.create(limits=SMALL) as box:
        await box.files.write("mine", "x")
        user = (await box.commands.run("id -u")).stdout
        assert backend.host_pid is not None
        [supervisor] = supervisors_of(backend.host_pid)
        os.kill(backend.host_pid, signal.SIGSTOP)
        for _ in range(5):
            backend._post({"op": "kill", "box": "of no sandbox"})
        taking = asyncio.create_task(box.snapshot())
        for _ in range(1000):
            if supervisor not in children_of(backend.host_pid):
                break
            await asyncio.sleep(0.01)
        os.kill(backend.host_pid, signal.SIGCONT)
        async with await taking:
            assert (await box.commands.run("id -u")).stdout == user
            assert (await box.commands.run("echo more >> mine")).ok


async def test_one_host_follows_one_that_died(backend: ProcessBackend) -> None:
    assert backend.host_pid is not None
    before = set(children_of(os.getpid()))
    os.kill(backend.host_pid, signal.SIGKILL)
    await asyncio.sleep(0.2)
    boxes = await asyncio.gather(*(backend.create(limits=SMALL) for _ in range(6)))
    assert all(await asyncio.gather(*(box.commands.run("true") for box in boxes)))
    assert len(set(children_of(os.getpid())) - before) == 1
    await asyncio.gather(*(box.kill() for box in boxes))


async def test_a_snapshot_of_another_backend_is_refused(backend: ProcessBackend) -> None:
    async with (
        ProcessBackend(pool=0) as foreign,
        await foreign.create(limits=SMALL) as box,
        await box.snapshot() as snapshot,
    ):
        with pytest.raises(UserError, match="another backend"):
            await backend.create(limits=SMALL, snapshot=snapshot)
