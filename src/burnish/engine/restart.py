"""An engine that comes back after its process died."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from burnish.engine.base import Engine, EngineStats
from burnish.errors import EngineError
from burnish.observe.emit import emit
from burnish.types import Completion, PolicyVersion, Sampling

StartFn = Callable[[Path, PolicyVersion], Awaitable[Engine]]


class RestartingEngine:
    """Starts the engine again with the newest weights when it died.

    Requests that were running fail with EngineError: whoever asked decides whether to try again. The first request
    after a death waits for the restart. More than `max_restarts` deaths without one answered request in between are not
    bad luck any more and stay errors.
    """

    def __init__(
        self, engine: Engine, start: StartFn, *, path: Path, version: PolicyVersion, max_restarts: int
    ) -> None:
        self._engine, self._start = engine, start
        self._path, self._version = path, version
        self._max_restarts = self._restarts_left = max_restarts
        self._given_up: EngineError | None = None
        self._lock = asyncio.Lock()

    @classmethod
    async def start(
        cls, start: StartFn, *, path: Path, version: PolicyVersion, max_restarts: int = 3
    ) -> "RestartingEngine":
        return cls(await start(path, version), start, path=path, version=version, max_restarts=max_restarts)

    @property
    def death(self) -> EngineError | None:
        """Set when the last of the allowed restarts is used up."""
        return self._given_up

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, /) -> Completion:
        engine = await self._alive()
        completion = await engine.generate(prompt_ids, sampling)
        self._restarts_left = self._max_restarts
        return completion

    async def update_weights(self, path: Path, version: PolicyVersion, /) -> None:
        """A restart that happens from now on uses these weights."""
        self._path, self._version = path, version
        engine = await self._alive()  # a restart already loads them
        await engine.update_weights(path, version)

    async def stats(self) -> EngineStats:
        """Of the engine that lives now; does not bring one back."""
        return await self._engine.stats()

    async def kill(self, cause: str, /) -> None:
        """The engine that lives now; the next request starts another one."""
        await self._engine.kill(cause)

    async def close(self) -> None:
        await self._engine.close()

    async def _alive(self) -> Engine:
        async with self._lock:
            death = self._engine.death
            if death is None:
                return self._engine
            if self._restarts_left == 0:
                raise EngineError(
                    f"{death.cause}; the last of the allowed restarts is used up", evidence=death.evidence
                )
            self._restarts_left -= 1
            emit("engine.restart", cause=death.cause, version=self._version)
            await self._engine.close()
            self._engine = await self._start(self._path, self._version)
            return self._engine
