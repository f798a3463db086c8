"""More generators of random arguments: dicts, tuples, grids, sets and flags, on top of `inputs`."""

from collections.abc import Callable
from random import Random

from burnish.tasks.builtin.inputs import T, one_of, whole

KEYS = ("a", "b", "c", "ab", "key", "egg", "tea", "x")


def key() -> Callable[[Random], str]:
    """One of a few short keys, so that a look-up in a `table` often hits and often misses."""
    return one_of(*KEYS)


def flag() -> Callable[[Random], bool]:
    """True or False, evenly."""
    return one_of(False, True)


def table(
    low: int = 0, high: int = 6, value: Callable[[Random], int] = whole(-20, 20)
) -> Callable[[Random], dict[str, int]]:
    """A dict of `low` to `high` keys with numbers as values."""
    return lambda rng: {name: value(rng) for name in rng.sample(KEYS, rng.randint(low, high))}


def one_to_one(size: int) -> Callable[[Random], dict[str, int]]:
    """A dict of `size` keys in which no two values are equal."""
    return lambda rng: dict(zip(rng.sample(KEYS, size), rng.sample(range(-20, 21), size), strict=True))


def number_set(low: int = 0, high: int = 6) -> Callable[[Random], set[int]]:
    """A set of `low` to `high` small whole numbers."""
    return lambda rng: set(rng.sample(range(10), rng.randint(low, high)))


def tupled(*items: Callable[[Random], T]) -> Callable[[Random], tuple[T, ...]]:
    """A tuple with one item per generator."""
    return lambda rng: tuple(item(rng) for item in items)


def grid(low: int = 1, high: int = 4) -> Callable[[Random], list[list[int]]]:
    """A list of rows of equal length; rows and columns number `low` to `high`."""

    def make(rng: Random) -> list[list[int]]:
        num_rows, num_columns = rng.randint(low, high), rng.randint(low, high)
        return [[rng.randint(-9, 9) for _ in range(num_columns)] for _ in range(num_rows)]

    return make
