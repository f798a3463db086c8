"""The order of a task set: every prefix is a small image of the whole."""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from random import Random

from burnish.types import Band, Task


def interleaved(tasks: Sequence[Task]) -> list[Task]:
    """The tasks in an order whose first N, for any N, hold bands and families in nearly the shares of the whole.

    Each place goes to the band that is furthest behind its share, and within it to the family that has had the
    smallest part of its tasks placed; ties are broken by a fixed shuffle, so that a short prefix is not all about the
    topic declared first. Within a family and band the given order stays.
    """
    waiting: dict[Band, dict[str, deque[Task]]] = defaultdict(lambda: defaultdict(deque))
    for task in tasks:
        waiting[task.band][task.family].append(task)
    band_total = Counter(task.band for task in tasks)
    family_total = Counter(task.family for task in tasks)
    band_placed: Counter[Band] = Counter()
    family_placed: Counter[str] = Counter()
    rank = {family: Random(family).random() for family in family_total}
    placed: list[Task] = []
    while len(placed) < len(tasks):
        due = {band: num * (len(placed) + 1) / len(tasks) - band_placed[band] for band, num in band_total.items()}
        band = max(due, key=due.__getitem__)  # the dues add up to 1, so that this band is behind and has tasks left
        families = waiting[band]
        family = min(families, key=lambda name: (family_placed[name] / family_total[name], rank[name]))
        placed.append(families[family].popleft())
        if not families[family]:
            del families[family]
        band_placed[band] += 1
        family_placed[family] += 1
    return placed
