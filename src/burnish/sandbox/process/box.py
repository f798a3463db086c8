"""A sandbox as its owner sees it: calls become packets to the supervisor, answers become results."""

import asyncio
import itertools
import os
import posixpath
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from burnish.errors import SandboxError, UserError
from burnish.sandbox.base import ExecResult, SandboxFileError
from burnish.sandbox.process import wire
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.output import PipeReader
from burnish.sandbox.process.template import HOME
from burnish.sandbox.process.wire import Message
from burnish.types import Limits

ANSWER_GRACE_S = 10.0  # a supervisor that is this late with an answer is counted as dead


class ProcessBox:
    """A live sandbox of the `process` backend. Made by the backend; see `SandboxBox` for the contract."""

    def __init__(self, name: str, limits: Limits, kill: Callable[["ProcessBox"], Awaitable[None]]) -> None:
        self._name, self._limits, self._kill = name, limits, kill
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[tuple[Message, list[int]]]] = {}
        self._channel: Channel | None = None
        self._death: SandboxError | None = None
        self._first_cause = ""
        self._owns_output = False
        self._output_owner: int | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commands = ProcessCommands(self)
        self._files = ProcessFiles(self)

    @property
    def id(self) -> str:
        return self._name

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def commands(self) -> "ProcessCommands":
        return self._commands

    @property
    def files(self) -> "ProcessFiles":
        return self._files

    async def kill(self) -> None:
        await self._kill(self)

    async def __aenter__(self) -> "ProcessBox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()

    # -- for the backend ---------------------------------------------------------------------------------------------

    def connect(self, sock: Any, *, owns_output: bool) -> None:
        """Listens to the supervisor. `owns_output`: pipes must be given to the sandbox's uid, to be reopened inside."""
        self._owns_output = owns_output
        self._channel = Channel(sock, self._on_message, self._on_end)

    def bury(self, cause: str, *, evidence: str = "") -> str:
        """The sandbox is gone: whoever waits, and whoever calls from now on, hears why. Returns the first cause."""
        if self._death is None:
            self._death = SandboxError(f"sandbox {self._name}: {cause}", evidence=evidence)
            self._first_cause = cause
        if self._channel is not None:
            self._channel.close()
        if not self.ready.done():
            self.ready.set_exception(self._fresh_death())
            self.ready.exception()  # a creation that was given up has nobody to tell
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._fresh_death())
        return self._first_cause

    # -- for commands and files --------------------------------------------------------------------------------------

    async def call(self, request: Message, fds: Sequence[int] = (), *, deadline_s: float) -> tuple[Message, list[int]]:
        """One request and its answer. Takes over `fds`. A call that is cancelled or late is cancelled inside too."""
        if self._death is not None or self._channel is None or not self._channel.is_open:
            for descriptor in fds:
                os.close(descriptor)
            raise self._fresh_death()
        number = next(self._ids)
        future: asyncio.Future[tuple[Message, list[int]]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._channel.post({**request, "id": number}, fds)
        try:
            async with asyncio.timeout(deadline_s):
                return await future
        except TimeoutError:
            self.bury(f"no answer to {request['op']} within {deadline_s:g} s")
            await self.kill()
            raise self._fresh_death() from None
        except asyncio.CancelledError:
            self._channel.post({"op": "cancel", "id": number})
            raise
        finally:
            del self._waiting[number]

    def give_output(self, descriptor: int) -> None:
        """Makes a pipe the sandbox's own, so that programs may open /dev/stdout and /dev/stderr."""
        if self._output_owner is not None:
            os.fchown(descriptor, self._output_owner, self._output_owner)

    def _fresh_death(self) -> SandboxError:
        death = self._death
        if death is None:  # its socket has ended, and the host's word on why is on the way
            return SandboxError(f"sandbox {self._name}: it has ended")
        return SandboxError(death.cause, evidence=death.evidence)

    def _on_message(self, message: Message, fds: list[int]) -> None:
        if "ready" in message:
            self._output_owner = message["ready"] if self._owns_output else None
            if not self.ready.done():
                self.ready.set_result(None)
            return
        if "failed" in message:
            self.bury(message["failed"])
            return
        future = self._waiting.get(message["id"])
        if future is None or future.done():  # cancelled meanwhile
            for descriptor in fds:
                os.close(descriptor)
        else:
            future.set_result((message, fds))

    def _on_end(self) -> None:
        """The host tells the backend why, within moments; the calls that wait have their deadlines besides."""


class ProcessCommands:
    """Runs commands; each gets two pipes whose writing ends travel to the supervisor as descriptors."""

    def __init__(self, box: ProcessBox) -> None:
        self._box = box

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
        """See `burnish.sandbox.base.Commands.run`."""
        argv = ["/bin/sh", "-c", cmd] if isinstance(cmd, str) else list(cmd)
        if not argv:
            raise UserError("an empty argument vector", where="commands.run")
        timeout_s = self._box.limits.wall_s if timeout_s is None else timeout_s
        request = {
            "op": "run",
            "argv": argv,
            "cwd": posixpath.join(HOME, cwd or ""),
            "envs": dict(envs or {}),
            "timeout_s": timeout_s,
        }
        stdout, stderr = PipeReader(self._box.limits.output_bytes), PipeReader(self._box.limits.output_bytes)
        try:
            fds = [wire.memfd("stdin", stdin)] if stdin else []
            for reader in (stdout, stderr):
                self._box.give_output(reader.writer)
                fds.append(reader.writer)
            answer, _ = await self._box.call(request, fds, deadline_s=timeout_s + ANSWER_GRACE_S)
            return _result(answer, stdout.finish(), stderr.finish())
        finally:
            stdout.close()
            stderr.close()


def _result(answer: Message, stdout: tuple[bytes, int], stderr: tuple[bytes, int]) -> ExecResult:
    num_dropped = stdout[1] + stderr[1]
    return ExecResult(
        exit_code=answer.get("code"),
        signal=answer.get("signal"),
        stdout=stdout[0],
        stderr=stderr[0],
        timed_out=answer["timed_out"],
        limit_hit=answer["limit"] or ("output" if num_dropped else None),
        wall_s=answer["wall_s"],
        dropped_bytes=num_dropped,
    )


class ProcessFiles:
    """Reads and writes files; content travels as descriptors in both directions."""

    def __init__(self, box: ProcessBox) -> None:
        self._box = box

    async def write(self, path: str, data: str | bytes, /) -> None:
        """See `burnish.sandbox.base.Files.write`."""
        content = wire.memfd("write", data.encode() if isinstance(data, str) else data)
        try:
            _require_encodable(path)
        except SandboxFileError:
            os.close(content)
            raise
        await self._call(path, {"op": "write", "path": path}, [content])

    async def read(self, path: str, /, *, max_bytes: int = 16 << 20) -> bytes:
        """See `burnish.sandbox.base.Files.read`."""
        _require_encodable(path)
        _, fds = await self._call(path, {"op": "read", "path": path, "max_bytes": max_bytes})
        try:
            data = wire.read_all(fds[0], max_bytes + 1)
        finally:
            os.close(fds[0])
        if len(data) > max_bytes:  # it grew meanwhile
            raise SandboxFileError(path, f"larger than {max_bytes} bytes")
        return data

    async def exists(self, path: str, /) -> bool:
        """See `burnish.sandbox.base.Files.exists`."""
        _require_encodable(path)
        answer, _ = await self._call(path, {"op": "exists", "path": path})
        return bool(answer["exists"])

    async def _call(self, path: str, request: Message, fds: Sequence[int] = ()) -> tuple[Message, list[int]]:
        answer, received = await self._box.call(request, fds, deadline_s=ANSWER_GRACE_S)
        if "no" in answer:
            raise SandboxFileError(path, answer["no"])
        return answer, received


def _require_encodable(path: str) -> None:
    try:
        if b"\0" in os.fsencode(path):
            raise SandboxFileError(path.replace("\0", "\\0"), "holds a NUL character")
    except UnicodeEncodeError as error:
        raise SandboxFileError(repr(path), "cannot be a file name") from error


def describe_status(status: int) -> str:
    """A supervisor's end in words; `status` as of os.waitstatus_to_exitcode."""
    if status < 0:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    return f"exited with code {status}"
