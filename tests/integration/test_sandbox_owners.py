"""Many at once: creations with few made ahead, and two owners on one machine."""

import asyncio
import json
import sys

import pytest

from burnish.errors import UserError
from burnish.sandbox.process.backend import ProcessBackend
from burnish.types import Limits

pytestmark = pytest.mark.namespaces

SMALL = Limits(wall_s=20.0, memory_bytes=64 << 20, num_pids=16, output_bytes=4 << 10, disk_bytes=4 << 20)
OTHER_OWNER = """
import asyncio, json, sys
from burnish.sandbox.process.backend import ProcessBackend

async def main():
    async with ProcessBackend(pool=2) as backend:
        box = await backend.create()
        uid = (await box.commands.run(["id", "-u"])).stdout.decode().strip()
        print(json.dumps([backend.host_pid, box.id, uid]), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_hundred_creations_with_a_pool_of_eight() -> None:
    async with ProcessBackend(pool=8) as backend:
        try:
            first = await backend.create(limits=SMALL)
        except UserError as error:
            pytest.skip(str(error))
        await first.kill()
        await asyncio.sleep(0.1)  # the pool fills
        boxes = await asyncio.gather(*(backend.create(limits=SMALL) for _ in range(100)))
        results = await asyncio.gather(*(box.commands.run(["echo", box.id]) for box in boxes))
        assert [result.stdout.decode().strip() for result in results] == [box.id for box in boxes]
        assert len({box.id for box in boxes}) == 100
        for box in boxes[:3]:
            await box.files.write("mine", box.id)
        assert not await boxes[3].files.exists("mine")
        await asyncio.gather(*(box.kill() for box in boxes))


async def test_cancelled_creations_with_a_pool_leave_the_pool_whole() -> None:
    async with ProcessBackend(pool=4) as backend:
        try:
            await (await backend.create(limits=SMALL)).kill()
        except UserError as error:
            pytest.skip(str(error))
        for turn in range(20):
            creations = [asyncio.create_task(backend.create(limits=SMALL)) for _ in range(6)]
            for _ in range(turn):
                await asyncio.sleep(0)
            for creation in creations:
                creation.cancel()
            for made in await asyncio.gather(*creations, return_exceptions=True):
                if not isinstance(made, BaseException):
                    await made.kill()
        async with await backend.create(limits=SMALL) as box:
            assert (await box.commands.run("echo in step")).stdout == b"in step\n"


async def test_two_owners_do_not_know_each_other() -> None:
    """Their sandboxes have names and users of their own, and the death of one is nothing to the other."""
    async with ProcessBackend(pool=2) as backend:
        try:
            box = await backend.create(limits=SMALL)
        except UserError as error:
            pytest.skip(str(error))
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", OTHER_OWNER, stdout=asyncio.subprocess.PIPE)
        assert other.stdout is not None
        try:
            host, name, uid = json.loads(await other.stdout.readline())
            assert host != backend.host_pid and name != box.id
            own = (await box.commands.run(["id", "-u"])).stdout.decode().strip()
            assert own != uid or own == "1000"  # of a user namespace each
            running = asyncio.create_task(box.commands.run("sleep 0.5; echo unharmed"))
            await asyncio.sleep(0.1)
        finally:
            other.kill()
            await other.wait()
        assert (await running).stdout == b"unharmed\n"
        async with await backend.create(limits=SMALL) as another:  # and what was made ahead is still there
            assert (await another.commands.run("true")).ok
        await box.kill()
