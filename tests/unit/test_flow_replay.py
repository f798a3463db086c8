"""The replay index and its samplers: all that is drawn is within the lag bound (I3), and drawn as the weights say."""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from burnish.flow import replay
from burnish.flow.replay import Eligible, ReplayIndex
from burnish.flow.replay_samplers import (
    DIFFICULTY_FLOOR,
    GroupAware,
    Priority,
    Recency,
    ReplayMix,
    Sampler,
    Uniform,
)
from tests.unit._replay import entry, everything, index_of, samplers, with_advantages

NUM_DRAWS = 20_000


def assert_distributed(counts: Sequence[int], weights: Sequence[float]) -> None:
    """Pearson's chi-square at p = 0.001, its quantile by Wilson and Hilferty (1931)."""
    expected = np.array(weights) * sum(counts) / sum(weights)
    assert expected.min() > 5, "too few draws for this test"
    statistic = float((((np.array(counts) - expected) ** 2) / expected).sum())
    df = len(counts) - 1
    assert statistic < df * (1 - 2 / (9 * df) + 3.0902 * math.sqrt(2 / (9 * df))) ** 3


def counts_of_single_draws(sampler: Sampler, eligible: Eligible, num_rows: int) -> list[int]:
    rng = np.random.default_rng(5)
    drawn = Counter(int(sampler.sample(eligible, 1, rng)[0]) for _ in range(NUM_DRAWS))
    return [drawn[row] for row in range(num_rows)]


# What is drawn how often


def test_uniform_draws_all_alike() -> None:
    index = with_advantages(*[1.0] * 12)
    assert_distributed(counts_of_single_draws(Uniform(), everything(index), 12), [1.0] * 12)


def test_recency_halves_with_every_half_life() -> None:
    index = index_of([entry(version, newest_version=version) for version in range(8)])
    counts = counts_of_single_draws(Recency(half_life=2.0), everything(index, version=9), 8)
    assert_distributed(counts, [2.0 ** (version / 2) for version in range(8)])


def test_priority_is_advantage_to_alpha_times_difficulty() -> None:
    pairs = [(-2.0, 0.5), (0.5, 0.5), (1.0, 0.25), (1.0, 0.9), (3.0, 1.0)]
    index = index_of([entry(n, advantage=a, difficulty=d) for n, (a, d) in enumerate(pairs)])
    weights = [abs(a) ** 0.6 * max(4 * d * (1 - d), DIFFICULTY_FLOOR) for a, d in pairs]
    assert_distributed(counts_of_single_draws(Priority(alpha=0.6), everything(index), 5), weights)


def test_difficulty_weighs_most_at_one_half() -> None:
    rates = [0.0, 0.2, 0.5, 0.8, 1.0]
    index = index_of([entry(n, difficulty=rate) for n, rate in enumerate(rates)])
    weights = Priority(alpha=1.0).weights(everything(index), np.arange(5))
    assert weights.tolist() == pytest.approx([DIFFICULTY_FLOOR, 0.64, 1.0, 0.64, DIFFICULTY_FLOOR])


def test_groups_are_drawn_by_the_sum_of_their_attempts() -> None:
    sizes = [1, 2, 3, 4]
    index = index_of([entry(group, member) for group, size in enumerate(sizes) for member in range(size)])
    sampler, rng = GroupAware(Uniform()), np.random.default_rng(2)
    drawn = [int(index.values("group", sampler.sample(everything(index), 1, rng))[0]) for _ in range(NUM_DRAWS)]
    assert_distributed([Counter(drawn)[group] for group in range(4)], sizes)


