"""The engine under watch: its load for the live view, and what is done when it stands still.

An engine that has requests and samples no token for `stall_timeout_s`, or does not even answer how it is, hangs: a
driver, a lock, a stopped process. It is killed with that cause; the requests fail as those of a dead engine do, and
whoever needs it next starts it again with the newest weights.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict

from burnish.engine.base import Engine, EngineStats
from burnish.errors import EngineError
from burnish.observe.emit import emit

_INTERVAL_S = 2.0


class EngineWatch:
    """Asks an engine how it is, every two seconds."""

    def __init__(
        self,
        engine: Engine,
        *,
        stall_timeout_s: float,
        on_stats: Callable[[EngineStats], None] | None = None,
        interval_s: float = _INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._on_stats = engine, on_stats
        self._stall_timeout_s, self._interval_s, self._clock = stall_timeout_s, interval_s, clock
        self._last: EngineStats | None = None
        self._asked_at = self._moved_at = clock()

    async def run(self) -> None:
        """Until cancelled. Waits for the clock."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.look()

    async def look(self) -> None:
        """One look. A dead engine is reported by those who needed it."""
        try:
            async with asyncio.timeout(self._stall_timeout_s):
                stats = await self._engine.stats()
        except EngineError:
            self._last = None
            self._moved_at = self._clock()
            return
        except TimeoutError:
            await self._kill(f"does not answer for {self._stall_timeout_s:g} s")
            return
        now = self._clock()
        self._tell(stats, now)
        if self._on_stats is not None:
            self._on_stats(stats)
        has_sampled = self._last is None or stats.num_generated_tokens != self._last.num_generated_tokens
        if has_sampled or not stats.running + stats.waiting:
            self._moved_at = now
        self._last, self._asked_at = stats, now
        if now - self._moved_at >= self._stall_timeout_s:
            await self._kill(f"{stats.running + stats.waiting} requests and no token for {self._stall_timeout_s:g} s")

    async def _kill(self, cause: str) -> None:
        emit("watchdog", watched="engine", cause=cause, action="kill")
        self._last, self._moved_at = None, self._clock()
        await self._engine.kill(cause)

    def _tell(self, stats: EngineStats, now: float) -> None:
        before = self._last.num_generated_tokens if self._last else stats.num_generated_tokens
        rate = max(0, stats.num_generated_tokens - before) / max(1e-9, now - self._asked_at)
        emit("engine.stats", **asdict(stats), tokens_per_s=rate)
