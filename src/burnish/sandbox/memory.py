"""A sandbox that runs nothing: files in a dictionary, commands answered by Python functions. For tests.

Level "none": there is no isolation because there is nothing to isolate. Time is pretended: `sleep 60` under a limit of
one second times out at once.
"""

import asyncio
import inspect
import itertools
import posixpath
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from burnish.errors import SandboxError, UserError
from burnish.observe.emit import emit
from burnish.sandbox.asked import require_limits
from burnish.sandbox.base import (
    HOST_IMAGE,
    ExecResult,
    Language,
    Level,
    LimitName,
    OnNetwork,
    SandboxFileError,
    Snapshot,
    code_bytes,
)
from burnish.sandbox.network import NetworkPolicy
from burnish.sandbox.unexported import NoExport
from burnish.types import Limits

HOME = "/home/agent"
_SIGKILL = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryCall:
    """What a command function is given. `files` is the sandbox's own dictionary, absolute path -> content.

    Example: MemoryCall(argv=("cat", "a"), stdin=b"", cwd="/home/agent", envs={}, files={"/home/agent/a": b"hi"})
    """

    argv: tuple[str, ...]
    stdin: bytes
    cwd: str
    envs: Mapping[str, str]
    files: dict[str, bytes]

    def path(self, name: str) -> str:
        """The absolute path of a name used by the command."""
        return posixpath.normpath(posixpath.join(self.cwd, name))


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryReply:
    """What a command function answers. `takes_s` is pretended time, held against the command's limit.

    Example: MemoryReply(exit_code=1, stderr=b"no such file\\n")
    """

    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    takes_s: float = 0.0


CommandFunction = Callable[[MemoryCall], MemoryReply | Awaitable[MemoryReply]]


def _cat(call: MemoryCall) -> MemoryReply:
    if len(call.argv) == 1:
        return MemoryReply(stdout=call.stdin)
    out = b""
    for name in call.argv[1:]:
        content = call.files.get(call.path(name))
        if content is None:
            return MemoryReply(exit_code=1, stdout=out, stderr=f"cat: {name}: No such file or directory\n".encode())
        out += content
    return MemoryReply(stdout=out)


BUILTIN_COMMANDS: Mapping[str, CommandFunction] = {
    "true": lambda call: MemoryReply(),
    "false": lambda call: MemoryReply(exit_code=1),
    "exit": lambda call: MemoryReply(exit_code=int(call.argv[1])),
    "echo": lambda call: MemoryReply(stdout=" ".join(call.argv[1:]).encode() + b"\n"),
    "cat": _cat,
    "pwd": lambda call: MemoryReply(stdout=call.cwd.encode() + b"\n"),
    "env": lambda call: MemoryReply(stdout="".join(f"{key}={value}\n" for key, value in call.envs.items()).encode()),
    "sleep": lambda call: MemoryReply(takes_s=float(call.argv[1])),
}


@dataclass(kw_only=True, slots=True)
class _State:
    """One sandbox's content, shared by its three faces."""

    id: str
    limits: Limits
    envs: Mapping[str, str]
    commands: Mapping[str, CommandFunction]
    fallback: CommandFunction | None
    create: Callable[..., Awaitable["MemorySandbox"]]  # another one of the same backend
    files: dict[str, bytes] = field(default_factory=dict)
    num_snapshots: int = 0
    is_dead: bool = False

    def check_alive(self) -> None:
        if self.is_dead:
            raise SandboxError(f"sandbox {self.id}: it was killed")


class MemorySnapshot:
    """A copy of the dictionary; see `Snapshot`."""

    def __init__(self, id: str, files: dict[str, bytes]) -> None:
        self._id = id
        self.files: dict[str, bytes] | None = files

    @property
    def id(self) -> str:
        return self._id

    @property
    def was_live(self) -> bool:
        return False

    async def release(self) -> None:
        self.files = None

    async def __aenter__(self) -> "MemorySnapshot":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()


