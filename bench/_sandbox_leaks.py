"""Row 8: owners of sandboxes are killed with SIGKILL at random moments; what is left of them a few seconds later?

The counting process is the subreaper of all that it starts, so that a process that outlives its owner becomes its child
and none is overlooked or confused with somebody else's. Started itself as a program, this file is such an owner: it
makes, uses and closes sandboxes for ever, and writes one letter on stdout before every step.
"""

import asyncio
import contextlib
import ctypes
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _sandbox_figures import TRUE, Figures
from _sandbox_state import descendants
from burnish.sandbox.process.backend import ProcessBackend

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 5.0
START_S = 60.0
MAX_DELAY_S = 0.15  # longer than the start of a host, and than several sandboxes' lives
STEPS = {"h": "host start", "c": "create", "e": "exec", "f": "fork", "s": "snapshot", "r": "restore", "k": "close"}
_LIVE = b"e"  # the first of these: a sandbox is there
_NUM_WORKERS = 2
_POLL_S = 0.05
# Children that hold on to life, for the owner's death to find.
_COMMAND = "setsid sleep 300 & (trap '' TERM HUP; sleep 300) & exec sleep 0.01"
_PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/run")


def leaks_row(figures: Figures, folder: Path, *, num_kills: int, seed: int) -> None:
    """Kills `num_kills` owners one after the other, waits, and counts."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    temp_folder = folder / "owners"
    temp_folder.mkdir()
    chance, steps = random.Random(seed), Counter[str]()
    before = _survey(temp_folder)
    for _ in range(num_kills):
        steps[STEPS[_kill_one(temp_folder, chance)]] += 1
        _reap()
    left = _left_after_grace(temp_folder, before)
    figures.value("owners_killed", num_kills, "kills")
    for kind, found in left.items():
        figures.value(f"leaked_{kind}", len(found), kind, bar=0)
        for name in sorted(found):
            figures.note(f"left behind ({kind}): {name}")
    figures.note(f"killed during (seed {seed}): {', '.join(f'{step} {n}' for step, n in steps.most_common())}")
    for pid in descendants(os.getpid()):  # counted; the machine shall not keep them
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_one(temp_folder: Path, chance: random.Random) -> str:
    """Starts an owner and kills it a moment after its start, or after its first sandbox was there. Its last step."""
    environment = {**os.environ, "TMPDIR": str(temp_folder), "XDG_STATE_HOME": str(temp_folder)}
    owner = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, bufsize=0, env=environment)
    assert owner.stdout is not None
    seen = b""
    try:
        awaited = chance.choice((b"h", _LIVE))
        deadline = time.monotonic() + START_S
        while awaited not in seen:
            if not select.select([owner.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"an owner made no sandbox within {START_S:g} s")
            letters = owner.stdout.read(1024)
            if not letters:
                raise RuntimeError("an owner ended by itself; its error stands above")
            seen += letters
        time.sleep(chance.uniform(0, MAX_DELAY_S))
        if owner.poll() is not None:
            raise RuntimeError("an owner ended by itself; its error stands above")
    finally:
        owner.kill()
        owner.wait()
        seen += owner.stdout.read()
        owner.stdout.close()
    return chr(seen[-1])


def _left_after_grace(temp_folder: Path, before: dict[str, set[str]]) -> dict[str, set[str]]:
    deadline = time.monotonic() + GRACE_S
    while True:
        _reap()
        now = _survey(temp_folder)
        left = {kind: names - before[kind] for kind, names in now.items()}
        if time.monotonic() > deadline or not any(left.values()):
            return left
        time.sleep(_POLL_S)


def _reap() -> None:
    """The dead that we inherited. No owner runs now whose end somebody else waits for."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _survey(temp_folder: Path) -> dict[str, set[str]]:
    """What is there now, by kind."""
    return {
        "processes": {_describe(pid) for pid in descendants(os.getpid())},
        "mounts": {line.split(" ", 1)[1] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "cgroups": {str(group) for group in _cgroups() if not _is_others(group)},
        "folders": {
            *(str(path) for path in temp_folder.iterdir()),
            *(str(path) for place in _PLACES for path in Path(place).glob("burnish*")),
        },
    }


def _describe(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        command = "(ended)"
    return f"{pid} {command[:100]}"


def _cgroups() -> list[Path]:
    """Every control group of a sandbox host, whichever hierarchy it is in."""
    found = []
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        ours = [name for name in names if name.startswith("burnish-")]
        found += [Path(folder, name) for name in ours]
        names[:] = [name for name in names if name not in ours]
    return found


def _is_others(group: Path) -> bool:
    """Whether its host lives and is none of ours: somebody else on this machine uses burnish."""
    pid = group.name.split("-")[2:3]
    return bool(pid) and Path("/proc", pid[0]).exists() and int(pid[0]) not in descendants(os.getpid())


# -- the owner --------------------------------------------------------------------------------------------------------


def _tell(letter: str) -> None:
    os.write(sys.stdout.fileno(), letter.encode())


async def _own() -> None:
    _tell("h")
    backend = ProcessBackend()
    await backend.capabilities()  # starts the host
    async with asyncio.TaskGroup() as workers:
        for _ in range(_NUM_WORKERS):
            workers.create_task(_work(backend))


async def _work(backend: Any) -> None:
    while True:
        _tell("c")
        box = await backend.create()
        _tell("e")
        await box.files.write("kept", b"x" * 100_000)
        await box.commands.run(_COMMAND)
        children = []
        if hasattr(box, "snapshot"):
            _tell("s")
            snapshot = await box.snapshot()
            _tell("r")
            await box.restore(snapshot)
        if hasattr(box, "fork"):
            _tell("f")
            children = await box.fork(2)
            await asyncio.gather(*(child.commands.run([TRUE]) for child in children))
        _tell("k")
        await asyncio.gather(box.kill(), *(child.kill() for child in children))


if __name__ == "__main__":
    asyncio.run(_own())
