"""Experience replay: an index over finished, measured attempts that can be drawn again.

The index holds no truth of its own. Bodies lie in the journal (`location` says where), and everything here, use counts
included, can be built again from the journal and the manifests by adding the same groups in the same order. It is
columns in numpy arrays that double when they are full, so an attempt costs tens of bytes and its id.

Attempts are added group by group, because an advantage is known only when its group is judged; so a group is a run of
neighbouring rows. Removed rows stay as holes until half of all rows are holes; then the rows are renumbered.

The lag bound has one home: samplers (`flow/replay_samplers.py`) draw from an `Eligible`, which only
`ReplayIndex.eligible(version, max_lag)` makes, so none can draw without one (I3).
"""

import math
import sys
from dataclasses import dataclass
from itertools import compress
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from burnish.types import PolicyVersion

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
ExpireReason = Literal["stale", "partly_stale"]

MIN_HOLES = 1024  # fewer are not worth renumbering for
_COUNTS = ("member", "num_tokens", "num_steps", "oldest_version", "newest_version")  # 32-bit columns
_SHARES = ("reward", "advantage", "difficulty")
_NUMBERS = ("location", *_COUNTS, *_SHARES)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayEntry:
    """One finished, measured attempt. Raises ValueError for a number that is not finite or out of its range.

    Example: ReplayEntry(attempt_id="g000012.3", group=12, member=3, family="add", num_tokens=180, num_steps=2,
        oldest_version=4, newest_version=5, reward=1.0, advantage=0.7, difficulty=0.5, location=88_120)
    """

    attempt_id: str
    group: int  # the group's number in the run
    member: int  # the attempt's place in the group
    family: str
    num_tokens: int  # sampled ones, at least 1
    num_steps: int  # at least 1
    oldest_version: PolicyVersion  # that sampled a token of it
    newest_version: PolicyVersion
    reward: float
    advantage: float  # against the baseline of its whole group
    difficulty: float  # the group's pass rate, 0 to 1
    location: int  # where the body lies; means something only to whoever wrote it

    def __post_init__(self) -> None:
        if not (math.isfinite(self.reward) and math.isfinite(self.advantage) and 0.0 <= self.difficulty <= 1.0):
            raise ValueError(f"{self.attempt_id}: reward and advantage must be finite, difficulty 0 to 1: {self}")
        if not (0 <= self.oldest_version <= self.newest_version < 1 << 31):
            raise ValueError(f"{self.attempt_id}: versions {self.oldest_version} to {self.newest_version}")
        if not (1 <= self.num_tokens < 1 << 31 and 1 <= self.num_steps < 1 << 31 and 0 <= self.member < 1 << 31):
            raise ValueError(f"{self.attempt_id}: a step and a token at least, and 32 bits at most: {self}")
        if not (0 <= self.group < 1 << 63 and 0 <= self.location < 1 << 63):
            raise ValueError(f"{self.attempt_id}: group and location must be 64-bit and not negative: {self}")


class Columns:
    """Named arrays of one length that grow at the end, in amortised constant time for a row.

    Example:
        columns = Columns(item=np.int64, weight=np.float64)
        columns.append(7, 0.5)
        columns["weight"]  # array([0.5]), a view: writes go through, until the next append
    """

    def __init__(self, **dtypes: npt.DTypeLike) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {name: np.zeros(64, dtype) for name, dtype in dtypes.items()}
        self._capacity = 64
        self.num = 0

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.arrays[name][: self.num]

    @property
    def nbytes(self) -> int:
        """Of the memory that is held, rows that are yet to come included."""
        return sum(array.nbytes for array in self.arrays.values())

    def append(self, *values: float) -> None:
        """One row, its values in the order of the columns."""
        num = self.num
        if num == self._capacity:
            self._reserve(num + 1)
        for array, value in zip(self.arrays.values(), values, strict=True):
            array[num] = value
        self.num = num + 1

    def extend(self, **values: npt.NDArray[Any]) -> None:
        """Rows from arrays of one length; every column must be given."""
        end = self.num + len(next(iter(values.values())))
        self._reserve(end)
        for name, array in self.arrays.items():
            array[self.num : end] = values[name]
        self.num = end

    def keep(self, mask: Bools) -> None:
        """Only these rows, in their order, in as little memory as they need."""
        self.arrays = {name: array[: self.num][mask] for name, array in self.arrays.items()}
        self.num = self._capacity = int(mask.sum())

    def _reserve(self, num: int) -> None:
        if num > self._capacity:
            self._capacity = max(64, num, 2 * self._capacity)
            for name, array in self.arrays.items():
                larger = np.zeros(self._capacity, array.dtype)
                larger[: self.num] = array[: self.num]
                self.arrays[name] = larger


