"""From events to what a person wants to know. Pure: no file, no clock, no terminal.

`Tracker` takes events one at a time (the live view), `summarise` all at once (report and terminal page); both end in
the same numbers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from burnish.observe.compare import Comparison, EvalResult, compare
from burnish.observe.emit import Event
from burnish.observe.schema import missing_fields

Cause = tuple[str, str]
"""(boundary, cause) of an infrastructure failure."""


@dataclass(slots=True)
class Tally:
    """Attempts with both denominators.

    Example: Tally(attempted=8, measured=7, passed=3)
    """

    attempted: int = 0
    measured: int = 0
    passed: int = 0

    def add(self, event: Event) -> None:
        self.attempted += 1
        if event["boundary"] is None:
            self.measured += 1
            self.passed += bool(event["passed"])

    @property
    def pass_rate(self) -> float | None:
        return self.passed / self.measured if self.measured else None


@dataclass(slots=True)
class RunSummary:
    """What the events say about a run; all counts over the whole run, resumes included, evaluations apart.

    `None` means that no event said so.
    """

    start: Event | None = None  # the last run.start
    end: Event | None = None  # the run.end, if nothing came after it
    phase: str | None = None
    wall_s: float = 0.0  # with the run alive: the time between a stop and its resume is left out
    num_resumes: int = 0
    last_t: float | None = None
    steps: dict[int, Event] = field(default_factory=dict)  # step -> its step.end that still holds, in order
    evals: dict[tuple[str, str], EvalResult] = field(default_factory=dict)  # (suite, label) -> the last such result
    eval_progress: Event | None = None  # of the evaluation that runs now
    training: Tally = field(default_factory=Tally)
    outcomes: list[tuple[str, str | None, bool | None]] = field(default_factory=list)  # (family, band, passed or None)
    stop_reasons: Counter[str] = field(default_factory=Counter)
    unmeasured: Counter[Cause] = field(default_factory=Counter)  # training attempts that ended without a measurement
    eval_unmeasured: Counter[Cause] = field(default_factory=Counter)
    retries: Counter[Cause] = field(default_factory=Counter)
    drops: Counter[str] = field(default_factory=Counter)  # reason -> trajectories
    num_starved: int = 0  # times that a whole step's groups held no signal
    samples: dict[str, Event] = field(default_factory=dict)  # "best" and "worst" of the last step that has them
    engine: Event | None = None  # the last engine.stats
    num_sandboxes: int = 0  # created so far
    num_sandboxes_live: int = 0
    engine_restarts: list[Event] = field(default_factory=list)
    last_checkpoint: Event | None = None
    nonfinite: list[tuple[int, str]] = field(default_factory=list)  # (step, field) that was NaN or infinite
    num_skipped: int = 0  # events that lack a field this version relies on

    @property
    def status(self) -> str:
        """ "completed", "time_limit", "interrupted", "failed", or "open": no end is recorded."""
        return "open" if self.end is None else str(self.end["reason"])

    @property
    def num_steps_planned(self) -> int | None:
        return self.start["num_steps"] if self.start else None

    def series(self, name: str) -> list[float | None]:
        """One field of every step, oldest first; None where a step did not say or the value was not finite."""
        return [step.get(name) for step in self.steps.values()]

    def last(self, name: str) -> float | None:
        """The field's value at the last step."""
        values = self.series(name)
        return values[-1] if values else None

    def total(self, name: str) -> float:
        return sum(value for value in self.series(name) if value is not None)

    def halves(self, key: int) -> dict[str, tuple[Tally, Tally]]:
        """Training attempts by family (`key` 0) or band (1), those of the run's first half and of its second half."""
        groups: dict[str, tuple[Tally, Tally]] = {}
        for index, outcome in enumerate(self.outcomes):
            name = outcome[key]
            if isinstance(name, str):
                tally = groups.setdefault(name, (Tally(), Tally()))[2 * index >= len(self.outcomes)]
                passed = outcome[2]
                tally.attempted += 1
                tally.measured += passed is not None
                tally.passed += passed is True
        return groups

    def comparisons(self, final: Mapping[str, Any] | None = None) -> list[Comparison]:
        """Every suite evaluated before training; `final` is the content of summary.json, for its paired difference."""
        befores = [result for (_, label), result in self.evals.items() if label == "before"]
        return [compare(before, self.evals.get((before.suite, "after")), final) for before in befores]


