"""Generators of random arguments for the built-in families: each maker returns a function of a `Random`.

Only `randint`, `choice` and `sample` are used, so that a task's cases are the same under every Python version.

Example:
    >>> from random import Random
    >>> listed(whole(0, 9), 2, 4)(Random("x")) == listed(whole(0, 9), 2, 4)(Random("x"))
    True
"""

from collections.abc import Callable
from random import Random
from typing import TypeVar

T = TypeVar("T")
LOWER = "abcdefghijklmnopqrstuvwxyz"
MIXED = "abcdeiouABCDEXYZ 0123456789.,!-"
WORDS = (
    "apple", "Bob", "level", "river", "a", "code", "Moon", "python", "noon", "tree", "Ada", "banana", "sky", "hello",
    "ZOO", "eve", "garden", "it", "kayak", "letter", "Ann", "street", "up", "world",
)  # fmt: skip


def whole(low: int, high: int) -> Callable[[Random], int]:
    """A whole number, both ends included."""
    return lambda rng: rng.randint(low, high)


def quarters(low: int, high: int) -> Callable[[Random], float]:
    """A float that is a multiple of 0.25, so that sums and halves of it are exact whatever the order."""
    return lambda rng: rng.randint(4 * low, 4 * high) / 4


def one_of(*values: T) -> Callable[[Random], T]:
    """One of the given values."""
    return lambda rng: rng.choice(values)


def text(low: int = 0, high: int = 12, alphabet: str = MIXED) -> Callable[[Random], str]:
    """A string of `low` to `high` characters of the alphabet."""
    return lambda rng: "".join(rng.choice(alphabet) for _ in range(rng.randint(low, high)))


def word() -> Callable[[Random], str]:
    """One of `WORDS`: short and long, palindromes, some with capitals."""
    return one_of(*WORDS)


def sentence(low: int = 0, high: int = 5) -> Callable[[Random], str]:
    """Words with one space between them."""
    return lambda rng: " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def listed(item: Callable[[Random], T], low: int = 0, high: int = 7) -> Callable[[Random], list[T]]:
    """A list of `low` to `high` items."""
    return lambda rng: [item(rng) for _ in range(rng.randint(low, high))]


def distinct(low: int, high: int, count: int) -> Callable[[Random], list[int]]:
    """A list of `count` different whole numbers between the ends."""
    return lambda rng: rng.sample(range(low, high + 1), count)
