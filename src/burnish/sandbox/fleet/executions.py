"""Commands that run once however often they are asked for, because whoever asks names the execution.

Results are kept for those whose answer was lost: the last `MAX_RESULTS` of a sandbox, with `MAX_KEPT_BYTES` of output
together. Names are kept longer than results, since a command whose result is gone must not run again either;
`MAX_IDS` of them, after which a sandbox takes no new one.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from burnish.errors import BoundaryError, SandboxError, UserError
from burnish.sandbox.base import ExecResult

MAX_RESULTS = 256
MAX_KEPT_BYTES = 8 << 20
MAX_IDS = 10_000
MAX_ID_CHARS = 200


class ExecutionLost(SandboxError):
    """An execution was begun, and what became of it is not known, or no more. It is not run a second time."""


@dataclass(kw_only=True, slots=True)
class _Execution:
    """One that was begun. `task` runs it; afterwards `result`, or neither when that is lost."""

    digest: bytes  # of what was asked for
    task: "asyncio.Task[ExecResult] | None" = None
    result: ExecResult | None = None
    why_lost: str = ""


@dataclass(slots=True)
class Executions:
    """The executions of one sandbox by id."""

    sandbox: str
    _by_id: dict[str, _Execution] = field(default_factory=dict)
    _kept: dict[str, int] = field(default_factory=dict)  # id -> bytes of its result, oldest first

    def __contains__(self, id: str) -> bool:
        return id in self._by_id

    async def run(self, id: str, request: Mapping[str, Any], run: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        """Runs it, or waits for it, or answers what it answered. A caller that is cancelled does not end it.

        Raises ExecutionLost, UserError for an id that stands for another request, and what `run` raises when nothing
        was begun.
        """
        execution = self._by_id.get(id)
        digest = _digest(request)
        if execution is None:
            execution = self._begin(id, digest, run)
        elif execution.digest != digest:
            raise UserError("it stands for another command", where=f"execution id {id!r}", fix="use a new id")
        if execution.task is not None:
            return await asyncio.shield(execution.task)
        if execution.result is None:
            raise ExecutionLost(f"sandbox {self.sandbox}: execution {id!r}: {execution.why_lost}")
        return execution.result

    async def cancel(self) -> None:
        """What still runs is given up: the sandbox is gone."""
        tasks = [execution.task for execution in self._by_id.values() if execution.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, id: str, digest: bytes, run: Callable[[], Awaitable[ExecResult]]) -> _Execution:
        if not 0 < len(id) <= MAX_ID_CHARS:
            raise UserError(f"{len(id)} characters", where="execution id", fix=f"use 1 to {MAX_ID_CHARS}")
        if len(self._by_id) >= MAX_IDS:
            raise SandboxError(f"sandbox {self.sandbox}: it has had {MAX_IDS} execution ids; use a fresh sandbox")
        execution = self._by_id[id] = _Execution(digest=digest)
        execution.task = asyncio.create_task(self._follow(id, execution, run), name="sandbox:execution")
        execution.task.add_done_callback(_look_at)
        return execution

    async def _follow(self, id: str, execution: _Execution, run: Callable[[], Awaitable[ExecResult]]) -> ExecResult:
        try:
            result = execution.result = await run()
        except UserError:  # refused before anything was begun
            del self._by_id[id]
            raise
        except (Exception, asyncio.CancelledError) as error:
            cause = error.cause if isinstance(error, BoundaryError) else type(error).__name__
            execution.why_lost = f"what became of it is not known: {cause}"
            evidence = error.evidence if isinstance(error, BoundaryError) else repr(error)
            raise ExecutionLost(
                f"sandbox {self.sandbox}: execution {id!r}: {execution.why_lost}", evidence=evidence
            ) from error
        finally:
            execution.task = None
        self._keep(id, result)
        return result

    def _keep(self, id: str, result: ExecResult) -> None:
        """Lets the oldest results go until the rest is within the bounds."""
        self._kept[id] = len(result.stdout) + len(result.stderr)
        while len(self._kept) > MAX_RESULTS or sum(self._kept.values()) > MAX_KEPT_BYTES:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._by_id[oldest].result = None
            self._by_id[oldest].why_lost = "it ended, and its result is no longer kept"


def _digest(request: Mapping[str, Any]) -> bytes:
    """Of a request whose values are JSON, bytes, or absent."""
    plain = json.dumps(request, sort_keys=True, default=lambda data: hashlib.sha256(data).hexdigest())
    return hashlib.sha256(plain.encode(errors="surrogatepass")).digest()


def _look_at(task: "asyncio.Task[ExecResult]") -> None:
    """Its error was told to whoever waited; nobody need."""
    if not task.cancelled():
        task.exception()
