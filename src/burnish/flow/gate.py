"""The lag bound as a number of slots.

A group holds a slot from its dispatch until the step that closes it has been published to the engine. With
`groups_per_step * (max_lag + 1)` slots, a group dispatched now is at most `max_lag` steps behind when its turn comes,
as long as groups finish in the order they began; one that is overtaken is caught at batching, per token. At lag 0 this
is synchronous RL: a step's groups must all be closed and published before the next one is dispatched.
"""

import asyncio


class LagGate:
    """Slots for groups between dispatch and publish."""

    def __init__(self, *, groups_per_step: int, max_lag: int) -> None:
        self.num_slots = groups_per_step * (max_lag + 1)
        self._held = 0
        self._freed = asyncio.Event()

    @property
    def num_held(self) -> int:
        return self._held

    async def acquire(self) -> None:
        """Waits for a free slot. Woken by `release`; the run's own deadline on finished groups bounds the wait."""
        while self._held >= self.num_slots:
            self._freed.clear()
            await self._freed.wait()
        self._held += 1

    def release(self, num: int) -> None:
        """Raises ValueError when more slots are given back than are held."""
        if not 0 <= num <= self._held:
            raise ValueError(f"{num} slots given back, {self._held} held")
        self._held -= num
        self._freed.set()
