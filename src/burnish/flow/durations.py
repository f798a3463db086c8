"""How long an attempt of a family takes, from those that ended; feeds the order in which attempts are admitted."""

import math

HALF_LIFE = 64  # attempts after which one counts half: policies get quicker, and slower
PRIOR_ATTEMPTS = 4.0  # a family's own estimate counts as much as all families' together once it has so many


class _Moments:
    """Exponentially weighted mean and variance of log seconds."""

    def __init__(self) -> None:
        self.weight = self.mean = self._square = 0.0

    def add(self, value: float) -> None:
        keep = 0.5 ** (1 / HALF_LIFE)
        self.weight = keep * self.weight + 1.0
        step = (value - self.mean) / self.weight
        self._square = keep * self._square + step * (value - self.mean) * (self.weight - 1.0)
        self.mean += step

    @property
    def variance(self) -> float:
        return self._square / self.weight if self.weight else 0.0


class DurationEstimates:
    """Log-normal durations by family, drawn towards those of all families while a family has ended few attempts.

    With n (weighted) attempts of its own, a family's mean and variance count n / (n + 4) and everybody's the rest.
    """

    def __init__(self) -> None:
        self._all = _Moments()
        self._families: dict[str, _Moments] = {}

    def hear(self, family: str, seconds: float) -> None:
        """An attempt ended. Raises ValueError for a time that is none."""
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise ValueError(f"an attempt took {seconds} s")
        value = math.log(max(seconds, 1e-3))
        self._all.add(value)
        self._families.setdefault(family, _Moments()).add(value)

    def expected_s(self, family: str) -> float:
        """The mean of the estimated log-normal, exp(mean + variance / 2); 0.0 before anything has ended."""
        if not self._all.weight:
            return 0.0
        own = self._families.get(family, self._all)
        share = own.weight / (own.weight + PRIOR_ATTEMPTS)
        mean = share * own.mean + (1 - share) * self._all.mean
        variance = share * own.variance + (1 - share) * self._all.variance
        return math.exp(mean + variance / 2)
