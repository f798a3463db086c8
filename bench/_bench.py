"""What the benchmarks share: alternating runs, medians with their spread, one JSON line for each figure.

    {"bench": "engine", "figure": "speedup_32", "value": 2.1, "unit": "x", "bar": 1.3, "ok": true}

`ok` is null for a figure without a bar. The exit code is 1 when a figure misses its bar.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal


class Bench:
    """Collects the figures of one benchmark.

    Example:
        bench = Bench("engine")
        bench.report("speedup_32", 2.1, "x", bar=1.3)
        sys.exit(bench.exit_code)
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._num_missed = 0

    def report(
        self, figure: str, value: float, unit: str, *, bar: float | None = None, want: Literal["min", "max"] = "min"
    ) -> None:
        """Prints one figure. `bar` is the least value that is fine, or with `want="max"` the largest."""
        ok = None if bar is None else (value >= bar if want == "min" else value <= bar)
        self._num_missed += ok is False
        line = {"bench": self._name, "figure": figure, "value": round(value, 4), "unit": unit, "bar": bar, "ok": ok}
        print(json.dumps(line), flush=True)

    @property
    def exit_code(self) -> int:
        return 1 if self._num_missed else 0


def alternate(runs: Mapping[str, Callable[[], float]], *, num_rounds: int) -> dict[str, list[float]]:
    """Calls every run once a round, in turn, so that a busy moment of the machine hits all of them; their results."""
    results: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(num_rounds):
        for name, run in runs.items():
            results[name].append(run())
    return results


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> float:
    """(max - min) / median: how far a figure can be trusted."""
    return (max(values) - min(values)) / median(values)
