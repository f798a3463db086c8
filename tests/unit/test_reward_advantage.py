"""Group-relative advantages against their definitions."""

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.reward.advantage import Estimator, advantages

REWARDS = st.lists(st.floats(-10, 10), min_size=2, max_size=12)
ESTIMATORS: list[Estimator] = ["grpo", "dr_grpo", "rloo"]


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("grpo", (1.7320508, -0.5773503, -0.5773503, -0.5773503)),  # (1 - 1/4) / sqrt(3)/4
        ("dr_grpo", (0.75, -0.25, -0.25, -0.25)),
        ("rloo", (1.0, -1 / 3, -1 / 3, -1 / 3)),
    ],
)
def test_known_values(estimator: Estimator, expected: tuple[float, ...]) -> None:
    assert advantages([1, 0, 0, 0], estimator=estimator) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(rewards=REWARDS)
def test_they_sum_to_zero_and_keep_the_order_of_rewards(estimator: Estimator, rewards: list[float]) -> None:
    result = advantages(rewards, estimator=estimator)
    if result is None:
        assert len(set(rewards)) == 1
        return
    assert sum(result) == pytest.approx(0, abs=1e-6 * max(map(abs, result)) + 1e-9)
    ranked = sorted(zip(rewards, result, strict=True))
    assert all(a[1] <= b[1] for a, b in itertools.pairwise(ranked))


@given(rewards=REWARDS)
def test_rloo_leaves_one_out(rewards: list[float]) -> None:
    result = advantages(rewards, estimator="rloo")
    if result is not None:
        for i, value in enumerate(result):
            others = rewards[:i] + rewards[i + 1 :]
            assert value == pytest.approx(rewards[i] - statistics.fmean(others), abs=1e-6)


@pytest.mark.parametrize("rewards", [[], [1.0], [1.0, 1.0, 1.0]])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_signal_is_none_and_not_zero(estimator: Estimator, rewards: list[float]) -> None:
    assert advantages(rewards, estimator=estimator) is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        advantages([0.0, bad], estimator="grpo")
