"""From events to figures and to sentences."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.observe.compare import Comparison, EvalResult, compare, difference_interval
from burnish.observe.events import effective
from burnish.observe.summary import Tracker, moving_average, summarise, time_left_s
from tests.unit._synthetic_run import FINAL, SyntheticRun, finished_run


def result(passed: int, ci95: tuple[float, float] | None, *, measured: int = 100, attempted: int = 100) -> EvalResult:
    rate = passed / measured if measured else None
    return EvalResult(
        label="before", suite="s", attempted=attempted, measured=measured, passed=passed, pass_rate=rate, ci95=ci95
    )


def test_the_figures_of_a_whole_run() -> None:
    events = finished_run(num_steps=40).events
    run = summarise(events)
    attempts = [event for event in events if event["event"] == "attempt.end"]
    assert run.status == "completed"
    assert list(run.steps) == list(range(1, 41))
    assert run.training.attempted == len(attempts) == 40 * 48
    assert run.training.measured == sum(event["boundary"] is None for event in attempts)
    assert run.training.passed == sum(bool(event["passed"]) for event in attempts)
    assert sum(run.stop_reasons.values()) == len(attempts)
    assert run.unmeasured.total() == run.training.attempted - run.training.measured > 0
    assert run.drops["too_few_measured"] == 24
    assert run.num_starved == 1
    assert len(run.engine_restarts) == 1
    assert run.samples["best"]["step"] == 40
    assert run.wall_s == pytest.approx(events[-1]["t"] - events[0]["t"])
    assert run.series("reward_mean") == [event["reward_mean"] for event in events if event["event"] == "step.end"]


def test_attempts_of_an_evaluation_are_not_training_attempts() -> None:
    maker = SyntheticRun()
    maker.start()
    maker.add("phase", name="eval_before")
    maker.attempt("e", 0, 0.5)
    maker.add("phase", name="train")
    maker.attempt("g", 0, 0.5)
    maker.attempt("g", 1, 0.5)
    maker.events[-1]["label"] = "midway"
    assert summarise(maker.events).training.attempted == 1


def test_an_unmeasured_attempt_is_in_no_rate() -> None:
    maker = SyntheticRun()
    maker.attempt("g", 0, 1.0)
    maker.attempt("g", 1, 1.0)
    maker.events[-1] |= {"boundary": "sandbox", "cause": "died", "passed": None, "reward": None}
    run = summarise(maker.events)
    assert (run.training.attempted, run.training.measured) == (2, 1)
    assert run.unmeasured == {("sandbox", "died"): 1}
    halves = run.halves(0).values()
    assert sum(early.measured + late.measured for early, late in halves) == 1


@given(st.integers(0, 4), st.integers(1, 3))
def test_a_resumed_run_counts_every_step_once(held: int, redone: int) -> None:
    maker = SyntheticRun(num_steps=5)
    maker.start()
    for step in range(1, 6):
        maker.step(step)
    maker.add("run.start", after_s=5000.0, **{k: v for k, v in maker.events[0].items() if k not in ("event", "t")})
    maker.add("run.resume", step=held, num_dropped=3)
    for step in range(held + 1, held + redone + 1):
        maker.step(step)
    run = summarise(maker.events)
    assert list(run.steps) == list(range(1, held + redone + 1))
    assert run.steps == summarise(effective(maker.events)).steps
    assert run.num_resumes == 1
    assert run.wall_s < 5000  # the time it lay still is not counted
    assert run.samples["best"]["step"] == held + redone


def test_a_run_that_goes_on_after_its_end_is_open() -> None:
    maker = finished_run(num_steps=3)
    maker.add("phase", name="load")
    assert summarise(maker.events).status == "open"


def test_events_of_another_version_are_counted_not_fatal() -> None:
    tracker = Tracker()
    tracker.apply({"event": "from.the.future", "t": 1.0})
    tracker.apply({"event": "step.end", "t": 2.0, "step": 1})
    assert tracker.summary.num_skipped == 1
    assert not tracker.summary.steps


def test_moving_average_leaves_missing_values_out() -> None:
    assert moving_average([1.0, 3.0, None, 5.0], 2) == [1.0, 2.0, 3.0, 5.0]
    assert moving_average([None, 2.0], 3) == [None, 2.0]
    assert moving_average([1.0, 2.0, 3.0, 4.0], 10) == [1.0, 1.5, 2.0, 2.5]


def test_time_left_is_cut_at_the_time_limit() -> None:
    maker = SyntheticRun(num_steps=40)
    assert time_left_s(summarise(maker.events), elapsed_s=0.0) is None
    maker.start()
    assert time_left_s(summarise(maker.events), elapsed_s=60.0) == 600.0
    for step in range(1, 7):
        maker.step(step)
        maker.events[-5]["wall_s"] = 10.0  # step.end is the fifth from the end
    run = summarise([event | ({"wall_s": 10.0} if event["event"] == "step.end" else {}) for event in maker.events])
    assert time_left_s(run, elapsed_s=0.0) == 34 * 10.0
    assert time_left_s(run, elapsed_s=500.0) == 160.0
    assert time_left_s(run, elapsed_s=900.0) == 0.0


def test_the_recorded_paired_difference_is_used_for_the_evaluations_it_is_of() -> None:
    run = summarise(finished_run(num_steps=2).events)
    (recorded,) = run.comparisons(FINAL)
    assert recorded.paired
    assert recorded.ci95 == (0.27, 0.47)
    (other,) = run.comparisons({**FINAL, "measured": 250})
    assert not other.paired
    assert "no paired interval is recorded" in other.verdict


def test_the_unpaired_interval_is_newcombes() -> None:
    # Newcombe 1998, table II, case (a): 56/70 against 48/80, method 10: 0.0524 to 0.3339
    first = result(48, (0.4905, 0.7003), measured=80)
    second = result(56, (0.6921, 0.8772), measured=70)
    low, high = difference_interval(first, second) or (0.0, 0.0)
    assert low == pytest.approx(0.0524, abs=2e-3)
    assert high == pytest.approx(0.3339, abs=2e-3)


def verdict(before: EvalResult, after: EvalResult | None, diff: tuple[float, float] | None = None) -> Comparison:
    sides = [before, after] if after else [before]
    counts = {name: sum(getattr(side, name) for side in sides) for name in ("attempted", "measured")}
    final: dict[str, Any] = {"pass_rate_before": before.pass_rate, "diff_ci95": diff, "num_excluded": 0, **counts}
    return compare(before, after, final | {"pass_rate_after": after.pass_rate if after else None})


def test_the_sentence_claims_no_more_than_the_interval() -> None:
    low, high = result(20, (0.13, 0.29)), result(50, (0.40, 0.60))
    rose = verdict(low, high, (0.2, 0.4))
    assert rose.verdict == "The pass rate rose from 20.0 % to 50.0 % (+30.0 points, 95 % interval +20.0 to +40.0)."
    assert verdict(high, low, (-0.4, -0.2)).verdict.startswith("The pass rate fell from 50.0 % to 20.0 %")
    unclear = verdict(low, high, (-0.01, 0.6))
    assert unclear.direction == 0
    assert "No change is shown" in unclear.verdict
    assert "includes 0" in unclear.verdict
    assert verdict(low, high, (0.0, 0.6)).direction == 0


def test_a_paired_difference_has_the_rates_of_its_pairs() -> None:
    run = summarise(finished_run(num_steps=2).events)
    (paired,) = run.comparisons({**FINAL, "pass_rate_before": 0.2, "pass_rate_after": 0.6, "num_excluded": 3})
    assert paired.diff == pytest.approx(0.4)
    assert paired.verdict.startswith("The pass rate rose from 20.0 % to 60.0 % (+40.0 points")
    assert "Over the tasks measured on both sides; 3 are not." in paired.verdict


def test_the_sentence_without_what_it_needs() -> None:
    some = result(20, (0.13, 0.29))
    assert "nothing is claimed" in verdict(some, None).verdict
    assert "nothing can be claimed" in verdict(some, result(0, None, measured=0)).verdict
    assert "may be chance" in verdict(some, result(90, None)).verdict
    partly = verdict(result(20, (0.1, 0.3), attempted=104), result(50, (0.4, 0.6)), (0.2, 0.4))
    assert "4 of 204 attempts could not be measured" in partly.verdict
