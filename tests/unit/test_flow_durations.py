"""Estimates follow what ended, family by family, and begin with what everybody does."""

import math
from random import Random

import pytest

from burnish.flow.durations import DurationEstimates


def heard(*attempts: tuple[str, float]) -> DurationEstimates:
    durations = DurationEstimates()
    for family, seconds in attempts:
        durations.hear(family, seconds)
    return durations


def test_nothing_is_expected_before_anything_ended() -> None:
    assert DurationEstimates().expected_s("f") == 0.0


def test_a_new_family_is_expected_to_be_like_the_others() -> None:
    assert heard(*[("a", 2.0)] * 10).expected_s("new") == pytest.approx(2.0)


def test_many_attempts_of_its_own_outweigh_the_others() -> None:
    durations = heard(*[("quick", 1.0), ("slow", 60.0)] * 100)
    assert durations.expected_s("quick") < 2.0
    assert durations.expected_s("slow") > 30.0
    assert durations.expected_s("slow") > 10 * durations.expected_s("quick")


def test_the_mean_of_a_log_normal_is_found() -> None:
    chance, sigma = Random(0), 1.0
    durations = heard(*[("f", math.exp(chance.gauss(0.5, sigma))) for _ in range(2000)])
    assert durations.expected_s("f") == pytest.approx(math.exp(0.5 + sigma**2 / 2), rel=0.35)


def test_what_was_long_ago_is_forgotten() -> None:
    durations = heard(*[("f", 60.0)] * 200, *[("f", 1.0)] * 600)
    assert durations.expected_s("f") < 2.0


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="an attempt took"):
        DurationEstimates().hear("f", seconds)
