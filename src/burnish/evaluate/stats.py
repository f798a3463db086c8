"""How sure a pass rate is: pure functions from counts to numbers with intervals.

Two things make the textbook interval too narrow for evaluations. Tasks of one family rise and fall together, so that
the family, and not the task, is the unit that was drawn; and there are few families, so that the normal quantile is too
small. Every interval here therefore clusters by family and takes a t quantile, except `wilson`, which is the textbook
answer for independent draws and is shown beside them. docs/evaluation.md explains the formulas for readers of a report.

Legend: `G` clusters (families), `N` values (tasks), `n_g` values of cluster g, `e_g` the sum of its residuals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

Interval = tuple[float, float]

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean over tasks, with its cluster-robust standard error.

    Example: Estimate(value=0.59, ci95=(0.44, 0.72), se=0.066, dof=15.0, num_values=64, num_clusters=16)
    """

    value: float
    ci95: Interval | None  # None with fewer than two clusters: one family says nothing about others
    se: float | None  # None together with `ci95`
    dof: float | None  # degrees of freedom of the t quantile; G - 1 when clusters have equal sizes
    num_values: int
    num_clusters: int


class Tally(NamedTuple):
    """The counts of one task: attempts that passed, and attempts that could be measured (never the failed ones, I1)."""

    passed: int
    measured: int

    @property
    def rate(self) -> float:
        return self.passed / self.measured


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedDifference:
    """After minus before, over the tasks measured in both.

    Example: PairedDifference(diff=estimate, rate_before=0.15, rate_after=0.59, num_pairs=62, num_excluded=2)
    """

    diff: Estimate
    rate_before: float  # over the pairs, so that rate_after - rate_before == diff.value
    rate_after: float
    num_pairs: int
    num_excluded: int  # tasks with no measured attempt on one side or both


