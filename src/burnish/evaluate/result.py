"""What an evaluation found, as data: counts per task, and the summary numbers that follow from them.

Only counts are stored. Every rate and interval is computed from them by `burnish.evaluate.stats` when it is asked for,
so that a result file from last month and one from today are read by the same formulas.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from burnish.errors import UserError
from burnish.evaluate.stats import Estimate, Interval, Tally, clustered_rate, pass_at_k, wilson
from burnish.files import write_whole
from burnish.types import Band, Sampling, Unmeasured

FORMAT: Final = 1  # of the JSON file; a reader refuses what it does not know


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TaskRecord:
    """The attempts at one task.

    Example: TaskRecord(task_id="add/0", digest="9f...", family="add", band="easy", attempted=4, passed=2,
        unmeasured=(Unmeasured(boundary="sandbox", cause="create: host died"),))
    """

    task_id: str
    digest: str  # of the task's public content; two results are comparable only where it agrees
    family: str
    band: Band
    attempted: int
    passed: int
    unmeasured: tuple[Unmeasured, ...] = ()  # one entry per attempt that something outside it broke

    def __post_init__(self) -> None:
        if self.attempted < 1 or not 0 <= self.passed <= self.measured:
            raise ValueError(
                f"{self.task_id}: attempted={self.attempted}, unmeasured={len(self.unmeasured)} and"
                f" passed={self.passed} cannot all be true"
            )

    @property
    def measured(self) -> int:
        return self.attempted - len(self.unmeasured)

    @property
    def tally(self) -> Tally:
        return Tally(passed=self.passed, measured=self.measured)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class EvalResult:
    """One suite attempted by one policy.

    Rates weigh every task the same, whatever number of its attempts could be measured: a broken sandbox must not move
    weight from hard tasks to easy ones. When every attempt is measured this is passed / attempted.

    Example: EvalResult(suite="builtin:heldout", label="after", sampling=Sampling(max_new_tokens=96),
        samples_per_task=2, tasks=(record,), wall_s=41.0)
    """

    suite: str
    label: str  # who was evaluated: "before", "after", a checkpoint's path, a model's name
    sampling: Sampling
    samples_per_task: int
    tasks: tuple[TaskRecord, ...]
    wall_s: float
    max_turns: int | None = None  # of the agent, where there is one
    format: Literal[1] = FORMAT

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("a result without tasks")

    @property
    def attempted(self) -> int:
        return sum(record.attempted for record in self.tasks)

    @property
    def measured(self) -> int:
        return sum(record.measured for record in self.tasks)

    @property
    def passed(self) -> int:
        return sum(record.passed for record in self.tasks)

    @property
    def num_unmeasured_tasks(self) -> int:
        """Tasks without a single measured attempt: in `attempted`, and in no rate but `pass_rate_of_attempted`."""
        return sum(record.measured == 0 for record in self.tasks)

    def pass_at(self, k: int) -> Estimate | None:
        """Unbiased pass@k: the mean over tasks, its interval clustered by family.

        `num_values` counts the tasks in the mean: those with at least k measured attempts. None when there is none.

        Raises:
            ValueError: k < 1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        records = [record for record in self.tasks if record.measured >= k]
        if not records:
            return None
        rates = [pass_at_k(record.measured, record.passed, k) for record in records]
        return clustered_rate(rates, [record.family for record in records])

    @property
    def estimate(self) -> Estimate | None:
        """The pass rate over measured attempts (which is pass@1) with its interval clustered by family."""
        return self.pass_at(1)

    @property
    def pass_rate(self) -> float | None:
        """Over measured attempts; None when nothing could be measured."""
        return self.estimate.value if self.estimate else None

    @property
    def ci95(self) -> Interval | None:
        """Of `pass_rate`, clustered by family: the interval to report."""
        return self.estimate.ci95 if self.estimate else None

    @property
    def pass_rate_of_attempted(self) -> float:
        """Over attempted ones. The other denominator: a floor of the truth, as if all that broke would have failed."""
        return sum(record.passed / record.attempted for record in self.tasks) / len(self.tasks)

    @property
    def wilson_ci95(self) -> Interval | None:
        """Of passed / measured as if all attempts were independent draws: the textbook interval, too narrow here."""
        return wilson(self.passed, self.measured) if self.measured else None

    def in_band(self, band: Band) -> "EvalResult | None":
        """The part of this result that is about one band; None when no task is in it."""
        records = tuple(record for record in self.tasks if record.band == band)
        return dataclasses.replace(self, tasks=records) if records else None

    def in_family(self, family: str) -> "EvalResult | None":
        """The part of this result that is about one family; None when no task is in it."""
        records = tuple(record for record in self.tasks if record.family == family)
        return dataclasses.replace(self, tasks=records) if records else None

    def summary(self) -> dict[str, Any]:
        """The numbers of a report as JSON values. `pass_at` holds 1, 2, 4, ... up to the samples per task."""
        ks = [1 << i for i in range(self.samples_per_task.bit_length())]
        estimates = {k: estimate for k in ks if (estimate := self.pass_at(k))}
        return {
            "attempted": self.attempted,
            "measured": self.measured,
            "passed": self.passed,
            "pass_rate": self.pass_rate,
            "ci95": _listed(self.ci95),
            "pass_rate_of_attempted": self.pass_rate_of_attempted,
            "wilson_ci95": _listed(self.wilson_ci95),
            "pass_at": {str(k): estimate.value for k, estimate in estimates.items()},
            "num_tasks": len(self.tasks),
            "num_unmeasured_tasks": self.num_unmeasured_tasks,
            "num_families": len({record.family for record in self.tasks}),
        }


def _listed(interval: Interval | None) -> list[float] | None:
    return list(interval) if interval else None


def write_result(result: EvalResult, path: Path) -> None:
    """Writes the result and its summary (for people; it is not read back) as JSON, whole or not at all.

    Raises:
        StoreError: the file could not be written; an older file of that name is then unchanged.
    """
    # ASCII escapes: evidence may hold lone surrogates, which UTF-8 cannot say.
    text = json.dumps({**dataclasses.asdict(result), "summary": result.summary()}, indent=1, allow_nan=False)
    write_whole(path, text + "\n")


def read_result(path: Path) -> EvalResult:
    """Reads what `write_result` wrote.

    Raises:
        UserError: there is no such file, or it is not an evaluation result of this format.
    """
    try:
        return msgspec.convert(json.loads(path.read_bytes()), EvalResult)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:  # not JSON, not these fields, or counts that cannot all be true
        raise UserError(f"is not an evaluation result: {error}", where=str(path)) from error
