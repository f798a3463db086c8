"""`burnish chaos`: a recipe under random deaths, resumed until it ends, and the accounting from its files.

    train ──► (strike, strike, ...) ──► died? ──► train --resume ──► ... ──► ended ──► verify

Strikes come at random moments and hit what the run started: its engine, its learner, its sandbox host, or the run
itself. Processes are found below the run's own, by what they were started as. A run that ends although nobody struck
it, for a reason that a resume does not mend, ends the chaos.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from burnish.config import RESOLVED_FILE
from burnish.errors import UserError

Target = Literal["run", "engine", "learner", "sandbox"]
TARGETS: tuple[str, ...] = get_args(Target)
_STARTED_AS = {
    "engine": "burnish.engine.local.worker",
    "learner": "burnish.learn.worker",
    "sandbox": "burnish.sandbox.process.host",
}
_MAX_FUTILE_LIVES = 5  # processes in a row that ended by themselves without a strike in between
_POLL_S = 0.1
_INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True, slots=True)
class ChaosPlan:
    """What is struck, how often, and how.

    Example: ChaosPlan(targets=("engine", "run"), num_strikes=20, per_minute=6.0, stop_share=0.2, seed=0)
    """

    targets: Sequence[str]
    num_strikes: int
    per_minute: float
    stop_share: float = 0.0  # of strikes that stop a process for a while (SIGSTOP) and do not kill it
    stop_s: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises UserError for what cannot be struck."""
        unknown = [target for target in self.targets if target not in TARGETS]
        if unknown or not self.targets:
            raise UserError(f"cannot strike {', '.join(unknown) or 'nothing'}", where="--kill", fix=", ".join(TARGETS))
        if self.per_minute <= 0:
            raise UserError(f"{self.per_minute:g} strikes a minute", where="--rate", fix="a number above 0")


@dataclass(kw_only=True, slots=True)
class Ordeal:
    """What was done to a run, and how it ended.

    Example: Ordeal(strikes=Counter({"kill engine": 3}), num_processes=2, exit_code=0)
    """

    strikes: Counter[str] = field(default_factory=Counter)
    num_missed: int = 0  # strikes whose target was not there at that moment
    num_processes: int = 0
    exit_code: int = 0  # of the last process


def put_through(arguments: Sequence[str], run: Path, plan: ChaosPlan, *, tell: Callable[[str], None]) -> Ordeal:
    """Runs `burnish train ARGUMENTS --run-dir RUN` under the plan until it ends by itself. Blocks.

    Raises UserError when the run cannot be begun or ends for a reason of the user's.
    """
    chance = random.Random(plan.seed)
    ordeal = Ordeal()
    left, futile = plan.num_strikes, 0
    while True:
        resume = ["--resume"] if (run / RESOLVED_FILE).is_file() else []
        ordeal.num_processes += 1
        with _process([*arguments, "--run-dir", str(run), *resume]) as process:
            struck = _strike_until_it_ends(process, plan, left, chance, ordeal, tell)
        left -= struck
        ordeal.exit_code = process.returncode
        if process.returncode in (0, 2, _INTERRUPTED):
            return ordeal
        futile = 0 if struck else futile + 1
        if futile > _MAX_FUTILE_LIVES:
            return ordeal
        tell(f"the run ended with code {process.returncode}; going on from its last commit")


@contextlib.contextmanager
def _process(arguments: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """One life of the run, in a session of its own. What it starts dies with it."""
    process = subprocess.Popen([sys.executable, "-m", "burnish", "train", *arguments], start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _strike_until_it_ends(
    process: "subprocess.Popen[bytes]",
    plan: ChaosPlan,
    left: int,
    chance: random.Random,
    ordeal: Ordeal,
    tell: Callable[[str], None],
) -> int:
    """How many strikes hit."""
    struck, next_at = 0, _later(plan, chance)
    stopped: list[tuple[float, int]] = []
    while process.poll() is None:
        time.sleep(_POLL_S)
        now = time.monotonic()
        while stopped and stopped[0][0] <= now:
            _send(stopped.pop(0)[1], signal.SIGCONT)
        if struck < left and now >= next_at:
            next_at = _later(plan, chance)
            target = chance.choice(list(plan.targets))
            kill = target == "run" or chance.random() >= plan.stop_share
            pid = process.pid if target == "run" else find_below(process.pid, _STARTED_AS[target])
            if pid is None or not _send(pid, signal.SIGKILL if kill else signal.SIGSTOP):
                ordeal.num_missed += 1
                continue
            struck += 1
            ordeal.strikes[f"{'kill' if kill else 'stop'} {target}"] += 1
            tell(f"strike {sum(ordeal.strikes.values())}: {'kill' if kill else 'stop'} {target} ({pid})")
            if not kill:
                stopped.append((now + plan.stop_s, pid))
    for _, pid in stopped:
        _send(pid, signal.SIGCONT)
    return struck


def _later(plan: ChaosPlan, chance: random.Random) -> float:
    return time.monotonic() + chance.expovariate(plan.per_minute / 60.0)


def _send(pid: int, number: signal.Signals) -> bool:
    """Whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def find_below(pid: int, started_as: str) -> int | None:
    """A process among the descendants of `pid` whose command line has these words; None when there is none now."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it ended while we looked
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    for candidate in parents:
        if _descends(candidate, pid, parents):
            with contextlib.suppress(OSError):
                if started_as.encode() in (Path("/proc") / str(candidate) / "cmdline").read_bytes():
                    return candidate
    return None


def _descends(candidate: int, ancestor: int, parents: dict[int, int]) -> bool:
    while (parent := parents.get(candidate, 0)) not in (0, 1):
        if parent == ancestor:
            return True
        candidate = parent
    return False