class ReplayIndex:
    """Finished attempts as rows, their groups as runs of rows.

    A row number is good until the next `remove_group` or `expire`.

    Example:
        index = ReplayIndex()
        for entry in entries_of_a_judged_group:
            index.add(entry)
        rows = Uniform().sample(index.eligible(version=9, max_lag=4), 64, rng)
        index.values("location", rows)
    """

    def __init__(self, *, allow_partial: bool = True) -> None:
        """`allow_partial`: an attempt stays while its newest token is within the lag bound; its older tokens are then
        context, as in `flow/packing.py`. Without it, an attempt goes as soon as its oldest token is past the bound."""
        counts: dict[str, npt.DTypeLike] = dict.fromkeys(_COUNTS, np.int32)
        shares: dict[str, npt.DTypeLike] = dict.fromkeys(_SHARES, np.float64)
        self.rows = Columns(slot=np.int32, family=np.int32, alive=np.bool_, location=np.int64, **counts, **shares)
        # span: rows, holes included; bound: the version that is past a lag bound first; whole: no member was taken out
        sizes: dict[str, npt.DTypeLike] = dict.fromkeys(("span", "num_alive", "bound", "uses"), np.int32)
        self.slots = Columns(group=np.int64, start=np.int64, **sizes, whole=np.bool_)
        self.num_changes = 0  # to what was there already: it voids what a sampler has prepared
        self._ids: list[str] = []
        self._id_bytes = 0
        self._slot_of: dict[int, int] = {}  # group -> slot
        self._open_group, self._members = -1, set[int]()  # the one that was begun last, and who was added to it
        self._families: list[str] = []
        self._family_of: dict[str, int] = {}
        self._bound_column = "newest_version" if allow_partial else "oldest_version"
        self._num_holes = 0

    @property
    def num_attempts(self) -> int:
        return self.rows.num - self._num_holes

    @property
    def num_groups(self) -> int:
        return len(self._slot_of)

    @property
    def nbytes(self) -> int:
        """Bytes of memory: the columns, the ids, and the tables from a group and a family to their numbers."""
        texts = sys.getsizeof(self._ids) + self._id_bytes + sum(map(sys.getsizeof, self._families))
        tables = sys.getsizeof(self._slot_of) + 2 * sys.getsizeof(1 << 20) * len(self._slot_of)
        return self.rows.nbytes + self.slots.nbytes + texts + tables

    @property
    def nbytes_per_attempt(self) -> float:
        """0.0 for an empty index."""
        return self.nbytes / self.num_attempts if self.num_attempts else 0.0

    def add(self, entry: ReplayEntry) -> None:
        """Adds an attempt, the members of a group one after the other.

        Raises ValueError for a member that is there already, and for one of a group that other groups have followed.
        """
        slot = self._slot_of.get(entry.group)
        if slot is None:
            slot = self._open_slot(entry.group)
        elif entry.group != self._open_group:
            raise ValueError(f"{entry.attempt_id}: group {entry.group} is closed: others were added after it")
        elif entry.member in self._members:
            raise ValueError(f"{entry.attempt_id}: member {entry.member} of group {entry.group} was added already")
        self._members.add(entry.member)
        self.rows.append(
            slot,
            self._family(entry.family),
            True,
            entry.location,
            entry.member,
            entry.num_tokens,
            entry.num_steps,
            entry.oldest_version,
            entry.newest_version,
            entry.reward,
            entry.advantage,
            entry.difficulty,
        )
        self._ids.append(entry.attempt_id)
        self._id_bytes += sys.getsizeof(entry.attempt_id)
        self.slots.arrays["span"][slot] += 1
        self.slots.arrays["num_alive"][slot] += 1
        bound: int = getattr(entry, self._bound_column)
        if bound < self.slots.arrays["bound"][slot]:
            self.slots.arrays["bound"][slot] = bound

    def remove_group(self, group: int) -> int:
        """Takes a group out; how many attempts went, 0 for a group that is not there."""
        slot = self._slot_of.get(group)
        if slot is None:
            return 0
        start = int(self.slots["start"][slot])
        rows = np.arange(start, start + int(self.slots["span"][slot]))
        return self._take_out(rows[self.rows["alive"][rows]])

    def expire(self, min_version: PolicyVersion) -> dict[ExpireReason, int]:
        """Takes out every attempt that has no token left to train when tokens before `min_version` may not be.

        Returns how many went by reason: `stale` when the newest token is too old, and with `allow_partial=False`
        `partly_stale` when only older ones are. A group that loses a member is not drawn as a group any more.
        """
        alive = self.rows["alive"]
        stale = alive & (self.rows["newest_version"] < min_version)
        gone = alive & (self.rows[self._bound_column] < min_version)
        num_stale = int(stale.sum())
        return {"stale": num_stale, "partly_stale": self._take_out(np.flatnonzero(gone)) - num_stale}

    def mark_used(self, group: int, *, times: int = 1) -> None:
        """Counts uses of a group in steps; also how the counts are built again. Raises ValueError for a group that is
        not there and for a negative number."""
        if times < 0:
            raise ValueError(f"times must not be negative, got {times}")
        self.slots["uses"][self._known(group)] += times
        self.num_changes += 1

    def uses(self, group: int) -> int:
        """Raises ValueError for a group that is not there."""
        return int(self.slots["uses"][self._known(group)])

    def eligible(self, version: PolicyVersion, max_lag: int, *, max_uses: int | None = None) -> "Eligible":
        """What a learner at `version` may train on: nothing that is more than `max_lag` versions old, and with
        `max_uses` no group that was used that often. Follows the index as it changes. Raises ValueError for a
        negative bound."""
        if max_lag < 0 or (max_uses is not None and max_uses < 0):
            raise ValueError(f"bounds must not be negative, got max_lag={max_lag}, max_uses={max_uses}")
        return Eligible(index=self, version=version, min_version=version - max_lag, max_uses=max_uses)

    def eligible_rows(self, eligible: "Eligible", start: int = 0) -> Ints:
        """Row numbers from `start` on, ascending; reads all of those rows."""
        mask = self.rows["alive"][start:] & (self.rows[self._bound_column][start:] >= eligible.min_version)
        if eligible.max_uses is not None:
            mask &= (self.slots["uses"] < eligible.max_uses)[self.rows["slot"][start:]]
        return np.flatnonzero(mask) + start

    def eligible_slots(self, eligible: "Eligible", start: int = 0) -> Ints:
        """Slots from `start` on, ascending, of groups that are whole and of which every member is eligible."""
        mask = self.slots["whole"][start:] & (self.slots["bound"][start:] >= eligible.min_version)
        if eligible.max_uses is not None:
            mask &= self.slots["uses"][start:] < eligible.max_uses
        return np.flatnonzero(mask) + start

    def values(self, name: str, rows: Ints) -> npt.NDArray[Any]:
        """Of these rows, a number of their entries by its name, or the `uses` of their groups. Raises ValueError for
        another name."""
        if name not in ("group", "uses", *_NUMBERS):
            raise ValueError(f"there is no column {name!r}, only group, uses, {', '.join(_NUMBERS)}")
        if name in _NUMBERS:
            return np.asarray(self.rows[name][rows])
        return np.asarray(self.slots[name][self.rows["slot"][rows]])

    def entry(self, row: int) -> ReplayEntry:
        """The attempt as it was added. Raises IndexError for a row that is not there."""
        if not (0 <= row < self.rows.num and self.rows["alive"][row]):
            raise IndexError(f"there is no row {row}")
        group = int(self.slots["group"][self.rows["slot"][row]])
        values = {name: self.rows[name][row].item() for name in _NUMBERS}
        family = self._families[self.rows["family"][row]]
        return ReplayEntry(attempt_id=self._ids[row], group=group, family=family, **values)

    def _known(self, group: int) -> int:
        if group not in self._slot_of:
            raise ValueError(f"group {group} is not in the index")
        return self._slot_of[group]

    def _open_slot(self, group: int) -> int:
        bound = np.iinfo(np.int32).max
        self.slots.append(group, self.rows.num, 0, 0, bound, 0, True)
        self._open_group, self._members = group, set()
        self._slot_of[group] = self.slots.num - 1
        return self.slots.num - 1

    def _family(self, name: str) -> int:
        number = self._family_of.setdefault(name, len(self._families))
        if number == len(self._families):
            self._families.append(name)
        return number

    def _take_out(self, rows: Ints) -> int:
        """Makes holes of rows that are there; how many."""
        if len(rows) == 0:
            return 0
        self.num_changes += 1
        self.rows["alive"][rows] = False
        self._num_holes += len(rows)
        slots, counts = np.unique(self.rows["slot"][rows], return_counts=True)
        self.slots["whole"][slots] = False
        self.slots["num_alive"][slots] -= counts.astype(np.int32)
        for slot in slots[self.slots["num_alive"][slots] == 0]:
            del self._slot_of[int(self.slots["group"][slot])]
        if self._num_holes > max(MIN_HOLES, self.rows.num // 2):
            self._renumber()
        return len(rows)

    def _renumber(self) -> None:
        """Closes the holes. The order stays, so a group remains a run of rows."""
        alive, used = self.rows["alive"].copy(), self.slots["num_alive"] > 0
        self._ids = list(compress(self._ids, alive.tolist()))
        self._id_bytes = sum(map(sys.getsizeof, self._ids))
        self.rows.keep(alive)
        self.rows["slot"][:] = (np.cumsum(used) - 1)[self.rows["slot"]]
        self.slots.keep(used)
        self.slots["span"][:] = self.slots["num_alive"]
        self.slots["start"][:] = np.cumsum(self.slots["span"]) - self.slots["span"]
        self._slot_of = {int(group): slot for slot, group in enumerate(self.slots["group"])}
        self._num_holes = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Eligible:
    """The part of an index that may be drawn, by a rule and not a copy: made by `ReplayIndex.eligible`.

    Example: index.eligible(version=9, max_lag=4).min_version == 5
    """

    index: ReplayIndex
    version: PolicyVersion  # of the learner
    min_version: PolicyVersion  # the oldest that may be trained
    max_uses: int | None = None

    @property
    def num_attempts(self) -> int:
        """Reads the whole index."""
        return len(self.index.eligible_rows(self))

    @property
    def num_groups(self) -> int:
        """Groups that are whole and within the bound; reads all groups."""
        return len(self.index.eligible_slots(self))
