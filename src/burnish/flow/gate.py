"""The lag bound as a number of slots.

A group holds a slot from its dispatch until the step that closes it has been published to the engine. With
`groups_per_step * (max_lag + 1)` slots, a group dispatched now is at most `max_lag` steps behind when its turn comes,
as long as groups finish in the order in which they began. One that takes longer than that is overdue: its first tokens
are past the bound already and will not be trained, so it gives its slot back and goes on beside the others; when it has
finished it waits for its turn like all of them and holds a slot again. So a group that takes an hour holds up nobody.
At lag 0 nothing is ever overdue, and this is synchronous RL: a step's groups must all be closed and published before
the next one is dispatched.
"""

import asyncio

from burnish.types import PolicyVersion


class LagGate:
    """Slots for groups between dispatch and publish."""

    def __init__(self, *, groups_per_step: int, max_lag: int, version: PolicyVersion = 0) -> None:
        self.num_slots = groups_per_step * (max_lag + 1)
        self._max_lag = max_lag
        self._version = version
        self._running: dict[int, PolicyVersion] = {}  # group -> the version it began with
        self._waiting: set[int] = set()  # finished groups
        self._overdue: set[int] = set()
        self._freed = asyncio.Event()

    @property
    def num_held(self) -> int:
        return len(self._running) + len(self._waiting)

    @property
    def num_overdue(self) -> int:
        """Groups that go on without a slot."""
        return len(self._overdue)

    async def wait(self) -> None:
        """Waits for a free slot. Woken by `release` and `published`; the deadline on finished groups bounds it."""
        while self.num_held >= self.num_slots:
            self._freed.clear()
            await self._freed.wait()

    def hold(self, group: int) -> None:
        """Takes the slot that `wait` waited for. Raises ValueError for a group that has one."""
        if group in self._running or group in self._waiting or group in self._overdue:
            raise ValueError(f"group {group} was dispatched already")
        self._running[group] = self._version

    def finished(self, group: int) -> None:
        """A group waits for its step from now on. Raises ValueError for one that is not running."""
        if group not in self._running and group not in self._overdue:
            raise ValueError(f"group {group} is not running")
        self._running.pop(group, None)
        self._overdue.discard(group)
        self._waiting.add(group)

    def release(self, groups: list[int]) -> None:
        """These groups are closed. Raises ValueError for one that has not finished."""
        for group in groups:
            if group not in self._waiting:
                raise ValueError(f"group {group} was closed, but had not finished")
            self._waiting.discard(group)
        self._freed.set()

    def published(self, version: PolicyVersion) -> None:
        """The engine has new weights; groups that began more than `max_lag` versions ago are overdue."""
        self._version = version
        for group, began in list(self._running.items()):
            if began < version - self._max_lag:
                del self._running[group]
                self._overdue.add(group)
        self._freed.set()
