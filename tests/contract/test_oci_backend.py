"""OCI runtimes against the shipped conformance suite, and what is theirs alone: life, death, gVisor's differences."""

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from burnish.errors import SandboxError, UserError
from burnish.sandbox.conformance import CHECKS, Check, run_check
from burnish.sandbox.conformance.suite import LIMITS, Bench, expect
from burnish.sandbox.oci.backend import OciBackend
from burnish.sandbox.oci.box import OciBox

# One event loop and one backend per runtime for the module: starting one takes a container.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.namespaces]

GONE_S = 15.0
NO_NEW_PRIVS = "import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))"
STATUS = """
import json
lines = [line.partition(":") for line in open("/proc/self/status")]
print(json.dumps({name: value.strip() for name, _, value in lines}))
"""
LISTS = "import json, os; print(json.dumps([os.listdir(path) for path in ('/', '/dev', '/proc', '/tmp')]))"


async def _no_capabilities(bench: Bench) -> None:
    """gVisor's status file lacks two of the lines that the check of the suite reads."""
    status = await bench.probe(STATUS)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd"):
        expect(int(status[name], 16) == 0, f"{name} is {status[name]}")
    expect(await bench.probe(NO_NEW_PRIVS) == 1, "no_new_privs is off")
    expect(status["Seccomp"] == "2", "no system call filter")


async def _no_privileges_to_gain(bench: Bench) -> None:
    """gVisor's list of mounts does not show nosuid, so the check of the suite cannot see it."""
    expect(await bench.probe(NO_NEW_PRIVS) == 1, "no_new_privs is off")


