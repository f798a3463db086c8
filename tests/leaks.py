"""What a test may not leave behind (invariant I7), as snapshots that can be compared.

Cheap on purpose: every test is checked. The test session has a system temp folder of its own, so whatever appears there
was left by a test and not by a neighbour on the machine.
"""

import asyncio
import functools
import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil

GRACE_S = 3.0  # a thread or process that was told to end may need a moment; only a leaking test waits this long
_POLL_S = 0.02
_LOOP_TICKS = 5  # a cancelled task needs a few to unwind


def leftovers() -> set[str]:
    """Everything now there that a test could leave: threads, processes, mounts, cgroups, temporary files."""
    return {*_threads(), *_children(), *_mounts(), *_cgroups(), *_temp_entries()}


def remaining(before: set[str]) -> list[str]:
    """What was not there before and does not go away within the grace period."""
    deadline = time.monotonic() + GRACE_S
    while (extra := leftovers() - before) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return sorted(extra)


def watched(test: Callable[..., Awaitable[Any]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """The test, failing when it leaves an asyncio task running."""

    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        before = asyncio.all_tasks()
        await test(*args, **kwargs)
        for _ in range(_LOOP_TICKS):
            await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() - before if not task.done()]
        assert not left, f"the test left asyncio tasks running: {left}"

    return run


def _threads() -> set[str]:
    main = threading.main_thread()
    alive = [t for t in threading.enumerate() if t is not main and not t.daemon]
    return {f"thread {t.name} ({t.ident})" for t in alive}


def _children() -> set[str]:
    try:  # the usual case costs one system call
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() == psutil.STATUS_ZOMBIE or "resource_tracker" in " ".join(process.cmdline()):
                continue
            if not _waits_to_become_a_sandbox(process):
                found.add(f"process {process.pid}: {' '.join(process.cmdline())[:200]}")
        except psutil.NoSuchProcess:
            continue  # it ended while we looked
    return found


def _waits_to_become_a_sandbox(process: psutil.Process) -> bool:
    """A host keeps a few of those while it is used; they have nobody's files, and still the host's root."""
    if "burnish.sandbox.process.host" not in " ".join(process.cmdline()):
        return False
    try:
        root, parents_root = (Path(f"/proc/{pid}/root").stat() for pid in (process.pid, process.ppid()))
    except OSError:
        return False
    return process.ppid() != os.getpid() and root.st_dev == parents_root.st_dev


def _mounts() -> set[str]:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {f"mount {line}" for line in mounts if "burnish" in line or tempfile.gettempdir() in line}


def _cgroups() -> set[str]:
    """Cgroups that still hold processes although the sandbox host that owns them is dead.

    An empty one of a killed host is not counted: the next host to start removes it.
    """
    found = set()
    for folder in (folder for base in _cgroup_bases() for folder in base.glob("burnish-*")):
        owner = folder.name.split("-")[2]
        if not Path(f"/proc/{owner}").exists():
            found |= {f"processes in {held.parent}" for held in folder.rglob("cgroup.procs") if _holds_one(held)}
    return found


def _holds_one(procs: Path) -> bool:
    try:
        return bool(procs.read_text().strip())
    except OSError:
        return False  # removed while we looked


@functools.cache
def _cgroup_bases() -> tuple[Path, ...]:
    """Where a host of this test run may put its cgroups: beside our own, in each hierarchy, and at each root."""
    root = Path("/sys/fs/cgroup")
    bases = {root, *(path for path in root.glob("*") if path.is_dir())}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        bases.add(root / controllers.removeprefix("name=") / own.lstrip("/"))
    return tuple(base for base in bases if base.is_dir())


def _temp_entries() -> set[str]:
    return {f"left in the temp folder: {entry.name}" for entry in Path(tempfile.gettempdir()).iterdir()}
