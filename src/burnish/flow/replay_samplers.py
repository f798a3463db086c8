"""How replayed attempts are drawn, and how many of a step's groups are replayed ones.

Every sampler has one call, `sample(eligible, n, rng)`, and one structure below it: the running sum of the weights of
what is eligible. A draw is a random point on that line and a binary search for whose it is. Why not a sum tree or an
alias table: attempts are only ever added at the end, so the sum goes on where it stopped and an addition voids nothing.
Whatever changes in between (another version, an expiry, a use) happens once a step, and one pass over the index, a
tenth of a second for a million attempts, is less than a step notices. An alias table would be built anew for each
addition; a sum tree would take single changes, but needs a Python loop over its levels for each draw. Nothing is
approximate: sums are float64 and never corrected by differences, so no error builds up, and what is not eligible is
not in them.

Draws of one call are without replacement where the population allows: repeated hits are thrown away, which is the
same as drawing the next one from the rest by its weights.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from burnish.flow.replay import Columns, Eligible, Floats, Ints, ReplayIndex
from burnish.types import PolicyVersion

DIFFICULTY_FLOOR = 0.05  # a group that all or none passed can still differ in other scores than passing
MAX_HALVINGS = 1000.0  # float64 ends at 2**-1074; what is older than this is as good as never drawn


class _Line:
    """Items laid side by side, each as long as its weight.

    Example:
        line = _Line()
        line.extend(np.array([4, 9]), np.array([1.0, 3.0]))
        line.draw(1, rng)  # the position 1, which is item 9, three times out of four
    """

    def __init__(self) -> None:
        self._columns = Columns(item=np.int64, weight=np.float64, end=np.float64)
        self._num_positive = 0

    def extend(self, items: Ints, weights: Floats) -> None:
        """Raises ValueError for a negative weight, and when the sum is not finite."""
        if len(items) == 0:
            return
        with np.errstate(over="ignore"):  # said below
            ends = np.cumsum(np.concatenate(([self._total], weights)))[1:]
        if not (np.isfinite(ends[-1]) and (weights >= 0.0).all()):
            raise ValueError(f"weights must not be negative and their sum finite, got {weights.min()}, sum {ends[-1]}")
        self._columns.extend(item=items, weight=weights, end=ends)
        self._num_positive += int(np.count_nonzero(weights))

    @property
    def num_drawable(self) -> int:
        """Items that have a weight; when none has, all of them, each with the same."""
        return self._num_positive or self._columns.num

    @property
    def nbytes(self) -> int:
        return self._columns.nbytes

    @property
    def _total(self) -> float:
        return float(self._columns["end"][-1]) if self._columns.num else 0.0

    def items(self, positions: Ints) -> Ints:
        return self._columns["item"][positions]

    def relative(self, positions: Ints) -> Floats:
        """N * p of each: how many times likelier than the mean of all items it is to be drawn."""
        if not self._num_positive:
            return np.ones(len(positions))
        return self._columns["weight"][positions] / self._total * self._columns.num

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """Positions. Without replacement if `n` items can be drawn, else with; none from an empty line."""
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        if n > self.num_drawable:
            return self._throw(n, rng) if self.num_drawable else np.empty(0, np.int64)
        found, num_thrown = np.empty(0, np.int64), 0
        # A throw costs a binary search, a key a share of one pass: beyond a quarter of the items, keys are cheaper.
        while len(found) < n and num_thrown + n <= self._columns.num // 4:
            thrown = self._throw(max(n, num_thrown), rng)
            num_thrown += len(thrown)
            found = _first_of_each(np.concatenate((found, thrown)))[:n]
        return found if len(found) == n else np.concatenate((found, self._by_keys(n - len(found), found, rng)))

    def _throw(self, n: int, rng: np.random.Generator) -> Ints:
        """`n` independent draws."""
        if not self._num_positive:
            return rng.integers(self._columns.num, size=n)
        points = np.minimum(rng.random(n) * self._total, np.nextafter(self._total, 0.0))  # rounding may reach the end
        return np.searchsorted(self._columns["end"], points, side="right")  # the right side skips items without length

    def _by_keys(self, n: int, taken: Ints, rng: np.random.Generator) -> Ints:
        """`n` of those not taken, one after the other by weight: the smallest of exponential times over weights.

        Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006, in logarithms.
        """
        weights = self._columns["weight"] if self._num_positive else np.ones(self._columns.num)
        keys = np.full(len(weights), np.inf)
        positive = weights > 0.0
        keys[positive] = np.log(rng.standard_exponential(int(positive.sum()))) - np.log(weights[positive])
        keys[taken] = np.inf
        first = np.argpartition(keys, n - 1)[:n]
        return first[np.argsort(keys[first])]


def _first_of_each(values: Ints) -> Ints:
    """The distinct values in the order of their first appearance."""
    _, places = np.unique(values, return_index=True)
    return values[np.sort(places)]


class Sampler(ABC):
    """What all samplers share. Each keeps what it prepared for the index it last drew from; it is for one thread."""

    def __init__(self) -> None:
        self._line = _Line()
        self._made_for: object = None

    def sample(self, eligible: Eligible, n: int, rng: np.random.Generator) -> Ints:
        """Row numbers of `n` draws, in the order in which they were drawn; none if nothing is eligible.

        Without replacement when `n` can be drawn: those with a weight, or all with the same when no weight is positive.
        With replacement otherwise. Raises ValueError for a negative `n`.
        """
        return self._rows(eligible, self._draw(eligible, n, rng))[0]

    def sample_weighted(
        self, eligible: Eligible, n: int, rng: np.random.Generator, *, beta: float
    ) -> tuple[Ints, Floats]:
        """`sample`, and for each row the importance-sampling weight (N * p)**-beta, which corrects for drawing with
        probability p instead of 1 / N: fully at `beta` 1, not at all at 0.

        Schaul et al., "Prioritized Experience Replay", ICLR 2016 (arXiv:1511.05952), section 3.4, where the weights
        are then divided by their maximum. Raises ValueError for a `beta` outside 0 to 1.
        """
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must be in 0 to 1, got {beta}")
        positions = self._draw(eligible, n, rng)
        rows, num_rows = self._rows(eligible, positions)
        return rows, np.repeat(self._line.relative(positions) ** -beta, num_rows)

    def num_drawable(self, eligible: Eligible) -> int:
        """Up to this `n`, a sample is without replacement."""
        self._prepare(eligible)
        return self._line.num_drawable

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds beside the index."""
        return self._line.nbytes

    @abstractmethod
    def _new_items(self, eligible: Eligible) -> tuple[Ints, Floats]:
        """What is eligible of what was added since the last call, and its weights."""

    @abstractmethod
    def _forget(self) -> None:
        """The next call of `_new_items` is about everything."""

    def _is_outdated(self, index: ReplayIndex) -> bool:
        """Whether what was there already has grown; removals and uses are counted by the index."""
        return False

    @abstractmethod
    def _rows(self, eligible: Eligible, positions: Ints) -> tuple[Ints, int | Ints]:
        """The rows at these positions of the line, and how many belong to each position."""

    def _draw(self, eligible: Eligible, n: int, rng: np.random.Generator) -> Ints:
        self._prepare(eligible)
        return self._line.draw(n, rng)

    def _prepare(self, eligible: Eligible) -> None:
        made_for = (eligible, eligible.index.num_changes)
        if made_for != self._made_for or self._is_outdated(eligible.index):
            self._line, self._made_for = _Line(), made_for
            self._forget()
        self._line.extend(*self._new_items(eligible))


