"""Nothing outlives its owner (I7): the owner is killed with SIGKILL at many moments of a sandbox's life."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from burnish.sandbox.process import cgroups

pytestmark = pytest.mark.namespaces

OWNER = """
import asyncio, signal, sys
from burnish.sandbox.process.backend import ProcessBackend
from burnish.types import Limits

async def live(backend):
    while True:
        async with await backend.create(limits=Limits(wall_s=60)) as box:
            await box.files.write("a", b"x" * 10000)
            running = asyncio.create_task(box.commands.run("setsid sleep 1000 & trap '' TERM; sleep 0.01"))
            await box.commands.run(["true"])
            await running

async def main():
    backend = ProcessBackend()
    await backend.capabilities()
    print(backend.host_pid, flush=True)
    await asyncio.gather(*(live(backend) for _ in range(3)))

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
asyncio.run(main())
"""
GONE_S = 10.0


def start_owner() -> tuple["subprocess.Popen[str]", int]:
    """An owner that makes, uses and kills sandboxes without end, and its host's pid."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stderr is not None
    line = owner.stdout.readline()
    if not line:
        reason = owner.communicate()[1]
        pytest.skip(f"no sandboxes on this machine: {reason[-300:]}")
    return owner, int(line)


def processes_of(owner: int) -> list[int]:
    """The host and all supervisors of an owner: they carry its pid in their command line, however they are related."""
    marker = f'"parent": {owner},'.encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def candidates() -> list[int]:
    """Processes that run as a sandbox's user."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if command == b"sleep\x001000\x00":
            found.append(int(entry.name))
    return found


def groups_of(host: int) -> list[str]:
    parents = {path for paths in cgroups.candidate_parents().values() for path in paths}
    return [str(folder) for parent in parents for folder in Path(parent).glob(f"{cgroups.PREFIX}*-{host}-*")]


def wait_until_gone(owner: int, host: int, before: set[int], *, with_groups: bool) -> None:
    deadline = time.monotonic() + GONE_S
    left: object = None
    while time.monotonic() < deadline:
        left = (processes_of(owner), set(candidates()) - before, groups_of(host) if with_groups else [])
        if not any(left):
            return
        time.sleep(0.01)
    pytest.fail(f"left over after {GONE_S:g} s: {left}")


def close(owner: "subprocess.Popen[str]") -> None:
    owner.wait()
    assert owner.stdout is not None and owner.stderr is not None
    owner.stdout.close()
    owner.stderr.close()


@pytest.mark.parametrize("delay_ms", [0, 3, 11, 37, 71, 150])
def test_an_owner_that_is_killed_leaves_nothing(delay_ms: int) -> None:
    mounts, before = Path("/proc/self/mountinfo").read_text(), set(candidates())
    owner, host = start_owner()
    time.sleep(delay_ms / 1000)
    owner.kill()
    close(owner)
    wait_until_gone(owner.pid, host, before, with_groups=True)
    assert Path("/proc/self/mountinfo").read_text() == mounts


def test_when_owner_and_host_are_killed_the_next_start_removes_the_groups() -> None:
    before = set(candidates())
    owner, host = start_owner()
    time.sleep(0.05)
    os.kill(owner.pid, signal.SIGSTOP)  # so that it cannot clean up after its host
    os.kill(host, signal.SIGKILL)
    owner.kill()
    close(owner)
    wait_until_gone(owner.pid, host, before, with_groups=False)
    cgroups.reap_host(host, GONE_S)  # what a next host does once, without the wait for processes that are still dying
    assert groups_of(host) == []


def test_an_owner_that_is_interrupted_leaves_nothing() -> None:
    before = set(candidates())
    owner, host = start_owner()
    time.sleep(0.02)
    owner.send_signal(signal.SIGINT)
    close(owner)
    wait_until_gone(owner.pid, host, before, with_groups=True)
