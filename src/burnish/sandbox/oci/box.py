"""A container as its owner sees it: calls become frames to the agent, answers become results."""

import asyncio
import os
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from burnish.errors import SandboxError, UserError
from burnish.sandbox.base import ExecResult, Language, LimitName, SandboxFileError, code_bytes
from burnish.sandbox.oci import frames
from burnish.sandbox.oci.agent_files import CHUNK_BYTES
from burnish.sandbox.oci.frames import Message
from burnish.sandbox.oci.pipes import FramePipes
from burnish.sandbox.process import python_program
from burnish.sandbox.process.template import HOME
from burnish.types import Limits

ANSWER_GRACE_S = 20.0  # an agent that is this late with an answer is counted as dead
_HEADER_BYTES = 64 << 10  # the most that an answer holds beside output and file content


_Kill = Callable[["OciBox"], Awaitable[None]]
_Checkpoint = Callable[["OciBox", Path], Awaitable[None]]


class OciBox:
    """A live container. Made by the backend; see `SandboxBox` for the contract."""

    def __init__(self, name: str, limits: Limits, kill: _Kill, checkpoint: _Checkpoint) -> None:
        self._name, self._limits, self._kill, self._checkpoint = name, limits, kill, checkpoint
        self.next_id = 1
        self._waiting: dict[int, asyncio.Future[tuple[Message, bytes]]] = {}
        self._pipes: FramePipes | None = None
        self._death: SandboxError | None = None
        self._root, self._memory_events = -1, -1
        self._num_kills_seen = 0
        self._num_running = 0
        loop = asyncio.get_running_loop()
        self.up: asyncio.Future[Message] = loop.create_future()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self._commands = OciCommands(self)
        self._files = OciFiles(self)

    @property
    def id(self) -> str:
        return self._name

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def commands(self) -> "OciCommands":
        return self._commands

    @property
    def files(self) -> "OciFiles":
        return self._files

    async def checkpoint(self, path: Path, /) -> None:
        """Saves memory, processes and files in a new folder, for `OciBackend.restore`, and ends this sandbox.

        Calls that wait raise SandboxError; what they started goes on in the restored sandbox.
        Raises UserError for a path where something is and for runtimes without checkpoints, SandboxError when it
        failed.
        """
        await self._checkpoint(self, path)

    async def snapshot(self) -> NoReturn:
        """Not declared. Raises UserError."""
        raise UserError("this backend takes no snapshots", where="sandbox", fix="use the `process` backend")

    async def fork(self, n: int = 1) -> NoReturn:
        """Not declared. Raises UserError."""
        raise UserError("this backend forks no sandboxes", where="sandbox", fix="use the `process` backend")

    def set_network(self, policy: object) -> NoReturn:
        """Not declared. Raises UserError."""
        raise UserError("this backend has no network", where="sandbox", fix="use the `process` backend")

    async def restore(self, snapshot: object, /) -> NoReturn:
        """Not declared. Raises UserError."""
        raise UserError("this backend restores no snapshots", where="sandbox", fix="use the `process` backend")

    async def kill(self) -> None:
        await self._kill(self)

    async def __aenter__(self) -> "OciBox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()

    # -- for the backend ---------------------------------------------------------------------------------------------

    def connect(self, reader: int, writer: int) -> None:
        """Listens to the agent. Takes over the owner's ends of the container's stdout and stdin."""
        most_bytes = _HEADER_BYTES + max(CHUNK_BYTES, 2 * self._limits.output_bytes)
        self._pipes = FramePipes(reader, writer, most_bytes=most_bytes, on_frame=self._on_frame, on_end=self._on_end)

    def watch(self, root: int, memory_events: int) -> None:
        """What tells of limits that were hit, as descriptors that are taken over.

        Args:
            root: the container's root directory, whose file system has the disk limit's size.
            memory_events: the file in which the kernel counts whom it killed for memory; -1 for none.
        """
        self._root, self._memory_events = root, memory_events
        if self._death is not None:
            self._let_go()

    def post(self, message: Message, payload: bytes = b"") -> None:
        """One frame that is not answered, or whose answer is "ready"."""
        if self._pipes is not None:
            self._pipes.post(frames.pack(message, payload))

    def post_source(self, source: bytes) -> None:
        """What the container's pid 1 waits for before there are frames."""
        if self._pipes is not None:
            self._pipes.post(source)

    def bury(self, cause: str, *, evidence: str = "") -> str:
        """The sandbox is gone: whoever waits, and whoever calls from now on, hears why. Returns the first cause."""
        if self._death is None:
            self._death = SandboxError(f"sandbox {self._name}: {cause}", evidence=evidence)
        if self._pipes is not None:
            self._pipes.close()
        self._let_go()
        waiting: list[asyncio.Future[Any]] = [self.up, self.ready, *self._waiting.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(self._fresh_death())
                future.exception()  # a creation that was given up has nobody to tell
        return self._death.cause.partition(": ")[2]

    def _let_go(self) -> None:
        for descriptor in (self._root, self._memory_events):
            if descriptor >= 0:
                os.close(descriptor)
        self._root = self._memory_events = -1

    # -- for commands and files --------------------------------------------------------------------------------------

    async def call(self, request: Message, payload: bytes = b"", *, deadline_s: float) -> tuple[Message, bytes]:
        """One request and its answer. A call that is cancelled or late is cancelled inside too."""
        if self._death is not None or self._pipes is None or not self._pipes.is_open:
            raise self._fresh_death()
        number, self.next_id = self.next_id, self.next_id + 1
        future: asyncio.Future[tuple[Message, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self.post({**request, "id": number}, payload)
            async with asyncio.timeout(deadline_s):
                return await future
        except TimeoutError:
            self.bury(f"no answer to {request['op']} within {deadline_s:g} s")
            await self.kill()
            raise self._fresh_death() from None
        except asyncio.CancelledError:
            self.post({"op": "cancel", "id": number})
            raise
        finally:
            del self._waiting[number]

    def begin_command(self) -> None:
        """Forgets what limits were hit while nothing ran."""
        if self._num_running == 0:
            self._num_kills_seen = self._num_kills()
        self._num_running += 1

    def end_command(self) -> None:
        self._num_running -= 1

    def limit_hit(self) -> LimitName | None:
        """The first that was hit since the first of the running commands began, as seen from outside."""
        if self._root < 0:
            return None
        before, self._num_kills_seen = self._num_kills_seen, self._num_kills()
        if self._num_kills_seen > before:
            return "memory"
        space = os.fstatvfs(self._root)
        return "disk" if space.f_bavail == 0 or space.f_favail == 0 else None

    def _num_kills(self) -> int:
        if self._memory_events < 0:
            return 0
        lines = os.pread(self._memory_events, 4096, 0).splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(b"oom_kill "))

    def _fresh_death(self) -> SandboxError:
        death = self._death
        if death is None:  # its pipe has ended, and the word on why is on the way
            return SandboxError(f"sandbox {self._name}: it has ended")
        return SandboxError(death.cause, evidence=death.evidence)

    def _on_frame(self, message: Message, payload: bytes) -> None:
        if "ready" in message:
            if not self.ready.done():
                self.ready.set_result(None)
            return
        future = self._waiting.get(message["id"])
        if future is not None and not future.done():  # else cancelled meanwhile
            future.set_result((message, payload))

    def _on_end(self, why: str) -> None:
        """Without a word the launcher's end tells more, within moments; the calls that wait have their deadlines."""
        if why:
            self.bury(why)


class OciCommands:
    """Runs commands; input and output travel in frames."""

    def __init__(self, box: OciBox) -> None:
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
        self._box.begin_command()
        try:
            answer, output = await self._box.call(request, stdin, deadline_s=timeout_s + ANSWER_GRACE_S)
            limit = answer["limit"] or self._box.limit_hit()
        finally:
            self._box.end_command()
        return _result(answer, output, limit)

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
        """See `burnish.sandbox.base.Commands.run_code`; each call starts an interpreter."""
        whole = python_program.with_source(code_bytes(language, source), stdin)
        argv = ["python3", "-c", python_program.FROM_STDIN]
        return await self.run(argv, stdin=whole, cwd=cwd, envs=envs, timeout_s=timeout_s)


def _result(answer: Message, output: bytes, limit: LimitName | None) -> ExecResult:
    num_dropped = answer["num_dropped"]
    return ExecResult(
        exit_code=answer.get("code"),
        signal=answer.get("signal"),
        stdout=output[: answer["stdout_bytes"]],
        stderr=output[answer["stdout_bytes"] :],
        timed_out=answer["timed_out"],
        limit_hit=limit or ("output" if num_dropped else None),
        wall_s=answer["wall_s"],
        dropped_bytes=num_dropped,
    )


class OciFiles:
    """Reads and writes files, in parts that keep every frame short."""

    def __init__(self, box: OciBox) -> None:
        self._box = box

    async def write(self, path: str, data: str | bytes, /) -> None:
        """See `burnish.sandbox.base.Files.write`."""
        content = memoryview(data.encode() if isinstance(data, str) else data)
        for offset in range(0, max(1, len(content)), CHUNK_BYTES):
            part = bytes(content[offset : offset + CHUNK_BYTES])
            await self._call(path, {"op": "write", "offset": offset}, part)

    async def read(self, path: str, /, *, max_bytes: int = 16 << 20) -> bytes:
        """See `burnish.sandbox.base.Files.read`. A file that changes meanwhile may give parts of both contents."""
        data = bytearray()
        while True:
            request = {"op": "read", "offset": len(data), "max_bytes": max_bytes}
            answer, part = await self._call(path, request)
            data += part
            if len(data) > max_bytes:  # it grew meanwhile
                raise SandboxFileError(path, f"larger than {max_bytes} bytes")
            if not part or len(data) >= answer["size"]:
                return bytes(data)

    async def exists(self, path: str, /) -> bool:
        """See `burnish.sandbox.base.Files.exists`."""
        answer, _ = await self._call(path, {"op": "exists"})
        return bool(answer["exists"])

    async def _call(self, path: str, request: Message, payload: bytes = b"") -> tuple[Message, bytes]:
        answer, found = await self._box.call({**request, "path": path}, payload, deadline_s=ANSWER_GRACE_S)
        if "no" in answer:
            raise SandboxFileError(path, answer["no"])
        return answer, found
