"""Any backend with an audit log around it: what is asked of its sandboxes is recorded, with what came of it.

A command is recorded when it has ended, with its limits and its end but without its output; a file with its path and
size; failures of the sandbox with their cause. `trajectory` says on whose behalf.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields
from typing import Any

from burnish.errors import SandboxError, StoreError
from burnish.sandbox.audit import AuditLog
from burnish.sandbox.base import (
    HOST_IMAGE,
    ExecResult,
    Language,
    Level,
    OnBytes,
    OnNetwork,
    SandboxBackend,
    SandboxBox,
    SandboxFileError,
    Snapshot,
    SnapshotStore,
    code_bytes,
)
from burnish.sandbox.network import NetworkPolicy, NetworkRecord
from burnish.types import Limits

trajectory: ContextVar[str | None] = ContextVar("trajectory", default=None)
"""Id of the attempt that the current task works for; recorded with every line."""

_MAX_ARGUMENT_CHARS = 2000


class _Recorder:
    """Lines of one sandbox."""

    def __init__(self, log: AuditLog, sandbox: str) -> None:
        self._log, self._sandbox = log, sandbox

    def record(self, event: str, **fields: Any) -> None:
        self._log.record(event, sandbox=self._sandbox, trajectory=trajectory.get(), **fields)


class AuditedBackend:
    """See `SandboxBackend`; closes the log with the backend.

    Example: AuditedBackend(ProcessBackend(), AuditLog(Path("audit.jsonl")))
    """

    def __init__(self, backend: SandboxBackend, log: AuditLog) -> None:
        self._backend, self._log = backend, log

    @property
    def name(self) -> str:
        return self._backend.name

    @property
    def level(self) -> Level:
        return self._backend.level

    async def create(
        self,
        *,
        limits: Limits = Limits(),
        envs: Mapping[str, str] | None = None,
        snapshot: Snapshot | None = None,
        network: NetworkPolicy | None = None,
        on_network: OnNetwork | None = None,
        image: str = HOST_IMAGE,
    ) -> "AuditedBox":
        """See `SandboxBackend.create`."""
        on_behalf_of = trajectory.get()

        def record(sandbox: str, verdict: NetworkRecord) -> None:
            event = f"network.{type(verdict).__name__.lower()}"
            self._log.record(event, sandbox=sandbox, trajectory=on_behalf_of, **_plain(verdict))
            if on_network is not None:
                on_network(sandbox, verdict)

        try:
            box = await self._backend.create(
                limits=limits,
                envs=envs,
                snapshot=snapshot,
                network=network,
                on_network=record if network else None,
                image=image,
            )
        except SandboxError as error:
            self._log.record("create.failed", trajectory=trajectory.get(), cause=error.cause)
            raise
        audited = AuditedBox(box, self._log)
        origin = {"image": image, "snapshot": snapshot.id if snapshot else None}
        try:
            self._log.record(
                "create", sandbox=box.id, trajectory=trajectory.get(), backend=self._backend.name, **origin
            )
        except StoreError:  # what is not recorded must not be
            await box.kill()
            raise
        return audited

    async def export_snapshot(
        self, snapshot: Snapshot, store: SnapshotStore, *, timeout_s: float = 600.0, on_bytes: OnBytes | None = None
    ) -> str:
        """See `SandboxBackend.export_snapshot`."""
        name = await self._backend.export_snapshot(snapshot, store, timeout_s=timeout_s, on_bytes=on_bytes)
        self._log.record("snapshot.export", trajectory=trajectory.get(), snapshot=snapshot.id, name=name)
        return name

    async def import_snapshot(
        self,
        name: str,
        store: SnapshotStore,
        *,
        disk_bytes: int = Limits().disk_bytes,
        timeout_s: float = 600.0,
        on_bytes: OnBytes | None = None,
    ) -> Snapshot:
        """See `SandboxBackend.import_snapshot`."""
        snapshot = await self._backend.import_snapshot(
            name, store, disk_bytes=disk_bytes, timeout_s=timeout_s, on_bytes=on_bytes
        )
        self._log.record("snapshot.import", trajectory=trajectory.get(), snapshot=snapshot.id, name=name)
        return snapshot

    async def capabilities(self) -> frozenset[str]:
        return await self._backend.capabilities()

    async def close(self) -> None:
        try:
            await self._backend.close()
        finally:
            self._log.close()


class AuditedBox:
    """See `SandboxBox`."""

    def __init__(self, box: SandboxBox, log: AuditLog) -> None:
        self._box, self._log = box, log
        self._recorder = _Recorder(log, box.id)
        self._commands = AuditedCommands(box, self._recorder)
        self._files = AuditedFiles(box, self._recorder)

    @property
    def id(self) -> str:
        return self._box.id

    @property
    def limits(self) -> Limits:
        return self._box.limits

    @property
    def commands(self) -> "AuditedCommands":
        return self._commands

    @property
    def files(self) -> "AuditedFiles":
        return self._files

    async def kill(self) -> None:
        """See `SandboxBox.kill`."""
        try:
            self._recorder.record("kill")
        finally:  # also when the log is full
            await self._box.kill()

    async def snapshot(self) -> Snapshot:
        """See `SandboxBox.snapshot`."""
        snapshot = await self._box.snapshot()
        try:
            self._recorder.record("snapshot", snapshot=snapshot.id, was_live=snapshot.was_live)
        except StoreError:
            await snapshot.release()
            raise
        return snapshot

    async def fork(self, n: int = 1) -> list["AuditedBox"]:
        """See `SandboxBox.fork`."""
        forks = [AuditedBox(box, self._log) for box in await self._box.fork(n)]
        try:
            self._recorder.record("fork", forks=[box.id for box in forks])
        except StoreError:
            await asyncio.gather(*(box.kill() for box in forks), return_exceptions=True)
            raise
        return forks

    def set_network(self, policy: NetworkPolicy) -> None:
        """See `SandboxBox.set_network`."""
        self._box.set_network(policy)
        self._recorder.record("set_network", allow=[str(rule) for rule in policy.allow])

    async def restore(self, snapshot: Snapshot, /) -> None:
        """See `SandboxBox.restore`."""
        await self._box.restore(snapshot)
        self._recorder.record("restore", snapshot=snapshot.id)

    async def __aenter__(self) -> "AuditedBox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()


class AuditedCommands:
    """See `Commands`."""

    def __init__(self, box: SandboxBox, recorder: _Recorder) -> None:
        self._box, self._record = box, recorder.record

    async def run(
        self,
        cmd: str | Sequence[str],
        /,
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """See `Commands.run`."""
        command = {"cmd": _shortened(cmd), "stdin_bytes": len(stdin), "cwd": cwd}
        running = self._box.commands.run(cmd, stdin=stdin, cwd=cwd, envs=envs, timeout_s=timeout_s)
        return await self._recorded(command, running)

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
    ) -> ExecResult:
        """See `Commands.run_code`."""
        code = code_bytes(language, source)
        shown = code[:_MAX_ARGUMENT_CHARS].decode("utf-8", "replace")
        command = {"language": language, "code": shown, "code_bytes": len(code), "stdin_bytes": len(stdin), "cwd": cwd}
        running = self._box.commands.run_code(language, code, stdin=stdin, cwd=cwd, envs=envs, timeout_s=timeout_s)
        return await self._recorded(command, running)

    async def _recorded(self, command: dict[str, Any], running: Awaitable[ExecResult]) -> ExecResult:
        started = time.monotonic()
        try:
            result = await running
        except BaseException as error:  # a cancelled command ran all the same
            self._record("exec.failed", **command, wall_s=round(time.monotonic() - started, 6), cause=_cause(error))
            raise
        self._record(
            "exec",
            **command,
            exit_code=result.exit_code,
            signal=result.signal,
            limit_hit=result.limit_hit,
            wall_s=round(result.wall_s, 6),
            output_bytes=len(result.stdout) + len(result.stderr) + result.dropped_bytes,
        )
        return result


class AuditedFiles:
    """See `Files`."""

    def __init__(self, box: SandboxBox, recorder: _Recorder) -> None:
        self._box, self._record = box, recorder.record

    async def write(self, path: str, data: str | bytes, /) -> None:
        """See `Files.write`."""
        size = len(data.encode() if isinstance(data, str) else data)
        try:
            await self._box.files.write(path, data)
        except (SandboxError, SandboxFileError) as error:
            self._record("write.failed", path=path, size=size, cause=_cause(error))
            raise
        self._record("write", path=path, size=size)

    async def read(self, path: str, /, *, max_bytes: int = 16 << 20) -> bytes:
        """See `Files.read`."""
        try:
            data = await self._box.files.read(path, max_bytes=max_bytes)
        except (SandboxError, SandboxFileError) as error:
            self._record("read.failed", path=path, cause=_cause(error))
            raise
        self._record("read", path=path, size=len(data))
        return data

    async def exists(self, path: str, /) -> bool:
        """See `Files.exists`; not recorded: nothing passes but a yes or no."""
        return await self._box.files.exists(path)


def _plain(record: NetworkRecord) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _shortened(cmd: str | Sequence[str]) -> str | list[str]:
    if isinstance(cmd, str):
        return cmd[:_MAX_ARGUMENT_CHARS]
    return [argument[:_MAX_ARGUMENT_CHARS] for argument in cmd[:64]]


def _cause(error: BaseException) -> str:
    if isinstance(error, SandboxError):
        return error.cause
    return error.reason if isinstance(error, SandboxFileError) else type(error).__name__