def pass_at_k(num_samples: int, num_passed: int, k: int) -> float:
    """The unbiased estimate of "at least one of k attempts passes" from n attempts of which c passed.

    1 - C(n - c, k) / C(n, k): Chen et al. 2021, "Evaluating Large Language Models Trained on Code",
    https://arxiv.org/abs/2107.03374, equation 1. Integers throughout, so nothing overflows or cancels.

    Raises:
        ValueError: unless 0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= num_passed <= num_samples:
        raise ValueError(f"num_passed must be in 0..{num_samples}, not {num_passed}")
    if not 1 <= k <= num_samples:
        raise ValueError(f"k must be in 1..{num_samples} (the number of samples), not {k}")
    num_subsets = math.comb(num_samples, k)
    return (num_subsets - math.comb(num_samples - num_passed, k)) / num_subsets


def wilson(num_passed: float, num_samples: float, *, quantile: float = _Z) -> Interval:
    """The Wilson score interval of a proportion of independent draws; 95 % with the default quantile.

    Wilson 1927, "Probable inference, the law of succession, and statistical inference", JASA 22. Stays inside [0, 1]
    and keeps a width at 0 and at n passes, where the normal interval has none.

    Raises:
        ValueError: unless 0 <= num_passed <= num_samples and num_samples > 0.
    """
    if not (num_samples > 0 and 0 <= num_passed <= num_samples):
        raise ValueError(f"wilson needs 0 <= num_passed <= num_samples > 0, not {num_passed} of {num_samples}")
    rate, square = num_passed / num_samples, quantile * quantile
    centre = (rate + square / (2 * num_samples)) / (1 + square / num_samples)
    spread = rate * (1 - rate) / num_samples + square / (4 * num_samples * num_samples)
    half = quantile * math.sqrt(spread) / (1 + square / num_samples)
    # The ends are exact where the formula is: rounding must not turn "0 of n" into a lower end above 0.
    low = 0.0 if num_passed == 0 else max(0.0, centre - half)
    high = 1.0 if num_passed == num_samples else min(1.0, centre + half)
    return low, high


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@lru_cache(maxsize=256)
def t_quantile(probability: float, dof: float) -> float:
    """The quantile of Student's t for 0.5 <= probability < 1 and real `dof` >= 1 (here so that scipy need not be).

    With t = sqrt(dof) tan(a) the distribution function is 1/2 + c * integral of cos^(dof-1) from 0 to a, a smooth
    integrand for Gauss-Legendre; a is then found by bisection. Six digits agree with printed tables.
    """
    if not (0.5 <= probability < 1 and dof >= 1):
        raise ValueError(f"t_quantile needs 0.5 <= probability < 1 and dof >= 1, not {probability} and {dof}")
    scale = math.exp(math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)) / math.sqrt(math.pi)
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        angle = (low + high) / 2
        powers = np.cos(angle / 2 * (_NODES + 1)) ** (dof - 1)
        if 0.5 + scale * angle / 2 * float(_WEIGHTS @ powers) < probability:
            low = angle
        else:
            high = angle
    return math.sqrt(dof) * math.tan((low + high) / 2)


def clustered_mean(values: Sequence[float], clusters: Sequence[str]) -> Estimate:
    """The mean of `values` and its cluster-robust t interval: value +- t(dof) * se.

    Clustering as in Miller 2024, "Adding Error Bars to Evals", https://arxiv.org/abs/2411.00640, section 2.2, which
    uses the sandwich without a correction (CR0). With a few dozen families that is too narrow, so this takes

    * the bias-reduced sandwich CR2, se^2 = sum_g e_g^2 / (1 - n_g / N) / N^2, which is unbiased for independent
      errors and equals the usual G / (G - 1) correction when all clusters have one size;
    * the degrees of freedom that belong to it, (trace M)^2 / trace(M^2) with
      M_gh = a_g a_h (n_g [g = h] - n_g n_h / N) and a_g = (1 - n_g / N)^(-1/2): G - 1 for equal sizes, fewer when some
      families dominate.

    Both: Bell & McCaffrey 2002, "Bias reduction in standard errors for linear regression with multi-stage samples";
    Imbens & Kolesar 2016, https://arxiv.org/abs/1208.2178; here in closed form for a regression on a constant.

    When all values are equal the standard error is 0 and the interval a point: the data hold no spread to speak of.

    Raises:
        ValueError: no values, or not one cluster per value.
    """
    if not values or len(values) != len(clusters):
        raise ValueError(f"need one cluster per value and at least one value, not {len(values)} and {len(clusters)}")
    _, index_N = np.unique(np.asarray(clusters), return_inverse=True)
    values_N = np.asarray(values, dtype=np.float64)
    mean = float(values_N.mean())
    sizes_G = np.bincount(index_N).astype(np.float64)
    num_values, num_clusters = len(values), len(sizes_G)
    if num_clusters < 2:
        return Estimate(value=mean, ci95=None, se=None, dof=None, num_values=num_values, num_clusters=num_clusters)
    shrink_G = 1 - sizes_G / num_values  # 1 - leverage; above 0 because another cluster holds something
    # A sum of equal numbers can miss N times one of them in the last bit; that is not spread.
    residuals_N = np.zeros(num_values) if values_N.min() == values_N.max() else values_N - mean
    sums_G = np.bincount(index_N, weights=residuals_N)
    se = math.sqrt(float((sums_G**2 / shrink_G).sum())) / num_values
    adjust_G = shrink_G**-0.5
    M_GG = np.outer(adjust_G, adjust_G) * (np.diag(sizes_G) - np.outer(sizes_G, sizes_G) / num_values)
    dof = max(1.0, float(np.trace(M_GG)) ** 2 / float((M_GG**2).sum()))
    half = t_quantile(0.5 + CONFIDENCE / 2, round(dof, 6)) * se
    return Estimate(
        value=mean, ci95=(mean - half, mean + half), se=se, dof=dof, num_values=num_values, num_clusters=num_clusters
    )


def clustered_rate(rates: Sequence[float], clusters: Sequence[str]) -> Estimate:
    """The mean of per-task rates in [0, 1], with a cluster-robust interval that stays inside [0, 1].

    A Wilson interval with the effective sample size n_eff = p (1 - p) / se^2 (how many independent draws would be as
    uncertain), `se` and the t quantile from `clustered_mean`. Korn & Graubard 1998, "Confidence intervals for
    proportions with small expected number of positive counts estimated from survey data", give the effective size;
    Franco et al. 2019, "Comparative study of confidence intervals for proportions in complex sample surveys", its use
    with Wilson. Near 0 and 1, where untrained small models and trained ones live, it covers and mean +- t se does not.

    When every rate is the same (all fail, all pass) se is 0 and tells nothing; each family then counts as one draw,
    as if its tasks always agreed, which is the most cautious reading.

    Raises:
        ValueError: as `clustered_mean`, or a rate outside [0, 1].
    """
    outside = [rate for rate in rates if not 0 <= rate <= 1]
    if outside:
        raise ValueError(f"a rate must be in [0, 1], not {outside[0]}")
    mean = clustered_mean(rates, clusters)
    if mean.se is None or mean.dof is None:
        return mean
    num_effective = mean.value * (1 - mean.value) / mean.se**2 if mean.se > 0 else float(mean.num_clusters)
    quantile = t_quantile(0.5 + CONFIDENCE / 2, round(mean.dof, 6))
    return Estimate(
        value=mean.value,
        ci95=wilson(mean.value * num_effective, num_effective, quantile=quantile),
        se=mean.se,
        dof=mean.dof,
        num_values=mean.num_values,
        num_clusters=mean.num_clusters,
    )


def paired_difference(
    before: Sequence[Tally], after: Sequence[Tally], clusters: Sequence[str]
) -> PairedDifference | None:
    """Compares two evaluations of the same tasks; entry i of the three sequences speaks of one task.

    Pairing takes the difficulty of a task out of the noise (Miller 2024, section 4): the values are the per-task
    differences of measured pass rates, and `clustered_mean` gives the interval, clipped to [-1, 1].

    Why this interval and not a bootstrap over families: with 10 to 40 families the percentile bootstrap is too narrow
    (Cameron, Gelbach & Miller 2008, "Bootstrap-based improvements for inference with clustered errors"), needs a seed,
    and tells nothing more about a mean. tests/golden/test_stats_coverage.py checks the coverage of what is reported.

    Unmeasured attempts are in no tally. A task without a measured attempt on either side has no difference: it is left
    out and counted. None when no task is left.

    Raises:
        ValueError: the three sequences differ in length.
    """
    triples = list(zip(before, after, clusters, strict=True))
    pairs = [triple for triple in triples if triple[0].measured and triple[1].measured]
    if not pairs:
        return None
    diff = clustered_mean([new.rate - old.rate for old, new, _ in pairs], [cluster for _, _, cluster in pairs])
    if diff.ci95 is not None:
        diff = Estimate(
            value=diff.value,
            ci95=(max(-1.0, diff.ci95[0]), min(1.0, diff.ci95[1])),
            se=diff.se,
            dof=diff.dof,
            num_values=diff.num_values,
            num_clusters=diff.num_clusters,
        )
    return PairedDifference(
        diff=diff,
        rate_before=sum(old.rate for old, _, _ in pairs) / len(pairs),
        rate_after=sum(new.rate for _, new, _ in pairs) / len(pairs),
        num_pairs=len(pairs),
        num_excluded=len(triples) - len(pairs),
    )
