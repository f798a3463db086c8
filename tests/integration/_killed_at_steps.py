"""Kills an owner of sandboxes, or its host, at every packet of every operation, and says what was left of each.

    python _killed_at_steps.py

A program of its own, because it forks once for every step: an owner that is forked has everything imported. Prints one
JSON object: {"steps": {operation: how many}, "left": {"owner killed in fork at 3": [...]}}.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from burnish.errors import SandboxError
from burnish.sandbox.process import cgroups, wire
from burnish.sandbox.process.backend import ProcessBackend
from burnish.sandbox.process.box import ProcessBox
from burnish.types import Limits

GONE_S = 10.0
LIMITS = Limits(wall_s=60.0, disk_bytes=4 << 20, num_pids=16)
REACHED = 3  # exit code of an owner that outlived its host
Operation = Callable[[ProcessBackend, ProcessBox], Awaitable[Any]]


def _sleeper(owner: int) -> str:
    """A program that nobody else on the machine runs."""
    return f"sleep 1000.{owner}"


async def _exec(backend: ProcessBackend, box: ProcessBox) -> None:
    await box.commands.run(f"(setsid {_sleeper(os.getpid())} &) & trap '' TERM; sleep 0.02")


async def _live_snapshot(backend: ProcessBackend, box: ProcessBox) -> None:
    running = asyncio.create_task(box.commands.run(_sleeper(os.getpid())))
    try:
        await asyncio.sleep(0)
        await box.snapshot()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _restore(backend: ProcessBackend, box: ProcessBox) -> None:
    await box.restore(await box.snapshot())


OPERATIONS: dict[str, Operation] = {
    "start": lambda backend, box: backend.create(limits=LIMITS),
    "create": lambda backend, box: backend.create(limits=LIMITS),
    "exec": _exec,
    "write": lambda backend, box: box.files.write("a/b", b"x" * 100_000),
    "snapshot": lambda backend, box: box.snapshot(),
    "live snapshot": _live_snapshot,
    "fork": lambda backend, box: box.fork(2),
    "restore": _restore,
    "kill": lambda backend, box: box.kill(),
    "kill and close": lambda backend, box: asyncio.gather(box.kill(), backend.close(), return_exceptions=True),
}


class Countdown:
    """Counts the packets that the owner sends and receives, and strikes at one of them."""

    def __init__(self, step: int, strike: Callable[[], None]) -> None:
        self._left, self._strike, self.is_on, self.has_struck = step, strike, False, False
        for name in ("send", "receive"):
            setattr(wire, name, self._counted(getattr(wire, name)))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            result = function(*arguments)
            if self.is_on:
                self._left -= 1
                if self._left == 0:
                    self.has_struck = True
                    self._strike()
            return result

        return counted


async def own(name: str, step: int, victim: str) -> bool:
    """Whether the step was reached; an owner that is to be killed at it does not return then."""
    backend = ProcessBackend(pool=0)

    def strike() -> None:
        pid = os.getpid() if victim == "owner" else backend.host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    countdown = Countdown(step, strike)
    try:
        countdown.is_on = name == "start"
        box = await backend.create(limits=LIMITS)
        await box.files.write("kept", b"x")
        countdown.is_on = name != "start"
        await OPERATIONS[name](backend, box)
    except SandboxError:
        assert countdown.has_struck
    finally:
        countdown.is_on = False
        await backend.close()
    return countdown.has_struck


def left_of(owner: int, mounts: str) -> list[str]:
    """What is there after a while of an owner and its host, empty as soon as nothing is."""
    deadline = time.monotonic() + GONE_S
    while True:
        cgroups.reap_dead()  # what the next host would do first
        marker = f'"parent": {owner},'.encode()
        sleeper = _sleeper(owner).replace(" ", "\0").encode()
        found = [f"process {pid}" for pid, line in command_lines().items() if marker in line or sleeper in line]
        found += [str(group) for group in groups_of(owner)]
        found += ["mounts"] if Path("/proc/self/mountinfo").read_text() != mounts else []
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.005)


def command_lines() -> dict[int, bytes]:
    """Of every process, by pid. The host and its children carry the owner's pid in theirs."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found[int(entry.name)] = (entry / "cmdline").read_bytes()
        except OSError:  # it ended while we looked
            continue
    return found


def groups_of(owner: int) -> list[Path]:
    """Control groups of hosts that are dead."""
    parents = {path for paths in cgroups.candidate_parents().values() for path in paths}
    groups = [group for parent in parents for group in Path(parent).glob(f"{cgroups.PREFIX}*")]
    return [group for group in groups if not Path("/proc", group.name.split("-")[2]).exists()]


def main() -> None:
    """Every operation, every step, both victims."""
    mounts = Path("/proc/self/mountinfo").read_text()
    steps: dict[str, int] = {}
    left = {}
    for victim in ("owner", "host"):
        for name in OPERATIONS:
            for step in range(1, 1000):
                pid = os.fork()
                if pid == 0:
                    reached = asyncio.run(own(name, step, victim))
                    sys.stdout.flush()
                    os._exit(REACHED if reached else 0)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                if found := left_of(pid, mounts):
                    left[f"{victim} killed in {name} at {step}"] = found
                if code == 0:
                    break
                if code != (-signal.SIGKILL if victim == "owner" else REACHED):
                    left[f"{victim} killed in {name} at {step}"] = [f"the owner ended with {code}"]
                    break
                steps[f"{victim} in {name}"] = step
    print(json.dumps({"steps": steps, "left": left}))


if __name__ == "__main__":
    main()
