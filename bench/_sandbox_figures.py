"""What the sandbox benchmark's parts share: the clock, rounds in which all take turns, the table of figures.

Every figure is one JSON line on stdout, through `Bench`; the table, for people, goes to stderr at the end.
"""

import json
import math
import os
import random
import select
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from _bench import Bench

TRUE = next(path for path in ("/usr/bin/true", "/bin/true") if Path(path).exists())
_SPAWN_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Something that is timed once in every `every` rounds; `run` gives milliseconds by figure.

    Example: Turn(run=exec_in_box, every=1)
    """

    run: Callable[[], Awaitable[Mapping[str, float]]]
    every: int = 1


async def take_turns(turns: Sequence[Turn], *, num_rounds: int) -> dict[str, list[float]]:
    """The milliseconds of all rounds by figure.

    The order is drawn anew for every round: the kernel takes namespaces apart in the background, and so each turn pays
    for whichever came before it.
    """
    chance = random.Random(0)
    found: dict[str, list[float]] = {}
    for number in range(num_rounds):
        due = [turn for turn in turns if number % turn.every == 0]
        chance.shuffle(due)
        for turn in due:
            for figure, value in (await turn.run()).items():
                found.setdefault(figure, []).append(value)
    return found


def since_ms(start_s: float) -> float:
    """Milliseconds since `start_s` of time.perf_counter."""
    return (time.perf_counter() - start_s) * 1000


def p50(values: Sequence[float]) -> float:
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """The value that 99 in 100 do not exceed; the largest, where there are fewer than 100."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def spawn(argv: Sequence[str]) -> tuple[float, int]:
    """Milliseconds and exit code of a program without input and output, from posix_spawn until it is reaped."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]
        start_s = time.perf_counter()
        pid = os.posix_spawn(argv[0], list(argv), os.environ, file_actions=actions)
        code = _reap(pid)
        return since_ms(start_s), code
    finally:
        os.close(null)


def _reap(pid: int) -> int:
    watch = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        if not poll.poll(_SPAWN_S * 1000):
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(watch)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Figures:
    """Reports figures as they come, and keeps them for the table.

    Example:
        figures = Figures()
        figures.samples("exec", [0.7, 0.8], p99_bar=15.0)
        figures.print_table()
    """

    def __init__(self) -> None:
        self._bench = Bench("sandbox")
        self._num_missing = 0
        self._rows: list[tuple[str, ...]] = []
        self._notes: list[str] = []

    @property
    def exit_code(self) -> int:
        return 1 if self._num_missing else self._bench.exit_code

    def samples(
        self, figure: str, values_ms: Sequence[float], *, p50_bar: float | None = None, p99_bar: float | None = None
    ) -> None:
        """The p50, p99 and count of a figure in milliseconds."""
        middle, tail = p50(values_ms), p99(values_ms)
        self._bench.report(f"{figure}_p50", middle, "ms", bar=p50_bar, want="max")
        self._bench.report(f"{figure}_p99", tail, "ms", bar=p99_bar, want="max")
        self._bench.report(f"{figure}_count", len(values_ms), "samples")
        bars = [
            (f"{name} <= {bar:g}", value <= bar)
            for name, value, bar in (("p50", middle, p50_bar), ("p99", tail, p99_bar))
            if bar is not None
        ]
        text = ", ".join(name for name, _ in bars)
        ok = _verdict(all(held for _, held in bars)) if bars else ""
        self._rows.append((figure, str(len(values_ms)), f"{middle:.3f}", f"{tail:.3f}", "ms", text, ok))

    def value(
        self, figure: str, value: float, unit: str, *, bar: float | None = None, want: Literal["min", "max"] = "max"
    ) -> None:
        """One number."""
        self._bench.report(figure, value, unit, bar=bar, want=want)
        ok = "" if bar is None else _verdict(value <= bar if want == "max" else value >= bar)
        text = "" if bar is None else f"{'<=' if want == 'max' else '>='} {bar:g}"
        self._rows.append((figure, "", f"{value:.3f}", "", unit, text, ok))

    def missing(self, figure: str, reason: str, *, bar: str) -> None:
        """A figure with a bar that could not be measured, which is as bad as one that misses it."""
        self._num_missing += 1
        line = {"bench": "sandbox", "figure": figure, "value": None, "bar": bar, "ok": False, "reason": reason}
        print(json.dumps(line), flush=True)
        self._rows.append((figure, "", "-", "", "", bar, f"MISSED: {reason}"))

    def note(self, text: str) -> None:
        """A sentence under the table."""
        self._notes.append(text)

    def print_table(self) -> None:
        rows = [("figure", "count", "p50 or value", "p99", "unit", "bar", "ok"), *self._rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            aligned = [
                cell.rjust(width) if column in (1, 2, 3) else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            print("  ".join(aligned).rstrip(), file=sys.stderr)
        for note in self._notes:
            print(f"note: {note}", file=sys.stderr)


def _verdict(held: bool) -> str:
    return "yes" if held else "MISSED"