def held_files(snapshot: Snapshot) -> dict[str, bytes]:
    """A copy of what it holds. Raises UserError for a snapshot of another backend, or one that was released."""
    if not isinstance(snapshot, MemorySnapshot):
        raise UserError(f"snapshot {snapshot.id} is of another backend", fix="use one that this backend took")
    if snapshot.files is None:
        raise UserError(f"snapshot {snapshot.id} was released", fix="restore and fork before its release")
    return dict(snapshot.files)


class MemorySandbox:
    """A live sandbox of the `memory` backend; see `SandboxBox`."""

    def __init__(self, state: _State) -> None:
        self._state = state
        self._commands = MemoryCommands(state)
        self._files = MemoryFiles(state)

    @property
    def id(self) -> str:
        return self._state.id

    @property
    def limits(self) -> Limits:
        return self._state.limits

    @property
    def commands(self) -> "MemoryCommands":
        return self._commands

    @property
    def files(self) -> "MemoryFiles":
        return self._files

    async def kill(self) -> None:
        if not self._state.is_dead:
            self._state.is_dead = True
            emit("sandbox.kill", id=self.id, cause="it was killed")

    async def snapshot(self) -> "MemorySnapshot":
        self._state.check_alive()
        self._state.num_snapshots += 1
        return MemorySnapshot(f"{self.id}@{self._state.num_snapshots}", dict(self._state.files))

    async def fork(self, n: int = 1) -> list["MemorySandbox"]:
        if n < 1:
            raise UserError(f"{n} copies", where="fork", fix="ask for at least one")
        self._state.check_alive()
        state = self._state
        return [await state.create(limits=state.limits, envs=state.envs, files=dict(state.files)) for _ in range(n)]

    def set_network(self, policy: NetworkPolicy) -> None:
        raise UserError("the memory backend has no network", where="set_network")

    async def restore(self, snapshot: Snapshot) -> None:
        self._state.check_alive()
        files = held_files(snapshot)
        self._state.files.clear()
        self._state.files.update(files)

    async def __aenter__(self) -> "MemorySandbox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()


class MemoryCommands:
    """Looks the command's first word up in the table; a line is split like a shell would, and nothing more."""

    def __init__(self, state: _State) -> None:
        self._state = state

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
        state = self._state
        state.check_alive()
        argv = tuple(shlex.split(cmd) if isinstance(cmd, str) else cmd)
        if not argv:
            raise UserError("an empty command", where="commands.run")
        timeout_s = state.limits.wall_s if timeout_s is None else timeout_s
        function = state.commands.get(argv[0], state.fallback)
        if function is None:
            reply: MemoryReply = MemoryReply(exit_code=127, stderr=f"{argv[0]}: not found\n".encode())
        else:
            call = MemoryCall(
                argv=argv,
                stdin=stdin,
                cwd=posixpath.normpath(posixpath.join(HOME, cwd or "")),
                envs={"HOME": HOME, **state.envs, **(envs or {})},
                files=state.files,
            )
            answer = function(call)
            reply = await answer if inspect.isawaitable(answer) else answer
        await asyncio.sleep(0)  # a real sandbox always lets others run
        state.check_alive()
        return _result(reply, state.limits, timeout_s)

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
        """Calls the function of "python3" with the arguments "-c" and the source."""
        argv = ["python3", "-c", code_bytes(language, source).decode("utf-8", "surrogateescape")]
        return await self.run(argv, stdin=stdin, cwd=cwd, envs=envs, timeout_s=timeout_s)


def _result(reply: MemoryReply, limits: Limits, timeout_s: float) -> ExecResult:
    timed_out = reply.takes_s > timeout_s
    kept = [_head_and_tail(stream, limits.output_bytes) for stream in (reply.stdout, reply.stderr)]
    num_dropped = len(reply.stdout) + len(reply.stderr) - len(kept[0]) - len(kept[1])
    limit: LimitName | None = "wall" if timed_out else "output" if num_dropped else None
    return ExecResult(
        exit_code=None if timed_out else reply.exit_code,
        signal=_SIGKILL if timed_out else None,
        stdout=kept[0],
        stderr=kept[1],
        timed_out=timed_out,
        limit_hit=limit,
        wall_s=min(reply.takes_s, timeout_s),
        dropped_bytes=num_dropped,
    )


