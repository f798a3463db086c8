"""Stacks of layers and jobs on them, with a real host."""

import asyncio
import os
import resource
from collections.abc import AsyncIterator

import pytest

from burnish.errors import SandboxError, UserError
from burnish.sandbox.process import overlay
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


async def test_as_deep_as_is_allowed_can_be_mounted(backend: ProcessBackend) -> None:
    """What is not refused works: snapshots until one is refused, and the sandbox has all it wrote."""
    async with await backend.create(limits=SMALL) as box:
        num_taken = 0
        with pytest.raises(SandboxError, match="layers are more than can be mounted"):
            for _ in range(600):
                await box.files.write("count", str(num_taken))
                await (await box.snapshot()).release()
                num_taken += 1
        assert num_taken > 200
        assert (await box.commands.run("cat count")).stdout == str(num_taken).encode()


async def test_a_host_without_descriptors_refuses_the_job_and_goes_on(backend: ProcessBackend) -> None:
    async with await backend.create(limits=SMALL) as box:
        assert backend.host_pid is not None
        command = asyncio.create_task(box.commands.run("echo > begun; sleep 100"))
        for _ in range(1000):
            if await box.files.exists("begun"):
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # the host makes what the next sandbox needs
        num_open = len(os.listdir(f"/proc/{backend.host_pid}/fd"))  # noqa: PTH208, ASYNC240
        soft, hard = resource.prlimit(backend.host_pid, resource.RLIMIT_NOFILE)
        # room for the descriptor that comes with the request and for no other
        resource.prlimit(backend.host_pid, resource.RLIMIT_NOFILE, (num_open + 1, hard))
        with pytest.raises(SandboxError, match="copying the files: Too many open files"):
            await box.snapshot()
        resource.prlimit(backend.host_pid, resource.RLIMIT_NOFILE, (soft, hard))
        async with await box.snapshot() as snapshot:
            assert snapshot.was_live
        command.cancel()
