"""Replay entries with one word, for the tests of the index and its samplers."""

from collections.abc import Sequence
from typing import Any

from burnish.flow.replay import Eligible, ReplayEntry, ReplayIndex
from burnish.flow.replay_samplers import GroupAware, Priority, Recency, Sampler, Uniform

ANY_LAG = 1 << 30


def entry(group: int = 0, member: int = 0, **changes: Any) -> ReplayEntry:
    values: dict[str, Any] = {
        "attempt_id": f"g{group:06d}.{member}",
        "group": group,
        "member": member,
        "family": "add",
        "num_tokens": 10,
        "num_steps": 1,
        "oldest_version": 0,
        "newest_version": 0,
        "reward": 1.0,
        "advantage": 1.0,
        "difficulty": 0.5,
        "location": 100 * group + member,
    }
    return ReplayEntry(**{**values, **changes})


def index_of(entries: Sequence[ReplayEntry], *, allow_partial: bool = True) -> ReplayIndex:
    index = ReplayIndex(allow_partial=allow_partial)
    for each in entries:
        index.add(each)
    return index


def with_advantages(*advantages: float) -> ReplayIndex:
    return index_of([entry(group, advantage=advantage) for group, advantage in enumerate(advantages)])


def everything(index: ReplayIndex, *, version: int = 0) -> Eligible:
    return index.eligible(version, ANY_LAG)


def samplers() -> dict[str, Sampler]:
    return {
        "uniform": Uniform(),
        "recency": Recency(half_life=2.0),
        "priority": Priority(alpha=0.7),
        "groups": GroupAware(Uniform()),
        "groups by priority": GroupAware(Priority(alpha=1.0)),
    }
