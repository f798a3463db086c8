"""What is attempted next: an endless, reproducible order of groups over a fixed list of tasks."""

from collections.abc import Collection
from functools import lru_cache
from random import Random


class TaskSource:
    """Issues group indices 0, 1, 2, ... and says which task each one is about.

    The order is a pure function of the seed: epoch e is the permutation drawn by `Random(f"{seed}/{e}")`. So the whole
    state is the set of indices that are already closed (trained or dropped), and after a crash the open ones are
    issued again: no prompt is skipped and none repeated (I2).

    Example: TaskSource(3, seed=0, closed={0, 1}).next_index() == 2
    """

    def __init__(self, num_tasks: int, *, seed: int, closed: Collection[int] = ()) -> None:
        if num_tasks < 1:
            raise ValueError(f"num_tasks must be at least 1, got {num_tasks}")
        self._num_tasks = num_tasks
        self._seed = seed
        self._closed = frozenset(closed)
        self._cursor = 0

    def next_index(self) -> int:
        """The smallest index that is neither closed nor issued yet."""
        while self._cursor in self._closed:
            self._cursor += 1
        self._cursor += 1
        return self._cursor - 1

    def task_number(self, index: int) -> int:
        """Which task group `index` is about, in [0, num_tasks)."""
        epoch, place = divmod(index, self._num_tasks)
        return _permutation(self._num_tasks, f"{self._seed}/{epoch}")[place]


def group_id(index: int) -> str:
    """Example: group_id(12) == "g000012"."""
    return f"g{index:06d}"


def group_index(id: str) -> int:
    """The inverse of `group_id`."""
    return int(id.removeprefix("g"))


@lru_cache(maxsize=4)
def _permutation(num: int, seed: str) -> tuple[int, ...]:
    order = list(range(num))
    Random(seed).shuffle(order)
    return tuple(order)
