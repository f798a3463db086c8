"""Running a suite, and comparing two runs of it.

    tasks x samples ──► num workers ──attempt(task, sample)──► Outcome ──► TaskRecord ──► EvalResult ──► Comparison

`evaluate` receives the attempt as a function and so knows no engine, no sandbox and no grader: the conductor hands it
the same rollout that trains, with a frozen policy. Each wait inside an attempt has its deadline there.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from burnish.errors import BoundaryError, UserError
from burnish.evaluate.result import EvalResult, TaskRecord
from burnish.evaluate.stats import Interval, PairedDifference, paired_difference
from burnish.observe.emit import emit
from burnish.types import Attempt, Measured, Outcome, Sampling, Task, Unmeasured

AttemptFn = Callable[[Task, int], Awaitable[Attempt]]
"""One attempt: the task and which sample of it this is (0, 1, ...). May raise BoundaryError; has its own deadlines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far an evaluation is, in attempts.

    Example: Progress(done=40, total=128, measured=39, passed=8)
    """

    done: int
    total: int
    measured: int
    passed: int


async def evaluate(
    tasks: Sequence[Task],
    attempt: AttemptFn,
    *,
    suite: str,
    label: str,
    sampling: Sampling,
    samples_per_task: int,
    max_concurrent: int,
    max_turns: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> EvalResult:
    """Attempts every task `samples_per_task` times, at most `max_concurrent` attempts at once.

    An attempt that raises a `BoundaryError` is recorded as `Unmeasured`, here and nowhere else, and the others go on.
    Anything else it raises (a UserError, a bug, cancellation) ends the evaluation: the other attempts are cancelled
    and awaited, then it is raised as it came. `sampling` and `max_turns` are recorded, not applied.

    Tells `eval.progress` after every attempt and `eval.end` at the end.

    Raises:
        UserError: no tasks, two tasks with one id, or a count below 1.
    """
    _check(tasks, suite=suite, samples_per_task=samples_per_task, max_concurrent=max_concurrent)
    started = time.monotonic()
    jobs = iter([(task, sample) for task in tasks for sample in range(samples_per_task)])
    outcomes: dict[str, list[Outcome]] = {task.id: [] for task in tasks}
    progress = Progress(done=0, total=len(tasks) * samples_per_task, measured=0, passed=0)

    def record(task: Task, outcome: Outcome) -> None:
        nonlocal progress
        outcomes[task.id].append(outcome)
        progress = replace(
            progress,
            done=progress.done + 1,
            measured=progress.measured + isinstance(outcome, Measured),
            passed=progress.passed + passed(outcome),
        )
        emit("eval.progress", label=label, suite=suite, **asdict(progress))
        if on_progress:
            on_progress(progress)

    await _run_workers(jobs, attempt, record, num_workers=min(max_concurrent, progress.total))
    result = EvalResult(
        suite=suite,
        label=label,
        sampling=sampling,
        samples_per_task=samples_per_task,
        tasks=tuple(_task_record(task, outcomes[task.id]) for task in tasks),
        wall_s=time.monotonic() - started,
        max_turns=max_turns,
    )
    summary = result.summary()
    told = ("attempted", "measured", "passed", "pass_rate", "ci95")
    emit("eval.end", label=label, suite=suite, **{name: summary[name] for name in told})
    return result


def _check(tasks: Sequence[Task], *, suite: str, samples_per_task: int, max_concurrent: int) -> None:
    if not tasks:
        raise UserError("the suite has no tasks", where=suite)
    if len({task.id for task in tasks}) != len(tasks):
        raise UserError("two tasks of the suite share an id", where=suite)
    for name, value in (("samples_per_task", samples_per_task), ("max_concurrent", max_concurrent)):
        if value < 1:
            raise UserError(f"must be at least 1, not {value}", where=name)


async def _run_workers(
    jobs: Iterator[tuple[Task, int]],
    attempt: AttemptFn,
    record: Callable[[Task, Outcome], None],
    *,
    num_workers: int,
) -> None:
    """Workers that share one iterator: a slow attempt delays nobody but its own worker."""

    async def work() -> None:
        for task, sample in jobs:
            record(task, await _outcome(attempt, task, sample))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(num_workers):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        # The first one cancelled the rest; who waits for a UserError must not have to dig for it.
        first, *others = errors.exceptions
        for other in others:
            first.add_note(f"meanwhile, in another attempt: {other!r}")
        raise first from None


async def _outcome(attempt: AttemptFn, task: Task, sample: int) -> Outcome:
    try:
        return (await attempt(task, sample)).outcome
    except BoundaryError as error:
        return Unmeasured(boundary=error.boundary, cause=error.cause, evidence=error.evidence)


def passed(outcome: Outcome) -> bool:
    """Whether the hidden tests passed: the score `hidden_passed` where there is one, else the reward, is at least 1."""
    return isinstance(outcome, Measured) and outcome.scores.get("hidden_passed", outcome.reward) >= 1.0


def _task_record(task: Task, outcomes: Sequence[Outcome]) -> TaskRecord:
    return TaskRecord(
        task_id=task.id,
        digest=task.digest,
        family=task.family,
        band=task.band,
        attempted=len(outcomes),
        passed=sum(passed(outcome) for outcome in outcomes),
        unmeasured=tuple(outcome for outcome in outcomes if isinstance(outcome, Unmeasured)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two evaluations of one suite, task by task.

    Example: compare(before, after).diff_ci95 == (0.31, 0.55)
    """

    before: EvalResult
    after: EvalResult
    paired: PairedDifference | None  # None when no task was measured on both sides
    differing_settings: tuple[str, ...]  # how the two were run differently, e.g. "temperature: 1.0 and 0.0"

    @property
    def diff(self) -> float | None:
        """Mean over the pairs of (pass rate after - pass rate before)."""
        return self.paired.diff.value if self.paired else None

    @property
    def diff_ci95(self) -> Interval | None:
        """Cluster-robust 95 % interval of `diff`; None with fewer than two families."""
        return self.paired.diff.ci95 if self.paired else None

    @property
    def num_pairs(self) -> int:
        return self.paired.num_pairs if self.paired else 0

    @property
    def num_excluded(self) -> int:
        """Tasks without a measured attempt on one side or both; they are in no pair."""
        return len(self.before.tasks) - self.num_pairs

    def summary(self) -> dict[str, float | int | list[float] | None]:
        """What RUN/summary.json holds of a comparison: rates over the pairs, counts over both evaluations together."""
        return {
            "pass_rate_before": self.paired.rate_before if self.paired else None,
            "pass_rate_after": self.paired.rate_after if self.paired else None,
            "diff": self.diff,
            "diff_ci95": list(self.diff_ci95) if self.diff_ci95 else None,
            "num_pairs": self.num_pairs,
            "num_excluded": self.num_excluded,
            "attempted": self.before.attempted + self.after.attempted,
            "measured": self.before.measured + self.after.measured,
        }