@pytest.mark.parametrize("num_others", [0, 12], ids=["by keys", "by throws"])
def test_without_replacement_is_one_after_the_other_by_weight(num_others: int) -> None:
    """Two draws in order: p(i) then p(j) / (1 - p(i)); the others are there for the way in which it is done."""
    index = with_advantages(4.0, 2.0, 1.0, *[0.5] * num_others)
    names = {0: 0, 1: 1, 2: 2, **{3 + n: 3 for n in range(num_others)}}
    rng, sampler = np.random.default_rng(3), Priority(alpha=1.0)
    drawn = Counter(
        tuple(names[int(row)] for row in sampler.sample(everything(index), 2, rng)) for _ in range(NUM_DRAWS)
    )
    mass = [4.0, 2.0, 1.0] + [0.5] * num_others
    expected: Counter[tuple[int, ...]] = Counter()
    for i, j in permutations(range(len(mass)), 2):
        expected[names[i], names[j]] += mass[i] / sum(mass) * mass[j] / (sum(mass) - mass[i])  # type: ignore[assignment]
    pairs = sorted(expected)
    assert set(drawn) == set(pairs)
    assert_distributed([drawn[pair] for pair in pairs], [expected[pair] for pair in pairs])


def test_importance_weights_are_those_of_prioritised_replay() -> None:
    index = with_advantages(1.0, 2.0, 5.0)
    rows, weights = Priority(alpha=1.0).sample_weighted(everything(index), 3, np.random.default_rng(0), beta=0.4)
    p = np.array([1.0, 2.0, 5.0]) / 8.0
    assert weights.tolist() == pytest.approx(((3 * p[rows]) ** -0.4).tolist())
    _, plain = Priority(alpha=1.0).sample_weighted(everything(index), 3, np.random.default_rng(0), beta=0.0)
    assert plain.tolist() == [1.0] * 3


def test_importance_weights_of_a_group_are_those_of_all_its_rows() -> None:
    index = index_of([entry(0, 0), entry(1, 0), entry(1, 1), entry(1, 2)])
    rows, weights = GroupAware(Uniform()).sample_weighted(everything(index), 2, np.random.default_rng(0), beta=1.0)
    assert dict(zip(rows.tolist(), weights.tolist(), strict=True)) == pytest.approx(
        {0: 2.0, 1: 2 / 3, 2: 2 / 3, 3: 2 / 3}
    )


def test_importance_weights_undo_the_bias() -> None:
    """The weighted mean of anything over draws is its plain mean over the index."""
    advantages = np.linspace(0.5, 3.0, 40)
    index = with_advantages(*advantages)
    rng, sampler, sums = np.random.default_rng(1), Priority(alpha=0.8), []
    for _ in range(4000):
        rows, weights = sampler.sample_weighted(everything(index), 1, rng, beta=1.0)
        sums.append(float(weights[0] * advantages[rows[0]]))
    assert np.mean(sums) == pytest.approx(advantages.mean(), rel=0.02)


# The edges


@pytest.mark.parametrize("name", samplers())
def test_nothing_comes_from_an_empty_index(name: str) -> None:
    sampler, index = samplers()[name], ReplayIndex()
    assert sampler.sample(everything(index), 5, np.random.default_rng(0)).tolist() == []
    assert (sampler.num_drawable(everything(index)), index.num_attempts, index.nbytes_per_attempt) == (0, 0, 0.0)
    assert index.expire(5) == {"stale": 0, "partly_stale": 0} and index.remove_group(3) == 0


@pytest.mark.parametrize("name", samplers())
def test_one_entry_is_drawn_as_often_as_asked(name: str) -> None:
    sampler, index = samplers()[name], index_of([entry()])
    rng = np.random.default_rng(0)
    assert [sampler.sample(everything(index), n, rng).tolist() for n in (0, 1, 3)] == [[], [0], [0, 0, 0]]
    with pytest.raises(ValueError, match="-1"):
        sampler.sample(everything(index), -1, rng)


