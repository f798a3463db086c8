"""Everything at once: a candidate that hits all limits together, and an owner who asks for many things together."""

import asyncio
import time

from burnish.errors import SandboxError
from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check

_ALL_LIMITS = """
import os, sys, threading
kinds = "spin spin hog flood fill files bomb".split()
def run(kind):
    held = []
    while True:
        try:
            if kind == "hog":
                held.append(bytearray(1 << 20))
            elif kind == "flood":
                os.write(1, b"x" * 65536)
                os.write(2, b"y" * 65536)
            elif kind == "fill":
                with open("fill", "ab") as file:
                    file.write(bytes(1 << 16))
            elif kind == "files":
                held.append(os.open(f"f{len(held)}", os.O_CREAT | os.O_WRONLY))
            elif kind == "bomb":
                os.fork()
        except OSError:
            pass
for _ in range(2):
    for kind in kinds:
        try:
            if os.fork() == 0:
                run(kind)
        except OSError:
            pass
run("spin")
"""
_ANSWER_S = 10.0  # of the next command, on a machine that others use too
_MOMENTS_S = (0.0, 0.001, 0.005, 0.02, 0.1)


@check("python", "limits.wall", "limits.pids", "limits.output", "limits.disk", "reports.memory")
async def all_limits_at_once(bench: Bench) -> None:
    """Load on every core, memory, processes, output, bytes and inodes: the result names a limit, everybody lives on."""
    async with await bench.backend.create(limits=LIMITS) as neighbour:
        hitting = asyncio.create_task(bench.box.commands.run(["python3", "-I", "-S", "-c", _ALL_LIMITS], timeout_s=1.5))
        await asyncio.sleep(0.5)
        result = await neighbour.commands.run("echo unharmed")
        expect(result.stdout == b"unharmed\n" and result.limit_hit is None, f"the neighbour: {tail(result)}")
        result = await hitting
        expect(result.limit_hit is not None, f"no limit is named: {tail(result)}")
        expect(max(len(result.stdout), len(result.stderr)) <= LIMITS.output_bytes, "the output is not bounded")
        began = time.monotonic()
        after = await bench.sh("echo next; rm -f fill f*")
        expect(after.stdout == b"next\n", f"the next command: {tail(after)}")
        expect(time.monotonic() - began < _ANSWER_S, "the next command was answered late")
        await bench.expect_nobody_left()
        await bench.expect_alive()


@check()
async def a_creation_may_be_cancelled_at_any_moment(bench: Bench) -> None:
    """What was begun goes away, and the next creation is served as if nothing had been."""
    for moment_s in _MOMENTS_S:
        creations = [asyncio.create_task(bench.backend.create(limits=LIMITS)) for _ in range(2)]
        await asyncio.sleep(moment_s)
        for creation in creations:
            creation.cancel()
        for made in await asyncio.gather(*creations, return_exceptions=True):
            if not isinstance(made, BaseException):
                await made.kill()
    async with await bench.backend.create(limits=LIMITS) as box:
        expect((await box.commands.run(["echo", "in step"])).stdout == b"in step\n", "another one's answer")


@check("shell")
async def a_sandbox_may_be_killed_in_the_middle_of_everything(bench: Bench) -> None:
    """Commands and files that are under way raise SandboxError or have their result; the kill returns."""
    box = await bench.backend.create(limits=LIMITS)
    calls = [box.commands.run("sleep 1000"), box.commands.run("yes"), box.files.write("a", bytes(4 << 20))]
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0.05)
    await asyncio.gather(box.kill(), box.kill())
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        expect(not isinstance(outcome, BaseException) or isinstance(outcome, SandboxError), f"raised {outcome!r}")


CHECKS = _registry.all()
