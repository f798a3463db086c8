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
    pass_rate: float | None  # passed / measured; None when nothing was measured
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
    """One suite before and after training. `diff` and `ci95` are `after - before` as rates.

    Example: Comparison(suite="builtin:heldout", before=b, after=a, diff=0.31, ci95=(0.22, 0.4), paired=True)
    """

    suite: str
    before: EvalResult
    after: EvalResult | None
    diff: float | None
    ci95: Interval | None
    paired: bool  # the interval is the recorded one of the paired difference, not one from two separate intervals

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

    `final` is the run's summary.json. Its `diff_ci95` is used when its two pass rates are the ones compared here;
    otherwise the interval is made from the two separate ones (`difference_interval`), which is wider than a paired one.
    """
    rates = (before.pass_rate, after.pass_rate if after else None)
    if rates[0] is None or rates[1] is None or after is None:
        return Comparison(suite=before.suite, before=before, after=after, diff=None, ci95=None, paired=False)
    diff = rates[1] - rates[0]
    recorded = _recorded_interval(final, rates[0], rates[1])
    ci95 = recorded or difference_interval(before, after)
    return Comparison(suite=before.suite, before=before, after=after, diff=diff, ci95=ci95, paired=recorded is not None)


def difference_interval(before: EvalResult, after: EvalResult) -> Interval | None:
    """The 95 % interval of `after - before` from the interval of each, taken as independent.

    MOVER: Newcombe 1998 (method 10), for any pair of intervals Zou and Donner 2008.
    """
    p, q = before.pass_rate, after.pass_rate
    if p is None or q is None or before.ci95 is None or after.ci95 is None:
        return None
    (p_low, p_high), (q_low, q_high) = before.ci95, after.ci95
    return (q - p - math.hypot(q - q_low, p_high - p), q - p + math.hypot(q_high - q, p - p_low))


def _recorded_interval(final: Mapping[str, Any] | None, before: float, after: float) -> Interval | None:
    if not final or final.get("diff_ci95") is None:
        return None
    recorded = (final.get("pass_rate_before"), final.get("pass_rate_after"))
    # summary.json may round; another suite's rates differ by more than half a thousandth or have the same interval
    same = all(a is not None and abs(a - b) < 5e-4 for a, b in zip(recorded, (before, after), strict=True))
    low, high = final["diff_ci95"]
    return (float(low), float(high)) if same else None


def _claim(comparison: Comparison) -> str:
    after, diff, ci95 = comparison.after, comparison.diff, comparison.ci95
    rate = percent(comparison.before.pass_rate)
    if after is None:
        return f"Before training the model passed {rate}. There is no evaluation after it, so nothing is claimed."
    if diff is None:
        return "At least one of the two evaluations measured no attempt, so nothing can be claimed."
    moved = f"from {rate} to {percent(after.pass_rate)} ({points(diff)} points"
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
    sides = [side for side in (comparison.before, comparison.after) if side is not None]
    unmeasured = sum(side.attempted - side.measured for side in sides)
    if unmeasured:
        attempted = sum(side.attempted for side in sides)
        caveats.append(f"{unmeasured} of {attempted} attempts could not be measured and are in no rate above.")
    return caveats