def _head_and_tail(data: bytes, limit: int) -> bytes:
    return data if len(data) <= limit else data[: limit - limit // 2] + data[len(data) - limit // 2 :]


class MemoryFiles:
    """A directory exists where a file lies below it. There are no links, so nothing can lead outside."""

    def __init__(self, state: _State) -> None:
        self._state = state

    async def write(self, path: str, data: str | bytes, /) -> None:
        self._state.check_alive()
        where = self._resolve(path)
        if path.endswith("/") or self._is_directory(where):
            raise SandboxFileError(path, "is a directory")
        if any(parent in self._state.files for parent in _parents(where)):
            raise SandboxFileError(path, "Not a directory")
        self._state.files[where] = data.encode() if isinstance(data, str) else bytes(data)

    async def read(self, path: str, /, *, max_bytes: int = 16 << 20) -> bytes:
        self._state.check_alive()
        where = self._resolve(path)
        if self._is_directory(where):
            raise SandboxFileError(path, "is a directory")
        if where not in self._state.files:
            raise SandboxFileError(path, "No such file or directory")
        data = self._state.files[where]
        if len(data) > max_bytes:
            raise SandboxFileError(path, f"larger than {max_bytes} bytes ({len(data)})")
        return data

    async def exists(self, path: str, /) -> bool:
        self._state.check_alive()
        where = self._resolve(path)
        return where in self._state.files or self._is_directory(where)

    def _resolve(self, path: str) -> str:
        if "\0" in path:
            raise SandboxFileError(path.replace("\0", "\\0"), "holds a NUL character")
        return posixpath.normpath(posixpath.join(HOME, path))

    def _is_directory(self, where: str) -> bool:
        return where in ("/", HOME) or any(name.startswith(where + "/") for name in self._state.files)


def _parents(path: str) -> list[str]:
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: length + 1]) for length in range(len(parts))]


class MemoryBackend(NoExport):
    """Makes `MemorySandbox`es; see `SandboxBackend`.

    Example: MemoryBackend(commands={"python3": lambda call: MemoryReply(stdout=b"42\\n")})
    """

    def __init__(
        self, *, commands: Mapping[str, CommandFunction] | None = None, fallback: CommandFunction | None = None
    ) -> None:
        """`commands` are added to `BUILTIN_COMMANDS`, by the command's first word; `fallback` answers all others."""
        self._commands = {**BUILTIN_COMMANDS, **(commands or {})}
        self._fallback = fallback
        self._numbers = itertools.count()
        self._boxes: list[MemorySandbox] = []
        self._closed = False

    @property
    def name(self) -> str:
        return "memory"

    @property
    def level(self) -> Level:
        return "none"

    async def capabilities(self) -> frozenset[str]:
        return frozenset({"files", "snapshot", "limits.wall", "limits.output"})

    async def create(
        self,
        *,
        limits: Limits = Limits(),
        envs: Mapping[str, str] | None = None,
        snapshot: Snapshot | None = None,
        network: NetworkPolicy | None = None,
        on_network: OnNetwork | None = None,
        image: str = HOST_IMAGE,
    ) -> MemorySandbox:
        if image != HOST_IMAGE:
            raise UserError("the memory backend has no images", where="image", fix="leave it out")
        if network is not None:
            raise UserError("the memory backend has no network", where="network", fix="leave it out")
        require_limits(limits, await self.capabilities(), self.name)
        return await self._create(limits=limits, envs=envs, files=held_files(snapshot) if snapshot else {})

    async def _create(
        self, *, limits: Limits, envs: Mapping[str, str] | None, files: dict[str, bytes]
    ) -> MemorySandbox:
        if self._closed:
            raise SandboxError("the sandbox backend was closed")
        state = _State(
            id=f"memory-{next(self._numbers)}",
            limits=limits,
            envs=dict(envs or {}),
            commands=self._commands,
            fallback=self._fallback,
            create=self._create,
            files=files,
        )
        box = MemorySandbox(state)
        self._boxes.append(box)
        emit("sandbox.create", id=box.id)
        return box

    async def close(self) -> None:
        self._closed = True
        for box in self._boxes:
            await box.kill()