def compare(before: EvalResult, after: EvalResult) -> Comparison:
    """Pairs two results by task. Different sampling is allowed (that may be the question) and named in the comparison.

    Raises:
        UserError: the suites, their tasks or the content of a task differ.
    """
    if before.suite != after.suite:
        raise UserError(
            f"cannot be compared: {before.label!r} is of {before.suite!r}, {after.label!r} of {after.suite!r}",
            where="suite",
            fix="evaluate both on one suite",
        )
    old = {record.task_id: record for record in before.tasks}
    new = {record.task_id: record for record in after.tasks}
    if old.keys() != new.keys():
        odd = sorted(old.keys() ^ new.keys())
        raise UserError(
            f"cannot be compared: {odd[0]!r} is in only one of the two results (such tasks: {len(odd)})",
            where=before.suite,
            fix="evaluate both on the same tasks (tasks.max_tasks and tasks.bands choose them)",
        )
    changed = sorted(id for id in old if (old[id].digest, old[id].family) != (new[id].digest, new[id].family))
    if changed:
        raise UserError(
            f"cannot be compared: {changed[0]!r} changed in between (such tasks: {len(changed)})",
            where=before.suite,
            fix="evaluate both with one version of the suite",
        )
    return Comparison(
        before=before,
        after=after,
        paired=paired_difference(
            [old[id].tally for id in old], [new[id].tally for id in old], [old[id].family for id in old]
        ),
        differing_settings=_differing_settings(before, after),
    )


def _differing_settings(before: EvalResult, after: EvalResult) -> tuple[str, ...]:
    def settings(result: EvalResult) -> dict[str, object]:
        names = ("max_new_tokens", "temperature", "top_p", "top_k", "stop_strings")
        return {name: getattr(result.sampling, name) for name in names} | {"max_turns": result.max_turns}

    old, new = settings(before), settings(after)
    return tuple(f"{name}: {old[name]} and {new[name]}" for name in old if old[name] != new[name])