@pytest.mark.parametrize("name", samplers())
def test_with_replacement_when_there_are_too_few(name: str) -> None:
    sampler, index = samplers()[name], with_advantages(1.0, 1.0, 1.0)
    rng = np.random.default_rng(0)
    assert sorted(sampler.sample(everything(index), 3, rng).tolist()) == [0, 1, 2]
    rows = [row for _ in range(200) for row in sampler.sample(everything(index), 4, rng).tolist()]
    assert_distributed([rows.count(row) for row in range(3)], [1.0] * 3)


def test_without_any_advantage_priority_is_uniform() -> None:
    index = with_advantages(*[0.0] * 6)
    sampler = Priority(alpha=1.0)
    assert_distributed(counts_of_single_draws(sampler, everything(index), 6), [1.0] * 6)
    assert sorted(sampler.sample(everything(index), 6, np.random.default_rng(0)).tolist()) == list(range(6))
    assert sampler.sample_weighted(everything(index), 2, np.random.default_rng(0), beta=1.0)[1].tolist() == [1.0, 1.0]
    index.add(entry(6, advantage=0.1))
    assert sampler.sample(everything(index), 3, np.random.default_rng(0)).tolist() == [6, 6, 6]


def test_weights_of_any_size_are_drawn_by() -> None:
    index = with_advantages(*[1e-300] * 5, 1e300, 1e-300)
    rows = Priority(alpha=1.0).sample(everything(index), 7, np.random.default_rng(0)).tolist()
    assert rows[0] == 5 and sorted(rows) == list(range(7))
    old = index_of([entry(n, newest_version=n * 5000) for n in range(3)])
    rows = Recency(half_life=0.5).sample(everything(old, version=10_000), 3, np.random.default_rng(0)).tolist()
    assert rows[0] == 2 and sorted(rows) == [0, 1, 2]
    with pytest.raises(ValueError, match="sum"):
        Priority(alpha=1.0).sample(everything(with_advantages(1.7e308, 1.7e308)), 1, np.random.default_rng(0))


