"""Finished groups on their way to becoming a batch; every group that does not is dropped once, with a reason (I8)."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from burnish.errors import AttemptError
from burnish.observe.emit import emit
from burnish.types import Group, Measured, PolicyVersion, Trajectory

DropReason = Literal["no_signal", "too_few_measured", "short", "stale", "quarantined", "run_ended"]
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


def judge(group: Group, advantage_fn: AdvantageFn, *, num_needed: int = 2) -> Judged:
    """Measured attempts form the baseline; unmeasured ones are absent from everything (I1).

    `num_needed`: with fewer measured attempts the group is dropped.
    """
    measured = [(a.trajectory, a.outcome.reward) for a in group.attempts if isinstance(a.outcome, Measured)]
    if not group.attempts:
        return Judged(group=group, drop="quarantined")
    if len(measured) < 2:
        return Judged(group=group, drop="too_few_measured")
    if len(measured) < num_needed:
        return Judged(group=group, drop="short")
    advantages = advantage_fn([reward for _, reward in measured])
    if advantages is None:
        return Judged(group=group, drop="no_signal")
    kept = [(t, a) for (t, _), a in zip(measured, advantages, strict=True) if t.num_output_tokens]
    if not kept:
        return Judged(group=group, drop="no_signal")
    return Judged(group=group, trajectories=tuple(t for t, _ in kept), advantages=tuple(a for _, a in kept))


def num_fresh_tokens(trajectory: Trajectory, oldest: PolicyVersion) -> int:
    """Sampled tokens that versions from `oldest` on have sampled; only those are trained (I3)."""
    return sum(version >= oldest for step in trajectory.steps for version in step.versions)


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
        self,
        *,
        groups_per_step: int,
        max_lag: int,
        advantage_fn: AdvantageFn,
        on_closed: Callable[[Judged], None],
        num_needed: int = 2,
        max_step_tokens: int | None = None,
    ) -> None:
        """`on_closed` hears of each group that is dropped outside a step. `num_needed`: see `judge`.

        `max_step_tokens`: a step is full with fewer groups when another one's sampled tokens would not fit; a single
        group is never too large.
        """
        self._groups_per_step = groups_per_step
        self._max_lag = max_lag
        self._advantage_fn = advantage_fn
        self._on_closed = on_closed
        self._num_needed, self._max_step_tokens = num_needed, max_step_tokens
        self._ready: list[Judged] = []
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, group: Group) -> None:
        judged = judge(group, self._advantage_fn, num_needed=self._num_needed)
        if judged.drop == "quarantined":
            self._on_closed(judged)  # nothing was attempted, so it fills no place of a step
            return
        self._ready.append(judged)
        self._arrived.set()

    def take_rest(self) -> list[Judged]:
        """Everything that is left, for a run that ends."""
        rest, self._ready = self._ready, []
        return rest

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
        while (num := self._num_of_step()) is not None:
            taken, self._ready = self._ready[:num], self._ready[num:]
            trained = tuple(judged for judged in taken if judged.drop is None)
            dropped = tuple(judged for judged in taken if judged.drop is not None)
            if trained:
                return StepGroups(trained=trained, dropped=dropped)
            emit("starved", num_groups=len(dropped), version=version)
            for judged in dropped:
                self._on_closed(judged)
        return None

    def _num_of_step(self) -> int | None:
        """How many of the oldest groups make a step; None while it is not full."""
        budget = math.inf if self._max_step_tokens is None else self._max_step_tokens
        for num, judged in enumerate(self._ready[: self._groups_per_step]):
            budget -= sum(t.num_output_tokens for t in judged.trajectories)
            if budget < 0:
                return max(1, num)
        return self._groups_per_step if len(self._ready) >= self._groups_per_step else None

    def _drop_stale(self, version: PolicyVersion) -> None:
        """Groups of which no token is within the lag bound any more. One with fresh tokens stays whole: its rewards
        form the baseline, and its older tokens become context."""
        fresh = []
        for judged in self._ready:
            newest = [v for t in judged.trajectories for step in t.steps for v in step.versions]
            if newest and max(newest) < version - self._max_lag:
                self._on_closed(Judged(group=judged.group, drop="stale"))
            else:
                fresh.append(judged)
        self._ready = fresh