class AttemptSampler(Sampler):
    """A sampler that draws single attempts by weights of their own."""

    def __init__(self) -> None:
        super().__init__()
        self._num_seen = 0

    @abstractmethod
    def weights(self, eligible: Eligible, rows: Ints) -> Floats:
        """How much likelier than another each row is to be drawn; any common factor will do."""

    def _new_items(self, eligible: Eligible) -> tuple[Ints, Floats]:
        num_rows = eligible.index.rows.num
        if self._num_seen == num_rows:
            return np.empty(0, np.int64), np.empty(0)
        rows = eligible.index.eligible_rows(eligible, self._num_seen)
        self._num_seen = num_rows
        return rows, self.weights(eligible, rows)

    def _forget(self) -> None:
        self._num_seen = 0

    def _rows(self, eligible: Eligible, positions: Ints) -> tuple[Ints, int | Ints]:
        return self._line.items(positions), 1


class Uniform(AttemptSampler):
    """Every attempt as often as any other.

    Example: Uniform().sample(index.eligible(version=9, max_lag=4), 64, rng)
    """

    def weights(self, eligible: Eligible, rows: Ints) -> Floats:
        return np.ones(len(rows))


class Recency(AttemptSampler):
    """The newer the likelier: half as likely for every `half_life` versions that the newest token is older.

    Example: Recency(half_life=2.0).sample(index.eligible(version=9, max_lag=4), 64, rng)
    """

    def __init__(self, *, half_life: float) -> None:
        """Raises ValueError unless `half_life`, in versions, is positive and finite."""
        super().__init__()
        if not 0.0 < half_life < float("inf"):
            raise ValueError(f"half_life must be positive and finite, got {half_life}")
        self._half_life = half_life

    def weights(self, eligible: Eligible, rows: Ints) -> Floats:
        ages = eligible.version - eligible.index.rows["newest_version"][rows]
        return np.exp2(np.clip(ages / -self._half_life, -MAX_HALVINGS, 0.0))


