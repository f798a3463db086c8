"""Evaluations of a run and what may honestly be said about them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish.observe.emit import Event
from burnish.observe.text import percent, points

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalResult:
    """One evaluation that ended.

    Example: EvalResult(label="before", suite="builtin:heldout", attempted=128, measured=126, passed=19,
        pass_rate=19 / 126, ci95=(0.10, 0.22))
    """

    label: str
    suite: str
    attempted: int
    measured: int
    passed: int
    pass_rate: float | None  # of measured attempts, every task with equal weight; None when nothing was measured
    ci95: Interval | None

    @property
    def attempted_rate(self) -> float | None:
        """passed / attempted: what stands if every unmeasured attempt had failed."""
        return self.passed / self.attempted if self.attempted else None

    @classmethod
    def from_event(cls, event: Event) -> "EvalResult":
        ci95 = event["ci95"]
        return cls(
            label=event["label"],
            suite=event["suite"],
            attempted=event["attempted"],
            measured=event["measured"],
            passed=event["passed"],
            pass_rate=event["pass_rate"],
            ci95=None if ci95 is None else (ci95[0], ci95[1]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One suite before and after training. `diff` and `ci95` are `rate_after - rate_before`.

    Example: Comparison(suite="builtin:heldout", before=b, after=a, rate_before=0.15, rate_after=0.46, ci95=(0.2, 0.4),
        num_excluded=0)
    """

    suite: str
    before: EvalResult
    after: EvalResult | None
    rate_before: float | None  # paired: over the tasks measured on both sides; otherwise that of the evaluation
    rate_after: float | None
    ci95: Interval | None
    num_excluded: int | None  # paired: tasks that are not measured on both sides; None: not paired

    @property
    def paired(self) -> bool:
        """The interval is the recorded one of the paired difference, not one from two separate intervals."""
        return self.num_excluded is not None

    @property
    def diff(self) -> float | None:
        return None if self.rate_before is None or self.rate_after is None else self.rate_after - self.rate_before

    @property
    def verdict(self) -> str:
        """One sentence, and a second one where something weakens the first."""
        return " ".join([_claim(self), *_caveats(self)])

    @property
    def direction(self) -> int:
        """+1 or -1 when the interval lies on one side of 0; 0 when it includes 0 or there is none."""
        if self.ci95 is None:
            return 0
        return (self.ci95[0] > 0) - (self.ci95[1] < 0)


def compare(before: EvalResult, after: EvalResult | None, final: Mapping[str, Any] | None = None) -> Comparison:
    """Compares two evaluations of one suite.

    `final` is the run's summary.json. Its paired difference is used when its counts are those of these evaluations;
    otherwise the interval is made from the two separate ones (`difference_interval`), which is wider than a paired one.
    """
    if after is not None and final is not None and _is_of(final, before, after):
        low, high = final["diff_ci95"]
        return Comparison(
            suite=before.suite,
            before=before,
            after=after,
            rate_before=final["pass_rate_before"],
            rate_after=final["pass_rate_after"],
            ci95=(low, high),
            num_excluded=final.get("num_excluded", 0),
        )
    return Comparison(
        suite=before.suite,
        before=before,
        after=after,
        rate_before=before.pass_rate,
        rate_after=after.pass_rate if after else None,
        ci95=difference_interval(before, after) if after else None,
        num_excluded=None,
    )


def difference_interval(before: EvalResult, after: EvalResult) -> Interval | None:
    """The 95 % interval of `after - before` from the interval of each, taken as independent.

    MOVER: Newcombe 1998 (method 10), for any pair of intervals Zou and Donner 2008.
    """
    p, q = before.pass_rate, after.pass_rate
    if p is None or q is None or before.ci95 is None or after.ci95 is None:
        return None
    (p_low, p_high), (q_low, q_high) = before.ci95, after.ci95
    return (q - p - math.hypot(q - q_low, p_high - p), q - p + math.hypot(q_high - q, p - p_low))


def _is_of(final: Mapping[str, Any], before: EvalResult, after: EvalResult) -> bool:
    """Whether a summary holds a paired difference, and of these two evaluations."""
    counts = (before.attempted + after.attempted, before.measured + after.measured)
    return final.get("diff_ci95") is not None and (final.get("attempted"), final.get("measured")) == counts


def _claim(comparison: Comparison) -> str:
    diff, ci95 = comparison.diff, comparison.ci95
    rate = percent(comparison.rate_before)
    if comparison.after is None:
        return f"Before training the model passed {rate}. There is no evaluation after it, so nothing is claimed."
    if diff is None:
        return "At least one of the two evaluations measured no attempt, so nothing can be claimed."
    moved = f"from {rate} to {percent(comparison.rate_after)} ({points(diff)} points"
    if ci95 is None:
        return f"The pass rate went {moved}). No interval is recorded, so this may be chance."
    span = f"95 % interval {points(ci95[0])} to {points(ci95[1])}"
    if comparison.direction == 0:
        return f"No change is shown: the pass rate went {moved}), but the {span} includes 0."
    verb = "rose" if comparison.direction > 0 else "fell"
    return f"The pass rate {verb} {moved}, {span})."


def _caveats(comparison: Comparison) -> list[str]:
    caveats = []
    if comparison.ci95 is not None and not comparison.paired:
        caveats.append("The interval is made from the two separate ones; no paired interval is recorded.")
    if comparison.num_excluded:
        caveats.append(f"Over the tasks measured on both sides; {comparison.num_excluded} are not.")
    sides = [side for side in (comparison.before, comparison.after) if side is not None]
    unmeasured = sum(side.attempted - side.measured for side in sides)
    if unmeasured:
        attempted = sum(side.attempted for side in sides)
        caveats.append(f"{unmeasured} of {attempted} attempts could not be measured and are in no rate above.")
    return caveats
