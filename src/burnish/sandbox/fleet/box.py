"""A sandbox of a fleet: every use is held against its lease, commands may have a name."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from burnish.errors import SandboxError
from burnish.observe.emit import emit
from burnish.sandbox.base import ExecResult, Language, SandboxBox, Snapshot, code_bytes
from burnish.sandbox.fleet.executions import Executions
from burnish.sandbox.fleet.lease import Lease
from burnish.sandbox.network import NetworkPolicy
from burnish.types import Limits


class Owner(Protocol):
    """What a sandbox asks of its fleet."""

    async def fork(self, parent: "FleetBox", inner: SandboxBox, n: int) -> "list[FleetBox]":
        """See `SandboxBox.fork`."""
        ...

    def forget(self, box: "FleetBox") -> None:
        """It has ended."""
        ...

    def watch(self, box: "FleetBox") -> None:
        """Its lease is another one now."""
        ...


class FleetBox:
    """See `SandboxBox`. Raises SandboxError once its lease has ended; the message names the clock."""

    def __init__(self, inner: SandboxBox, owner: Owner, lease: Lease, *, origin: str, trajectory: str | None) -> None:
        self._inner, self._owner = inner, owner
        self.lease = lease
        self.origin, self.trajectory = origin, trajectory
        self.created = time.time()
        self.alarm: asyncio.TimerHandle | None = None  # the fleet's, for the lease
        self._ended = ""  # why the lease has
        self._executions = Executions(inner.id)
        self._commands = FleetCommands(self, inner, self._executions)
        self._files = FleetFiles(self, inner)

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def limits(self) -> Limits:
        return self._inner.limits

    @property
    def commands(self) -> "FleetCommands":
        return self._commands

    @property
    def files(self) -> "FleetFiles":
        return self._files

    def renew(self, ttl_s: float | None = None) -> None:
        """Both clocks of the lease begin anew, its life with another length if one is given.

        Raises SandboxError when the lease has ended.
        """
        self.check_lease()
        self.lease.renew(ttl_s)
        self._owner.watch(self)

    async def kill(self) -> None:
        """See `SandboxBox.kill`."""
        try:
            await self._inner.kill()
        finally:
            await self.let_go()

    async def let_go(self) -> None:
        """It is gone, or goes with its backend. Idempotent."""
        self._owner.forget(self)
        await self._executions.cancel()

    async def snapshot(self) -> Snapshot:
        """See `SandboxBox.snapshot`."""
        with self.use():
            return await self._inner.snapshot()

    async def fork(self, n: int = 1) -> "list[FleetBox]":
        """See `SandboxBox.fork`. Waits for places like a creation."""
        with self.use():
            return await self._owner.fork(self, self._inner, n)

    def set_network(self, policy: NetworkPolicy) -> None:
        """See `SandboxBox.set_network`."""
        with self.use():
            self._inner.set_network(policy)

    async def restore(self, snapshot: Snapshot, /) -> None:
        """See `SandboxBox.restore`."""
        with self.use():
            await self._inner.restore(snapshot)

    async def __aenter__(self) -> "FleetBox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()

    @contextmanager
    def use(self) -> Iterator[None]:
        """Something is done with it: not idle meanwhile. Raises SandboxError when the lease has ended, or ends now."""
        self.check_lease()
        with self.lease.use():
            try:
                yield
            except SandboxError as error:
                if self._ended:
                    raise SandboxError(self._ended, evidence=str(error)) from error
                raise

    def check_lease(self) -> None:
        """Raises SandboxError when it has ended, also when the fleet has not come to it yet."""
        if self.lease.expired():
            self.end_lease()
        if self._ended:
            raise SandboxError(self._ended)

    def end_lease(self) -> None:
        """Notes and tells that a clock ran out. Idempotent; does nothing when none has."""
        clock = self.lease.expired()
        if clock is not None and not self._ended:
            limit_s = self.lease.limits[clock]
            self._ended = f"sandbox {self.id}: its lease has ended: {clock} of {limit_s:g} s"
            emit("sandbox.expire", id=self.id, clock=clock, limit_s=limit_s)


class FleetCommands:
    """See `Commands`."""

    def __init__(self, box: FleetBox, inner: SandboxBox, executions: Executions) -> None:
        self._box, self._inner, self._executions = box, inner, executions

    async def run(
        self,
        cmd: str | Sequence[str],
        /,
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        execution_id: str | None = None,
    ) -> ExecResult:
        """See `Commands.run`. A command with an `execution_id` runs once, however often it is asked for.

        The second call waits for the first one's end and gets its result, also when whoever made the first call was
        cancelled; that does not end the command. The results of one sandbox are kept as `fleet.executions` says.

        Raises ExecutionLost when it was begun and its result is not known, UserError when the id stands for another
        command.
        """

        async def run() -> ExecResult:
            with self._box.use():
                return await self._inner.commands.run(cmd, stdin=stdin, cwd=cwd, envs=envs, timeout_s=timeout_s)

        what = cmd if isinstance(cmd, str) else list(cmd)
        return await self._once(execution_id, run, cmd=what, stdin=stdin, cwd=cwd, envs=envs, timeout_s=timeout_s)

    async def run_code(
        self,
        language: Language,
        source: str | bytes,
        /,
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        execution_id: str | None = None,
    ) -> ExecResult:
        """See `Commands.run_code`, and `run` for `execution_id`."""

        async def run() -> ExecResult:
            with self._box.use():
                return await self._inner.commands.run_code(
                    language, source, stdin=stdin, cwd=cwd, envs=envs, timeout_s=timeout_s
                )

        what = code_bytes(language, source)
        return await self._once(execution_id, run, code=what, stdin=stdin, cwd=cwd, envs=envs, timeout_s=timeout_s)

    async def _once(self, id: str | None, run: Callable[[], Awaitable[ExecResult]], **request: object) -> ExecResult:
        if id is None:
            return await run()
        if id not in self._executions:
            self._box.check_lease()  # nothing was begun
        return await self._executions.run(id, request, run)


class FleetFiles:
    """See `Files`."""

    def __init__(self, box: FleetBox, inner: SandboxBox) -> None:
        self._box, self._inner = box, inner

    async def write(self, path: str, data: str | bytes, /) -> None:
        """See `Files.write`."""
        with self._box.use():
            await self._inner.files.write(path, data)

    async def read(self, path: str, /, *, max_bytes: int = 16 << 20) -> bytes:
        """See `Files.read`."""
        with self._box.use():
            return await self._inner.files.read(path, max_bytes=max_bytes)

    async def exists(self, path: str, /) -> bool:
        """See `Files.exists`."""
        with self._box.use():
            return await self._inner.files.exists(path)
