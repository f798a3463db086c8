"""Finished groups on their way to becoming a batch; every group that does not is dropped once, with a reason (I8)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from burnish.errors import AttemptError
from burnish.observe.emit import emit
from burnish.types import Group, Measured, PolicyVersion, Trajectory

DropReason = Literal["no_signal", "too_few_measured", "stale", "resume_orphan"]
AdvantageFn = Callable[[Sequence[float]], tuple[float, ...] | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A finished group: either trained with these advantages, or dropped for this reason.

    Example: Judged(group=group, trajectories=(a, b), advantages=(1.0, -1.0))
    """

    group: Group
    trajectories: tuple[Trajectory, ...] = ()  # the measured ones that sampled at least one token
    advantages: tuple[float, ...] = ()  # one per trajectory
    drop: DropReason | None = None


def judge(group: Group, advantage_fn: AdvantageFn) -> Judged:
    """Measured attempts form the baseline; unmeasured ones are absent from everything (I1)."""
    measured = [(a.trajectory, a.outcome.reward) for a in group.attempts if isinstance(a.outcome, Measured)]
    if len(measured) < 2:
        return Judged(group=group, drop="too_few_measured")
    advantages = advantage_fn([reward for _, reward in measured])
    if advantages is None:
        return Judged(group=group, drop="no_signal")
    kept = [(t, a) for (t, _), a in zip(measured, advantages, strict=True) if t.num_output_tokens]
    return Judged(group=group, trajectories=tuple(t for t, _ in kept), advantages=tuple(a for _, a in kept))


@dataclass(frozen=True, kw_only=True, slots=True)
class StepGroups:
    """The finished groups that one optimizer step closes; at least one has a signal."""

    trained: tuple[Judged, ...]
    dropped: tuple[Judged, ...]

    @property
    def num_groups(self) -> int:
        return len(self.trained) + len(self.dropped)


class GroupBuffer:
    """Collects finished groups until a step's worth is there.

    A step closes over `groups_per_step` finished groups and trains those with a signal. Groups without one are not
    replaced: that would double the generation a step costs early in training and leave the engine with small batches.
    Only when none of them has a signal are they dropped on the spot and waited past.
    """

    def __init__(
        self, *, groups_per_step: int, max_lag: int, advantage_fn: AdvantageFn, on_closed: Callable[[Judged], None]
    ) -> None:
        """`on_closed` hears of each group that is dropped outside a step."""
        self._groups_per_step = groups_per_step
        self._max_lag = max_lag
        self._advantage_fn = advantage_fn
        self._on_closed = on_closed
        self._ready: list[Judged] = []
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, group: Group) -> None:
        self._ready.append(judge(group, self._advantage_fn))
        self._arrived.set()

    async def take(self, *, version: PolicyVersion, timeout_s: float) -> StepGroups:
        """The next step's groups for a learner at `version`, oldest first.

        Raises AttemptError when no step's worth arrives in `timeout_s`: starvation ends the run loudly.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    step = self._try_take(version)
                    if step is not None:
                        return step
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise AttemptError(
                f"no {self._groups_per_step} finished groups within {timeout_s:g} s, {len(self._ready)} are ready"
            ) from None

    def _try_take(self, version: PolicyVersion) -> StepGroups | None:
        self._drop_stale(version)
        while len(self._ready) >= self._groups_per_step:
            taken, self._ready = self._ready[: self._groups_per_step], self._ready[self._groups_per_step :]
            trained = tuple(judged for judged in taken if judged.drop is None)
            dropped = tuple(judged for judged in taken if judged.drop is not None)
            if trained:
                return StepGroups(trained=trained, dropped=dropped)
            emit("starved", num_groups=len(dropped), version=version)
            for judged in dropped:
                self._on_closed(judged)
        return None

    def _drop_stale(self, version: PolicyVersion) -> None:
        """A group with one token past the bound goes as a whole: its baseline needs all its members."""
        fresh = []
        for judged in self._ready:
            versions = [t.oldest_version for t in judged.trajectories if t.oldest_version is not None]
            if versions and min(versions) < version - self._max_lag:
                self._on_closed(Judged(group=judged.group, drop="stale"))
            else:
                fresh.append(judged)
        self._ready = fresh
