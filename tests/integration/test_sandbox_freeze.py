"""Snapshots of sandboxes whose commands run: what the standing still does to them, and what they can do about it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from burnish.errors import SandboxError, StoreError
from burnish.sandbox.audit import AuditLog
from burnish.sandbox.audited import AuditedBackend
from burnish.sandbox.process.backend import ProcessBackend
from burnish.types import Limits

pytestmark = pytest.mark.namespaces

SMALL = Limits(wall_s=10.0, memory_bytes=64 << 20, num_pids=16, output_bytes=4 << 10, disk_bytes=4 << 20)
# two processes that wake each other for ever, and a file that says whether they could while it was copied
_WAKE_EACH_OTHER = """
import os, signal
other = os.fork() or os.getppid()
with open(f'log-{os.getpid()}', 'w') as log:
    for number in range(10**9):
        os.kill(other, signal.SIGCONT)
        log.seek(0)
        log.write(str(number))
        log.flush()
"""


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(1000):
        if await holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


async def test_time_that_a_command_stands_still_is_not_its_own(backend: ProcessBackend) -> None:
    async with await backend.create(limits=SMALL) as box:
        command = asyncio.create_task(box.commands.run("echo begun > begun; sleep 0.5; echo done", timeout_s=1.0))
        await until(lambda: box.files.exists("begun"))
        await box.generation.freeze(deadline_s=5.0)
        await asyncio.sleep(1.2)
        assert not command.done()
        await box.generation.thaw(deadline_s=5.0)
        result = await command
        assert result.stdout == b"done\n" and not result.timed_out and result.wall_s < 1.2


async def test_processes_that_wake_each_other_are_stopped_or_the_snapshot_fails(backend: ProcessBackend) -> None:
    async with await backend.create(limits=SMALL) as box:
        command = asyncio.create_task(box.commands.run(["python3", "-I", "-S", "-c", _WAKE_EACH_OTHER]))
        await asyncio.sleep(0.3)
        try:
            async with await box.snapshot() as snapshot:
                assert snapshot.was_live
        except SandboxError as error:
            assert "did not stop" in error.cause
        assert not command.done()
        command.cancel()
        assert (await box.commands.run("echo alive")).stdout == b"alive\n"


async def test_a_kill_does_not_wait_for_the_copy(backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    box = await backend.create(limits=SMALL)
    command = asyncio.create_task(box.commands.run("sleep 100"))
    await asyncio.sleep(0.1)
    snapshot = asyncio.create_task(box.snapshot())
    for _ in range(1000):
        if len(backend._stacks.jobs):
            break
        await asyncio.sleep(0)
    killing = asyncio.create_task(box.kill())
    await asyncio.sleep(0)
    assert box.generation.is_dead and not killing.done()  # the commands are told at once
    with pytest.raises(SandboxError):
        await command
    with pytest.raises(SandboxError):
        async with await snapshot:
            pass
        await box.snapshot()
    await killing


async def test_what_cannot_be_recorded_is_undone(
    backend: ProcessBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    audited = AuditedBackend(backend, log)
    box = await audited.create(limits=SMALL)

    def full(event: str, **fields: object) -> None:
        raise StoreError("write the audit log: No space left on device")

    monkeypatch.setattr(log, "record", full)
    for attempt in (audited.create(limits=SMALL), box.fork(2), box.snapshot()):
        with pytest.raises(StoreError):
            await attempt
    assert len(backend._boxes) == 1
    with pytest.raises(StoreError):
        await box.kill()
    assert not backend._boxes and not backend._lives and not backend.layers._num_users