class Corner(np.random.Generator):
    """Always throws the same point of the unit interval."""

    def __init__(self, point: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.point = point

    def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
        return np.full(size, self.point)


@pytest.mark.parametrize(("point", "row"), [(0.0, 1), (0.999, 3), (1.0 - 2.0**-53, 3), (1.0, 3)])
def test_what_has_no_weight_is_not_hit_at_the_ends(point: float, row: int) -> None:
    index = with_advantages(0.0, 1.0, 0.0, 2.0, 0.0)
    assert Priority(alpha=1.0).sample(everything(index), 1, Corner(point)).tolist() == [row]


@pytest.mark.parametrize(
    "changes",
    [
        {"reward": math.nan},
        {"advantage": math.nan},
        {"advantage": math.inf},
        {"difficulty": math.nan},
        {"difficulty": 1.1},
        {"oldest_version": 2, "newest_version": 1},
        {"oldest_version": -1},
        {"newest_version": 1 << 31},
        {"num_tokens": 0},
        {"num_steps": 0},
        {"member": -1},
        {"group": -1},
        {"location": 1 << 63},
    ],
    ids=str,
)
def test_an_impossible_entry_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^g-?\d+\.-?\d+: .*-?\d"):
        entry(**changes)


@pytest.mark.parametrize("half_life", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_half_life_is_refused(half_life: float) -> None:
    with pytest.raises(ValueError, match="half_life"):
        Recency(half_life=half_life)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_an_impossible_alpha_or_beta_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        Priority(alpha=share)
    with pytest.raises(ValueError, match="beta"):
        Uniform().sample_weighted(everything(index_of([entry()])), 1, np.random.default_rng(0), beta=share)


def test_impossible_bounds_are_refused() -> None:
    index = index_of([entry()])
    for max_lag, max_uses in ((-1, None), (0, -1)):
        with pytest.raises(ValueError, match="-1"):
            index.eligible(0, max_lag, max_uses=max_uses)
    with pytest.raises(ValueError, match="-1"):
        index.mark_used(0, times=-1)


# The index


def test_an_entry_comes_back_as_it_was_added() -> None:
    first = entry(7, 0, num_tokens=5, num_steps=2, oldest_version=3, newest_version=4, reward=0.1, location=1 << 40)
    entries = [first, entry(7, 1, family="sum", oldest_version=1, newest_version=6, advantage=-0.7, difficulty=0.3)]
    index = index_of(entries)
    assert [index.entry(row) for row in range(2)] == entries
    assert index.values("location", np.array([1])).tolist() == [701]
    with pytest.raises(IndexError, match="2"):
        index.entry(2)
    with pytest.raises(ValueError, match="'alive'"):
        index.values("alive", np.array([0]))


def test_a_member_is_added_once_and_beside_its_group() -> None:
    index = index_of([entry(0, 0)])
    with pytest.raises(ValueError, match="added already"):
        index.add(entry(0, 0))
    index.add(entry(1, 0))
    with pytest.raises(ValueError, match="closed"):
        index.add(entry(0, 1))
    assert index.num_attempts == 2
    index.remove_group(1)
    with pytest.raises(ValueError, match="closed"):
        index.add(entry(0, 1))
    index.remove_group(0)
    index.add(entry(0, 1))
    assert index.num_groups == 1


@pytest.mark.parametrize(
    ("allow_partial", "removed"), [(True, {"stale": 1, "partly_stale": 0}), (False, {"stale": 1, "partly_stale": 1})]
)
def test_expiry_goes_by_the_newest_token_or_the_oldest(allow_partial: bool, removed: dict[str, int]) -> None:
    spans = [(1, 2), (2, 5), (5, 6)]
    index = index_of(
        [entry(n, oldest_version=old, newest_version=new) for n, (old, new) in enumerate(spans)],
        allow_partial=allow_partial,
    )
    eligible = index.eligible(7, 3)
    num_left = 3 - sum(removed.values())
    assert (eligible.min_version, eligible.num_attempts, eligible.num_groups) == (4, num_left, num_left)
    assert index.expire(eligible.min_version) == removed
    assert index.num_attempts == index.num_groups == num_left
    with pytest.raises(IndexError):
        index.entry(0)


def test_a_group_that_lost_a_member_is_not_drawn_as_one() -> None:
    index = index_of([entry(0, 0, newest_version=1), entry(0, 1, newest_version=5), entry(1, 0, newest_version=5)])
    assert index.expire(3) == {"stale": 1, "partly_stale": 0}
    rng = np.random.default_rng(0)
    assert GroupAware(Uniform()).sample(everything(index), 4, rng).tolist() == [2, 2, 2, 2]
    assert sorted(Uniform().sample(everything(index), 2, rng).tolist()) == [1, 2]


def test_a_late_member_belongs_to_a_group_that_was_drawn_before() -> None:
    index, sampler, rng = index_of([entry(0, 0)]), GroupAware(Uniform()), np.random.default_rng(0)
    assert sampler.sample(everything(index), 1, rng).tolist() == [0]
    index.add(entry(0, 1))
    assert sampler.sample(everything(index), 1, rng).tolist() == [0, 1]


def test_a_closed_group_stays_closed_when_rows_are_renumbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MIN_HOLES", 0)
    index = index_of([entry(0, 0), *[entry(1, member) for member in range(3)]])
    index.remove_group(1)
    assert (index.rows.num, index.entry(0)) == (1, entry(0, 0))
    with pytest.raises(ValueError, match="closed"):
        index.add(entry(0, 0))


def test_memory_is_bytes_per_attempt() -> None:
    index = index_of([entry(n // 8, n % 8) for n in range(50_000)])
    full = index.nbytes
    assert index.nbytes_per_attempt == full / 50_000 < 200
    for group in range(6000):
        index.remove_group(group)
    assert index.num_attempts == 2000 and index.nbytes < full / 5


# The mix


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.25, 1 / 3, 1.0, 2.5])
def test_the_ratio_is_exact_in_the_long_run(ratio: float) -> None:
    mix, rng = ReplayMix(ratio=ratio, max_uses=1), np.random.default_rng(0)
    num_fresh, num_replayed = 0, 0
    for fresh in rng.integers(1, 8, size=10_000).tolist():
        due = mix.num_replayed(num_fresh=fresh, num_fresh_before=num_fresh)
        num_fresh, num_replayed = num_fresh + fresh, num_replayed + due
        assert abs(due - ratio * fresh) <= 1
        assert num_replayed == math.floor(Fraction(str(ratio)) * num_fresh)


def test_one_replayed_group_for_four_fresh_ones() -> None:
    mix = ReplayMix(ratio=0.25, max_uses=1)
    assert [mix.num_replayed(num_fresh=4, num_fresh_before=4 * step) for step in range(5)] == [1] * 5
    assert [mix.num_replayed(num_fresh=1, num_fresh_before=step) for step in range(8)] == [0, 0, 0, 1] * 2


@pytest.mark.parametrize(
    "changes", [{"ratio": -0.1}, {"ratio": math.nan}, {"ratio": math.inf}, {"max_uses": 0}], ids=str
)
def test_an_impossible_mix_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ratio"):
        ReplayMix(**{"ratio": 0.5, "max_uses": 1, **changes})


def replayed_groups(index: ReplayIndex, mix: ReplayMix, *, steps: range, num_fresh: int, seed: int) -> list[list[int]]:
    sampler, rng, drawn = GroupAware(Priority(alpha=1.0)), np.random.default_rng(seed), []
    for step in steps:
        rows = mix.draw(
            index, sampler, rng, version=0, max_lag=4, num_fresh=num_fresh, num_fresh_before=step * num_fresh
        )
        groups = index.values("group", rows).tolist()
        assert [index.entry(row).member for row in rows.tolist()] == [0, 1, 2] * (len(groups) // 3)
        drawn.append(groups[::3])
    return drawn


def test_a_step_has_a_group_once_and_a_run_as_often_as_allowed() -> None:
    index = index_of([entry(group, member) for group in range(20) for member in range(3)])
    mix = ReplayMix(ratio=0.5, max_uses=3)
    steps = replayed_groups(index, mix, steps=range(40), num_fresh=4, seed=0)
    assert all(len(set(groups)) == len(groups) for groups in steps)
    assert Counter(group for groups in steps for group in groups) == dict.fromkeys(range(20), 3)
    assert [len(groups) for groups in steps[:25]] == [2] * 25  # 20 groups, 3 uses each, are 30 steps' worth at most
    assert replayed_groups(index, mix, steps=range(40, 42), num_fresh=4, seed=0) == [[], []]


def test_never_more_groups_than_can_be_drawn() -> None:
    """Also where most have no weight: the others are not repeated within a step."""
    index = index_of([entry(group, member, advantage=float(group < 2)) for group in range(9) for member in range(3)])
    steps = replayed_groups(index, ReplayMix(ratio=5.0, max_uses=9), steps=range(3), num_fresh=1, seed=0)
    assert [sorted(groups) for groups in steps] == [[0, 1]] * 3


def test_use_counts_are_built_again() -> None:
    def fresh() -> ReplayIndex:
        return index_of([entry(group, member) for group in range(12) for member in range(3)])

    mix, index, again = ReplayMix(ratio=0.5, max_uses=2), fresh(), fresh()
    for group, times in Counter(
        group for groups in replayed_groups(index, mix, steps=range(6), num_fresh=4, seed=1) for group in groups
    ).items():
        again.mark_used(group, times=times)
    assert [again.uses(group) for group in range(12)] == [index.uses(group) for group in range(12)]
    going_on = [replayed_groups(i, mix, steps=range(6, 12), num_fresh=4, seed=2) for i in (index, again)]
    assert going_on[0] == going_on[1] and going_on[0][0]
    with pytest.raises(ValueError, match="99"):
        again.mark_used(99)