SAID_OTHERWISE: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "there_are_no_capabilities": _no_capabilities,
    "a_set_uid_program_gains_nothing": _no_privileges_to_gain,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["runsc", "crun", "runc"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[OciBackend]:
    backend = OciBackend(request.param)
    try:
        await backend.capabilities()
    except UserError as error:
        await backend.close()
        pytest.skip(str(error))
    yield backend
    await backend.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_check(backend: OciBackend, check: Check) -> None:
    if backend.level == "gvisor" and check.name in SAID_OTHERWISE:
        check = dataclasses.replace(check, run=SAID_OTHERWISE[check.name])
    result = await run_check(check, backend, await backend.capabilities())
    if result.status == "skipped":
        pytest.skip(result.reason)
    assert result.status == "passed", result.reason


async def test_the_level_is_what_the_kernel_is(backend: OciBackend) -> None:
    async with await backend.create(limits=LIMITS) as box:
        release = (await box.commands.run(["uname", "-r"])).stdout.decode().strip()
    assert (release == os.uname().release) == (backend.level == "process")


async def test_what_is_visible_does_not_depend_on_ls(backend: OciBackend) -> None:
    async with await backend.create(limits=LIMITS) as box:
        result = await box.commands.run(["python3", "-I", "-c", LISTS])
        root, dev, proc, tmp = json.loads(result.stdout)
    assert {"usr", "etc", "home", "tmp", "proc", "dev"} <= set(root) and "work" not in root and "mnt" not in root
    assert not {"fuse", "net", "kmsg", "mem", "core"} & set(dev) and {"null", "urandom", "shm"} <= set(dev)
    assert all(int(name) < 100 for name in proc if name.isdigit()) and tmp == []


async def test_a_candidate_cannot_end_pid_1_while_commands_start(backend: OciBackend) -> None:
    """Signals are sent without a pause while the agent starts other programs."""
    async with await backend.create(limits=LIMITS) as box:
        source = (
            "import os, time\nend = time.monotonic() + 2\nwhile time.monotonic() < end:\n    for n in (2, 9, 15, 19):\n"
        )
        source += "        try: os.kill(1, n)\n        except PermissionError: pass"
        attack = asyncio.create_task(box.commands.run(["python3", "-I", "-S", "-c", source]))
        while not attack.done():
            assert (await box.commands.run(["true"])).ok
        assert (await attack).exit_code in (0, 1)


async def test_a_runtime_that_dies_is_an_error_and_not_a_result(backend: OciBackend) -> None:
    before = children_of(os.getpid())
    box = await backend.create(limits=LIMITS)
    [launcher] = children_of(os.getpid()) - before
    [runtime] = children_of(launcher)
    call = asyncio.create_task(box.commands.run("sleep 1000"))
    await asyncio.sleep(0.2)
    os.kill(runtime, signal.SIGKILL)
    with pytest.raises(SandboxError, match="the runtime ended unexpectedly: killed by SIGKILL"):
        await call
    await box.kill()
    assert is_gone(launcher)


async def test_a_launcher_that_is_killed_takes_its_container_along(backend: OciBackend) -> None:
    before = children_of(os.getpid())
    box = await backend.create(limits=LIMITS)
    [launcher] = children_of(os.getpid()) - before
    [runtime] = children_of(launcher)
    os.kill(launcher, signal.SIGKILL)
    deadline = time.monotonic() + GONE_S
    while not is_gone(runtime):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    with pytest.raises(SandboxError):
        await box.commands.run(["true"])
    await box.kill()


async def test_cancelled_creations_leave_nothing(backend: OciBackend) -> None:
    before = children_of(os.getpid())
    for delay_s in (0.0, 0.03, 0.1, 0.2, 0.4):
        creation = asyncio.create_task(backend.create(limits=LIMITS))
        await asyncio.sleep(delay_s)
        creation.cancel()
        await asyncio.wait([creation])
        if not creation.cancelled():
            await creation.result().kill()
    deadline = time.monotonic() + GONE_S
    while children_of(os.getpid()) - before:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


COUNTER = """
import time
n, log = 0, open("log", "w", buffering=1)
while True:
    n += 1
    print(n, file=log)
    time.sleep(0.02)
"""


async def count(box: OciBox, *, beyond: int) -> int:
    """The counter's last line, once it is beyond this."""
    deadline = time.monotonic() + GONE_S
    while True:
        assert time.monotonic() < deadline
        lines = (await box.files.read("log")).split() if await box.files.exists("log") else []
        if lines and int(lines[-1]) > beyond:
            return int(lines[-1])
        await asyncio.sleep(0.02)


async def test_a_checkpoint_keeps_memory_processes_and_files(backend: OciBackend, tmp_path: Path) -> None:
    box = await backend.create(limits=LIMITS)
    if backend.level != "gvisor":
        with pytest.raises(UserError, match="no memory checkpoints"):
            await box.checkpoint(tmp_path / "saved")
        await box.kill()
        return
    await box.files.write("kept", b"kept")
    await box.commands.run("ln -s /etc/passwd link; ln kept hard; mkfifo fifo; chmod 640 kept")
    call = asyncio.create_task(box.commands.run(["python3", "-I", "-c", COUNTER]))
    before = await count(box, beyond=3)
    await box.checkpoint(tmp_path / "saved")
    with pytest.raises(SandboxError, match="saved in a checkpoint"):
        await call
    with pytest.raises(SandboxError):
        await box.commands.run(["true"])
    for _ in range(2):  # as often as one likes
        async with await backend.restore(tmp_path / "saved") as again:
            assert await count(again, beyond=before + 3) < before + 1000
            assert await again.files.read("hard") == b"kept" and again.limits == LIMITS
            listed = await again.commands.run("test -p fifo && test -L link && find kept -perm 640 -links 2; id -un")
            assert listed.stdout == b"kept\nagent\n", listed
            full = await again.commands.run("head -c 20000000 /dev/zero > big")
            assert full.limit_hit == "disk"


async def test_what_is_no_checkpoint_is_refused(backend: OciBackend, tmp_path: Path) -> None:
    if backend.level == "gvisor":
        with pytest.raises(UserError, match="no checkpoint"):
            await backend.restore(tmp_path)
        box = await backend.create(limits=LIMITS)
        with pytest.raises(UserError, match="File exists"):
            await box.checkpoint(tmp_path)
        assert (await box.commands.run(["true"])).ok
        await box.kill()


OWNER = """
import asyncio, sys
from burnish.sandbox.oci.backend import OciBackend
from burnish.types import Limits

async def main():
    async with OciBackend(sys.argv[1]) as backend:
        await backend.capabilities()
        print("started", flush=True)
        while True:
            async with await backend.create(limits=Limits(wall_s=60)) as box:
                await asyncio.gather(box.commands.run("setsid sleep 1000 & true"), box.files.write("a", b"x" * 10000))

asyncio.run(main())
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.15, 0.4, 0.7])
async def test_an_owner_that_is_killed_leaves_nothing(backend: OciBackend, delay_s: float) -> None:
    mounts, before = mounts_here(), processes()
    owner = start_owner("runsc" if backend.name == "gvisor" else backend.name)
    await asyncio.sleep(delay_s)
    kill(owner)
    deadline = time.monotonic() + GONE_S
    while left := {pid: name for pid, name in processes().items() if pid not in before}:
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.02)
    assert mounts_here() == mounts


def start_owner(runtime: str) -> "subprocess.Popen[str]":
    """One that makes, uses and kills sandboxes without end."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, runtime], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stdout.readline() == "started\n"
    return owner


def kill(owner: "subprocess.Popen[str]") -> None:
    with owner:  # waits and closes
        owner.kill()


def mounts_here() -> str:
    return Path("/proc/self/mountinfo").read_text()


def processes() -> dict[int, str]:
    """Launchers, runtimes and what they started, by pid: whatever has another pid namespace, or is a launcher."""
    found = {}
    own = Path("/proc/self/ns/pid").readlink()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            if (entry / "ns/pid").readlink() != own or "burnish.sandbox.oci" in command:
                found[int(entry.name)] = command[:100]
        except OSError:  # it ended while we looked
            continue
    return found


def children_of(pid: int) -> set[int]:
    children: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        children |= {int(child) for child in (task / "children").read_text().split()}
    return {child for child in children if not is_gone(child)}


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True