class Priority(AttemptSampler):
    """Those first that have most to teach: |advantage|**alpha times a weight of the group's pass rate d.

    That weight is 4 d (1 - d), the variance of passing over its largest value at d = 0.5, and never under
    `DIFFICULTY_FLOOR`. Attempts without an advantage are not drawn as long as there are others. Correct the bias with
    `sample_weighted`.

    Schaul et al., "Prioritized Experience Replay", ICLR 2016 (arXiv:1511.05952), with the advantage in the place of the
    temporal-difference error.

    Example: rows, weights = Priority(alpha=0.6).sample_weighted(eligible, 64, rng, beta=0.4)
    """

    def __init__(self, *, alpha: float) -> None:
        """Raises ValueError for an `alpha` outside 0 (uniform but for difficulty) to 1 (proportional)."""
        super().__init__()
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"alpha must be in 0 to 1, got {alpha}")
        self._alpha = alpha

    def weights(self, eligible: Eligible, rows: Ints) -> Floats:
        advantage, pass_rate = (eligible.index.rows[name][rows] for name in ("advantage", "difficulty"))
        magnitude: Floats = np.abs(advantage) ** self._alpha
        return magnitude * np.maximum(4.0 * pass_rate * (1.0 - pass_rate), DIFFICULTY_FLOOR)


class GroupAware(Sampler):
    """Whole groups, so that each one's baseline stays that of all its members.

    A group is as likely as its attempts are together by another sampler's weights. `n` counts groups; rows come group
    by group. Groups that lost a member or have one past the lag bound are not drawn.

    Example: GroupAware(Uniform()).sample(index.eligible(version=9, max_lag=4), 2, rng)  # 16 rows of two groups of 8
    """

    def __init__(self, by: AttemptSampler) -> None:
        super().__init__()
        self._by = by
        self._num_seen = (0, 0)  # slots and rows

    def _new_items(self, eligible: Eligible) -> tuple[Ints, Floats]:
        index, (slot, row) = eligible.index, self._num_seen
        if row == index.rows.num:
            return np.empty(0, np.int64), np.empty(0)
        self._num_seen = index.slots.num, index.rows.num
        slots = index.eligible_slots(eligible, slot)
        rows = index.eligible_rows(eligible, row)
        owners, num_slots = index.rows["slot"][rows] - slot, index.slots.num - slot
        summed = np.bincount(owners, self._by.weights(eligible, rows), minlength=num_slots)
        return slots, np.asarray(summed[slots - slot], np.float64)

    def _forget(self) -> None:
        self._num_seen = (0, 0)

    def _is_outdated(self, index: ReplayIndex) -> bool:
        """The last group that was seen has a member more."""
        num_slots, num_rows = self._num_seen
        return num_rows < index.rows.num and bool(index.rows["slot"][num_rows] == num_slots - 1)

    def _rows(self, eligible: Eligible, positions: Ints) -> tuple[Ints, int | Ints]:
        slots = self._line.items(positions)
        starts: Ints = eligible.index.slots["start"][slots]
        spans: Ints = eligible.index.slots["span"][slots]
        shifts = np.repeat(starts - (np.cumsum(spans) - spans), spans)
        return shifts + np.arange(len(shifts)), spans


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayMix:
    """How many replayed groups a step gets beside its fresh ones.

    Example: ReplayMix(ratio=0.25, max_uses=2).num_replayed(num_fresh=4, num_fresh_before=8) == 1
    """

    ratio: float  # replayed groups for each fresh one; 0.25 is one for four
    max_uses: int  # how often a group is replayed at most

    def __post_init__(self) -> None:
        if not 0.0 <= self.ratio < float("inf") or self.max_uses < 1:
            raise ValueError(f"ratio must be finite and not negative, max_uses 1 at least: {self}")

    def num_replayed(self, *, num_fresh: int, num_fresh_before: int) -> int:
        """For a step of `num_fresh` groups after `num_fresh_before` in all steps before it.

        The carry is the number of fresh groups so far, which a resumed run knows. After F fresh groups,
        floor(ratio * F) were due, with the ratio as it was written in decimals, so no rounding adds up over a run.
        """
        ratio = Fraction(str(self.ratio))
        return int(ratio * (num_fresh_before + num_fresh)) - int(ratio * num_fresh_before)

    def draw(
        self,
        index: ReplayIndex,
        sampler: GroupAware,
        rng: np.random.Generator,
        *,
        version: PolicyVersion,
        max_lag: int,
        num_fresh: int,
        num_fresh_before: int,
    ) -> Ints:
        """Rows of the groups to replay in this step, group by group; each group once, and its use is counted.

        Fewer groups when fewer can be drawn. What is missing is not made up for later, or a run whose index fills up
        late would get steps of old groups only. The step's own groups belong into the index after this.
        """
        eligible = index.eligible(version, max_lag, max_uses=self.max_uses)
        due = self.num_replayed(num_fresh=num_fresh, num_fresh_before=num_fresh_before)
        rows = sampler.sample(eligible, min(due, sampler.num_drawable(eligible)), rng)
        for group in np.unique(index.values("group", rows)):
            index.mark_used(int(group))
        return rows
