"""How far an attempt has come: what survives a failed try and, through the journal, the death of the process."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from burnish.sandbox.base import SandboxBackend, SandboxBox, Snapshot, SnapshotStore
from burnish.types import Completion, Limits, PolicyVersion, Step

SAVE_SHARE = 0.1
"""Saving sandboxes takes at most this share of an attempt's time; a sandbox too large for that is saved less often."""

OnStep = Callable[[int, Step], None]
"""Hears of each finished step, with its number."""


class Progress:
    """The steps of one attempt so far, across its tries."""

    def __init__(
        self, steps: Sequence[Step] = (), *, version: PolicyVersion = 0, on_step: OnStep | None = None
    ) -> None:
        """`steps`: what an earlier life of the run left; `version`: of the weights that the engine has now."""
        self.steps = list(steps)
        self._version = version
        self._on_step = on_step
        self._turn: asyncio.Future[Completion] | None = None
        self._turn_version = version  # the oldest that the turn under way may carry
        self._recut = False
        self._sampled: tuple[int, Completion] | None = None  # of which turn; not acted upon yet

    def add(self, step: Step) -> None:
        self.steps.append(step)
        if self._on_step is not None:
            self._on_step(len(self.steps) - 1, step)

    def fall_back(self) -> Step | None:
        """Forgets the steps after the last one whose sandbox was saved; that step, or None to begin anew."""
        while self.steps and self.steps[-1].snapshot is None:
            self.steps.pop()
        return self.steps[-1] if self.steps else None

    async def generate(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        """The next turn's tokens. Asked for anew when `published` recuts the turn; those of a try whose sandbox died
        before it had acted are used again."""
        turn = len(self.steps)
        if self._sampled is None or self._sampled[0] != turn:
            self._sampled = (turn, await self._ask(ask))
        return self._sampled[1]

    def forget_turn(self) -> None:
        """The tokens sampled last are not used; `generate` asks again."""
        self._sampled = None

    async def _ask(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        while True:
            self._turn_version, self._recut = self._version, False
            self._turn = turn = asyncio.ensure_future(ask())
            try:
                return await turn
            except asyncio.CancelledError:
                if not self._recut or not turn.cancelled():
                    raise
            finally:
                turn.cancel()
                self._turn = None

    def published(self, version: PolicyVersion, *, oldest: PolicyVersion | None = None) -> bool:
        """New weights are in the engine. A turn that was begun before `oldest` is sampled again; whether one was."""
        self._version = version
        if oldest is None or self._turn is None or self._turn.done() or self._turn_version >= oldest:
            return False
        self._recut = True
        return self._turn.cancel()


class SandboxKeeper(Protocol):
    """Saves sandboxes where a crash of everything else does not reach them."""

    async def save(self, box: SandboxBox, attempt_id: str) -> str:
        """A name to `open` it by. Raises SandboxError."""
        ...

    async def open(self, name: str, attempt_id: str, limits: Limits) -> Snapshot:
        """Raises SandboxError, and UserError when it is gone."""
        ...

    async def forget(self, attempt_id: str) -> None:
        """Removes all that was saved for an attempt."""
        ...


class SnapshotKeeper:
    """Saves sandboxes of backends that export snapshots, under a prefix of each attempt's own."""

    def __init__(
        self,
        backend: SandboxBackend,
        store_of: Callable[[str], SnapshotStore],
        forget: Callable[[str], Awaitable[None]],
    ) -> None:
        """`store_of`: an attempt's store; `forget`: removes one."""
        self._backend, self._store_of, self._forget = backend, store_of, forget

    async def save(self, box: SandboxBox, attempt_id: str) -> str:
        snapshot = await box.snapshot()
        try:
            return await self._backend.export_snapshot(snapshot, self._store_of(attempt_id))
        finally:
            await snapshot.release()

    async def open(self, name: str, attempt_id: str, limits: Limits) -> Snapshot:
        return await self._backend.import_snapshot(name, self._store_of(attempt_id), disk_bytes=limits.disk_bytes)

    async def forget(self, attempt_id: str) -> None:
        await self._forget(attempt_id)


class Saves:
    """When the sandbox of one attempt is saved, and the saving."""

    def __init__(self, keeper: SandboxKeeper | None, attempt_id: str) -> None:
        self._keeper, self._id = keeper, attempt_id
        self._last_end = time.monotonic()
        self._cost_s = 0.0

    async def save(self, box: SandboxBox) -> str | None:
        """The name of what was saved; None where nothing can be saved, or it is not time yet. Raises SandboxError."""
        began = time.monotonic()
        if self._keeper is None or (began - self._last_end) * SAVE_SHARE < self._cost_s:
            return None
        name = await self._keeper.save(box, self._id)
        self._last_end = time.monotonic()
        self._cost_s = self._last_end - began
        return name

    @contextlib.asynccontextmanager
    async def opened(self, step: Step | None, limits: Limits) -> AsyncIterator[Snapshot | None]:
        """The snapshot that an attempt goes on from; None for a fresh sandbox."""
        if step is None or step.snapshot is None or self._keeper is None:
            yield None
            return
        snapshot = await self._keeper.open(step.snapshot, self._id, limits)
        try:
            yield snapshot
        finally:
            await snapshot.release()