class Tracker:
    """Keeps a `RunSummary` up to date, one event at a time. Not safe for two threads at once."""

    def __init__(self) -> None:
        self.summary = RunSummary()

    def apply(self, event: Event) -> None:
        """Takes one event. An event of an unknown name is ignored, one that lacks a field is counted and ignored."""
        run = self.summary
        name = event["event"]
        if missing_fields(event):
            run.num_skipped += 1
            return
        if run.last_t is not None and name not in ("run.start", "run.resume"):
            run.wall_s += max(0.0, event["t"] - run.last_t)
        run.last_t = event["t"]
        if name != "run.end":
            run.end = None
        handler = getattr(self, "_on_" + name.replace(".", "_"), None)
        if handler is not None:
            handler(run, event)

    def _on_run_start(self, run: RunSummary, event: Event) -> None:
        run.start = event

    def _on_run_resume(self, run: RunSummary, event: Event) -> None:
        run.num_resumes += 1
        held = event["step"]
        run.steps = {number: step for number, step in run.steps.items() if number <= held}
        run.samples = {kind: sample for kind, sample in run.samples.items() if sample["step"] <= held}
        run.nonfinite = [(step, name) for step, name in run.nonfinite if step <= held]

    def _on_run_end(self, run: RunSummary, event: Event) -> None:
        run.end = event

    def _on_phase(self, run: RunSummary, event: Event) -> None:
        run.phase = event["name"]
        run.eval_progress = None

    def _on_eval_progress(self, run: RunSummary, event: Event) -> None:
        run.eval_progress = event

    def _on_eval_end(self, run: RunSummary, event: Event) -> None:
        run.eval_progress = None
        run.evals[event["suite"], event["label"]] = EvalResult.from_event(event)

    def _on_attempt_end(self, run: RunSummary, event: Event) -> None:
        label = event.get("label")
        of_evaluation = label is not None or (run.phase or "").startswith("eval")
        if event["boundary"] is not None:
            causes = run.eval_unmeasured if of_evaluation else run.unmeasured
            causes[event["boundary"], str(event["cause"])] += 1
        if of_evaluation:
            return
        run.training.add(event)
        run.stop_reasons[event["stop_reason"]] += 1
        passed = None if event["boundary"] is not None else bool(event["passed"])
        run.outcomes.append((event["family"], event.get("band"), passed))

    def _on_attempt_retry(self, run: RunSummary, event: Event) -> None:
        run.retries[event["boundary"], str(event["cause"])] += 1

    def _on_drop(self, run: RunSummary, event: Event) -> None:
        run.drops[event["reason"]] += event["num"]

    def _on_starved(self, run: RunSummary, event: Event) -> None:
        run.num_starved += 1

    def _on_step_end(self, run: RunSummary, event: Event) -> None:
        run.steps[event["step"]] = event
        run.nonfinite.extend((event["step"], name) for name in event.get("nonfinite", ()))

    def _on_sample(self, run: RunSummary, event: Event) -> None:
        if any(sample["step"] < event["step"] for sample in run.samples.values()):
            run.samples = {}
        run.samples[event["kind"]] = event

    def _on_engine_stats(self, run: RunSummary, event: Event) -> None:
        run.engine = event

    def _on_sandbox_create(self, run: RunSummary, event: Event) -> None:
        run.num_sandboxes += 1
        run.num_sandboxes_live += 1

    def _on_sandbox_kill(self, run: RunSummary, event: Event) -> None:
        run.num_sandboxes_live -= 1

    def _on_engine_restart(self, run: RunSummary, event: Event) -> None:
        run.engine_restarts.append(event)

    def _on_checkpoint(self, run: RunSummary, event: Event) -> None:
        run.last_checkpoint = event


def summarise(events: Iterable[Event]) -> RunSummary:
    """The summary of a whole log. Steps that a resume rolled back are superseded (`events.effective`)."""
    tracker = Tracker()
    for event in events:
        tracker.apply(event)
    return tracker.summary


def moving_average(values: Sequence[float | None], window: int) -> list[float | None]:
    """The mean of the last `window` values at each place, missing ones left out; None where all are missing.

    Example: moving_average([1.0, 3.0, None, 5.0], 2) == [1.0, 2.0, 3.0, 5.0]
    """
    averages: list[float | None] = []
    for end in range(1, len(values) + 1):
        present = [value for value in values[max(0, end - window) : end] if value is not None]
        averages.append(sum(present) / len(present) if present else None)
    return averages


def time_left_s(run: RunSummary, *, elapsed_s: float) -> float | None:
    """Seconds until the last step, from the median of the last five steps, cut at the time limit; None if unknown."""
    if run.start is None or run.num_steps_planned is None:
        return None
    limits = []
    recent = sorted(value for value in run.series("wall_s")[-5:] if value is not None)
    if recent:
        limits.append(max(0, run.num_steps_planned - max(run.steps)) * recent[len(recent) // 2])
    if run.start["time_limit_s"] is not None:
        limits.append(max(0.0, run.start["time_limit_s"] - elapsed_s))
    return min(limits, default=None)
