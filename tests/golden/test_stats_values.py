"""Statistics against numbers from printed tables, closed forms, enumeration and plain matrix algebra."""

import itertools
import math

import numpy as np
import pytest

from burnish.evaluate.stats import (
    Tally,
    clustered_mean,
    clustered_rate,
    paired_difference,
    pass_at_k,
    t_quantile,
    wilson,
)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 2), (5, 2, 4), (6, 0, 3), (6, 6, 3), (7, 3, 7), (4, 1, 4)])
def test_pass_at_k_is_the_share_of_subsets_with_a_pass(n: int, c: int, k: int) -> None:
    subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


def test_pass_at_k_is_exact_where_floats_would_cancel() -> None:
    assert pass_at_k(2000, 1, 1000) == 0.5
    assert pass_at_k(1, 1, 1) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 0), (3, 1, 4), (3, 4, 1), (3, -1, 1), (0, 0, 1)])
def test_pass_at_k_refuses_what_is_not_defined(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="must be in"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    # Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_matches_newcombe(passed: int, n: int, low: float, high: float) -> None:
    assert wilson(passed, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_ends_are_exact_and_mirror() -> None:
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0
    assert wilson(2, 9)[0] == pytest.approx(1 - wilson(7, 9)[1], abs=1e-15)
    with pytest.raises(ValueError, match="wilson needs"):
        wilson(0, 0)


@pytest.mark.parametrize(
    ("dof", "quantile"),
    # printed tables, two-sided 5 %
    [
        (1, 12.7062),
        (2, 4.30265),
        (3, 3.18245),
        (9, 2.26216),
        (15, 2.13145),
        (30, 2.04227),
        (120, 1.97993),
        (1e7, 1.95996),
    ],
)
def test_t_quantile_matches_printed_tables(dof: float, quantile: float) -> None:
    assert t_quantile(0.975, dof) == pytest.approx(quantile, rel=3e-6)


def test_t_quantile_closed_forms_and_median() -> None:
    assert t_quantile(0.9, 1) == pytest.approx(math.tan(math.pi * 0.4), rel=1e-9)
    a = 4 * 0.9 * 0.1
    assert t_quantile(0.9, 2) == pytest.approx(2 * 0.4 * math.sqrt(2 / a), rel=1e-9)
    assert t_quantile(0.5, 4.5) == pytest.approx(0.0, abs=1e-9)
    assert t_quantile(0.975, 3) < t_quantile(0.975, 2.5) < t_quantile(0.975, 2)
    with pytest.raises(ValueError, match="t_quantile needs"):
        t_quantile(0.975, 0.5)


def test_clustered_mean_by_hand_for_equal_sizes() -> None:
    # Family means 1, 1/2, 0: the standard error of a mean of three is 0.5 / sqrt(3), and t(2) = 4.30265.
    estimate = clustered_mean([1, 1, 1, 0, 0, 0], ["a", "a", "b", "b", "c", "c"])
    assert estimate.value == 0.5
    assert estimate.se == pytest.approx(0.5 / math.sqrt(3))
    assert estimate.dof == pytest.approx(2.0)
    assert estimate.ci95 == pytest.approx((0.5 - 4.302653 * 0.288675, 0.5 + 4.302653 * 0.288675), abs=1e-5)
    assert (estimate.num_values, estimate.num_clusters) == (6, 3)


def test_clusters_of_one_give_the_textbook_standard_error() -> None:
    values = [0.1, 0.4, 0.35, 0.8, 0.0]
    estimate = clustered_mean(values, list("abcde"))
    assert estimate.se == pytest.approx(float(np.std(values, ddof=1)) / math.sqrt(5))
    assert estimate.dof == pytest.approx(4.0)


def _cr2_by_matrices(values: list[float], clusters: list[str]) -> tuple[float, float]:
    """Standard error and degrees of freedom, straight from the definitions for a regression on a column of ones."""
    n = len(values)
    ones = np.ones((n, 1))
    hat = ones @ ones.T / n
    residuals = (np.eye(n) - hat) @ np.asarray(values)
    variance, columns = 0.0, []
    for name in sorted(set(clusters)):
        rows = np.array([cluster == name for cluster in clusters])
        size = int(rows.sum())
        block = np.eye(size) - hat[np.ix_(rows, rows)]
        eigenvalues, vectors = np.linalg.eigh(block)
        adjust = vectors @ np.diag(eigenvalues**-0.5) @ vectors.T
        variance += float(np.ones(size) @ adjust @ residuals[rows]) ** 2 / n**2
        columns.append((np.eye(n) - hat)[:, rows] @ adjust @ np.ones(size) / n)
    eigen = np.linalg.eigvalsh(np.array(columns) @ np.array(columns).T)
    return math.sqrt(variance), float(eigen.sum() ** 2 / (eigen**2).sum())


def test_unequal_clusters_match_matrix_algebra() -> None:
    values = [1.0, 0.5, 0.0, 1.0, 0.0, 0.25, 0.75, 1.0, 0.5]
    clusters = ["a", "b", "b", "c", "c", "c", "c", "d", "a"]
    estimate = clustered_mean(values, clusters)
    assert (estimate.se, estimate.dof) == pytest.approx(_cr2_by_matrices(values, clusters), rel=1e-12)
    assert estimate.dof is not None
    assert 1 < estimate.dof < 3


def test_one_family_has_no_interval() -> None:
    estimate = clustered_mean([0.0, 1.0], ["a", "a"])
    assert (estimate.value, estimate.ci95, estimate.se, estimate.num_clusters) == (0.5, None, None, 1)
    assert clustered_rate([0.0, 1.0], ["a", "a"]) == estimate


@pytest.mark.parametrize("value", [0.1, 1 / 3])
def test_equal_values_have_no_spread_to_the_last_bit(value: float) -> None:
    estimate = clustered_mean([value] * 7, list("aabbccd"))
    assert estimate.se == 0.0
    assert estimate.ci95 == pytest.approx((value, value), abs=1e-15)


def test_clustered_rate_is_wilson_at_the_effective_size() -> None:
    rates, clusters = [1.0, 1.0, 0.5, 0.0, 0.0, 0.0], list("aabbcc")
    mean, rate = clustered_mean(rates, clusters), clustered_rate(rates, clusters)
    assert mean.se is not None
    n_eff = mean.value * (1 - mean.value) / mean.se**2
    assert rate.ci95 == pytest.approx(wilson(mean.value * n_eff, n_eff, quantile=t_quantile(0.975, 2.0)))
    assert (rate.value, rate.se, rate.dof) == (mean.value, mean.se, mean.dof)


def test_all_failures_still_have_an_upper_end_that_shrinks_with_families() -> None:
    # Five families, t(4) = 2.776: q^2 / (n + q^2) = 7.708 / 12.708
    few = clustered_rate([0.0] * 10, list("aabbccddee"))
    assert few.ci95 == pytest.approx((0.0, 0.60656), abs=1e-4)
    many = clustered_rate([0.0] * 40, [str(i) for i in range(40)])
    assert few.ci95 is not None
    assert many.ci95 is not None
    assert many.ci95[1] < 0.1 < few.ci95[1]


def test_paired_difference_by_hand() -> None:
    before = [Tally(0, 2), Tally(1, 2), Tally(0, 1), Tally(2, 2), Tally(0, 0), Tally(1, 1)]
    after = [Tally(2, 2), Tally(1, 2), Tally(1, 2), Tally(2, 2), Tally(2, 2), Tally(0, 0)]
    paired = paired_difference(before, after, list("aabbca"))
    assert paired is not None
    # differences 1, 0 | 1/2, 0; family sums of residuals from 3/8: 1/4, -1/4
    assert paired.diff.value == pytest.approx(0.375)
    assert paired.diff.se == pytest.approx(math.sqrt(2 * (0.25**2) / 0.5) / 4)
    assert paired.diff.ci95 == (-1.0, 1.0)  # t(1) = 12.7: clipped, and honest about two families
    assert (paired.rate_before, paired.rate_after) == (0.375, 0.75)
    assert (paired.num_pairs, paired.num_excluded) == (4, 2)


def test_no_pair_is_not_a_difference_of_zero() -> None:
    assert paired_difference([Tally(0, 0)], [Tally(1, 1)], ["a"]) is None


def test_misaligned_input_is_refused() -> None:
    with pytest.raises(ValueError, match="need one cluster per value"):
        clustered_mean([], [])
    with pytest.raises(ValueError, match="need one cluster per value"):
        clustered_mean([1.0], ["a", "b"])
    with pytest.raises(ValueError, match="zip"):
        paired_difference([Tally(0, 1)], [], ["a"])
    with pytest.raises(ValueError, match="a rate must be"):
        clustered_rate([0.5, 1.2], ["a", "b"])
