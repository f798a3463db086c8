"""Does a 95 % interval hold the truth in 95 % of repetitions? Simulated evaluations with fixed seeds.

A family draws a success probability from a beta distribution (so that its tasks agree more than chance), a task two
attempts from it. The bounds below are about four standard errors of the simulated share away from 95 %.
"""

import numpy as np
import pytest

from burnish.evaluate.stats import Tally, clustered_mean, clustered_rate, paired_difference, wilson

NUM_REPEATS = 400
EQUAL = (4,) * 16
UNEQUAL = (1,) * 8 + (2,) * 4 + (10,) * 4
FEW = (4,) * 8
ATTEMPTS = 2


def _families(sizes: tuple[int, ...]) -> list[str]:
    return [f"f{i}" for i, size in enumerate(sizes) for _ in range(size)]


def _rates(rng: np.random.Generator, sizes: tuple[int, ...], mean: float, concentration: float) -> list[float]:
    p_G = rng.beta(mean * concentration, (1 - mean) * concentration, size=len(sizes))
    passed_N = rng.binomial(ATTEMPTS, np.repeat(p_G, sizes))
    return [float(passed) / ATTEMPTS for passed in passed_N]


@pytest.mark.parametrize("sizes", [EQUAL, UNEQUAL, FEW], ids=["equal", "unequal", "few"])
@pytest.mark.parametrize(("mean", "concentration"), [(0.5, 3.0), (0.15, 3.0), (0.03, 20.0)])
def test_clustered_rate_covers(sizes: tuple[int, ...], mean: float, concentration: float) -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(NUM_REPEATS):
        interval = clustered_rate(_rates(rng, sizes, mean, concentration), _families(sizes)).ci95
        assert interval is not None
        hits += interval[0] <= mean <= interval[1]
    assert 0.91 <= hits / NUM_REPEATS <= 0.99


def test_the_textbook_interval_does_not_cover_and_the_plain_one_fails_near_zero() -> None:
    rng = np.random.default_rng(8)
    textbook = plain = clustered = 0
    for _ in range(NUM_REPEATS):
        rates = _rates(rng, EQUAL, 0.15, 3.0)
        num_attempts = ATTEMPTS * len(rates)
        low, high = wilson(sum(rates) * ATTEMPTS, num_attempts)
        textbook += low <= 0.15 <= high
        rare = _rates(rng, EQUAL, 0.03, 20.0)
        mean, rate = clustered_mean(rare, _families(EQUAL)).ci95, clustered_rate(rare, _families(EQUAL)).ci95
        assert mean is not None
        assert rate is not None
        plain += mean[0] <= 0.03 <= mean[1]
        clustered += rate[0] <= 0.03 <= rate[1]
    assert textbook / NUM_REPEATS < 0.85
    assert plain / NUM_REPEATS < 0.9 < clustered / NUM_REPEATS


@pytest.mark.parametrize("sizes", [EQUAL, UNEQUAL, FEW], ids=["equal", "unequal", "few"])
def test_paired_difference_covers_with_attempts_missing(sizes: tuple[int, ...]) -> None:
    """The gain differs by family; a tenth of the attempts breaks, on hard and easy tasks alike."""
    rng = np.random.default_rng(9)
    gain = 0.2
    hits = excluded = 0
    for _ in range(NUM_REPEATS):
        before_G = rng.beta(2.0, 5.0, size=len(sizes)) * 0.7
        after_G = before_G + rng.uniform(0.0, 2 * gain, size=len(sizes)) * 0.75 + 0.25 * gain
        tallies = []
        for p_G in (before_G, after_G):
            measured_N = rng.binomial(ATTEMPTS, 0.9, size=sum(sizes))
            passed_N = rng.binomial(measured_N, np.repeat(np.clip(p_G, 0, 1), sizes))
            tallies.append([Tally(int(c), int(n)) for c, n in zip(passed_N, measured_N, strict=True)])
        paired = paired_difference(tallies[0], tallies[1], _families(sizes))
        assert paired is not None
        assert paired.diff.ci95 is not None
        excluded += paired.num_excluded
        hits += paired.diff.ci95[0] <= gain <= paired.diff.ci95[1]
    assert excluded > 0
    assert 0.91 <= hits / NUM_REPEATS <= 0.99
