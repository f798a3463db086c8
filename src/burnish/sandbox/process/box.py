"""A sandbox as its owner sees it: calls become packets to the supervisor, answers become results."""

import asyncio
import os
import posixpath
from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from burnish.errors import SandboxError, UserError
from burnish.sandbox.base import ExecResult, Language, OnNetwork, SandboxFileError, Snapshot, code_bytes
from burnish.sandbox.network import NetworkPolicy
from burnish.sandbox.process import wire
from burnish.sandbox.process.generation import ANSWER_GRACE_S, Generation
from burnish.sandbox.process.output import Output
from burnish.sandbox.process.proxied import BoxNetwork, require_network
from burnish.sandbox.process.snapshots import Base, LayerTable, ProcessSnapshot
from burnish.sandbox.process.template import HOME
from burnish.sandbox.process.wire import Message
from burnish.types import Limits

# The leader of a new session gets the first terminal that it opens as its own.
_TAKE_TERMINAL = 'exec 0<>/proc/self/fd/0 1>&0 2>&0; exec "$@"'


class Lives(Protocol):
    """What a sandbox asks of its backend."""

    def begin(self, box: "ProcessBox", stack: tuple[str, ...]) -> Generation:
        """A new life over a stack of layers; it can be spoken to at once."""
        ...

    def retire(self, generation: Generation, cause: str) -> None:
        """Ends a life, without waiting for it."""
        ...

    async def until_ready(self, generation: Generation) -> None:
        """Raises SandboxError when it does not come to life in time."""
        ...

    async def take_layer(self, box: "ProcessBox", *, live: bool) -> tuple[str, ...]:
        """The stack with what the present life wrote as its top layer. `live`: copied, because it goes on writing.

        Raises SandboxError, also where no sandbox could be mounted over so many layers; the life is as it was then.
        """
        ...

    @property
    def layers(self) -> LayerTable:
        """Which layers there are."""
        ...

    def snapshot_of(self, box: "ProcessBox", stack: tuple[str, ...], *, was_live: bool) -> ProcessSnapshot:
        """A new hold on a stack of the sandbox's layers."""
        ...

    def create(
        self,
        *,
        limits: Limits,
        envs: Mapping[str, str] | None,
        snapshot: Snapshot | None,
        network: NetworkPolicy | None,
        on_network: OnNetwork | None,
    ) -> Awaitable["ProcessBox"]:
        """See `SandboxBackend.create`."""
        ...

    async def kill(self, box: "ProcessBox") -> None:
        """Ends it and waits until nothing of it is left."""
        ...


class ProcessBox:
    """A live sandbox of the `process` backend. Made by the backend; see `SandboxBox` for the contract."""

    def __init__(
        self, name: str, family: str, limits: Limits, base: Base, network: BoxNetwork | None, lives: Lives
    ) -> None:
        self._name, self._limits, self._lives = name, limits, lives
        self.base, self.network = base, network
        self._change = asyncio.Lock()  # held while one life ends and the next begins
        self._generation: Generation
        self.family = family
        self.envs: Mapping[str, str] = {}
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

    @property
    def generation(self) -> Generation:
        """The life that commands and files speak to."""
        return self._generation

    def live(self, generation: Generation) -> None:
        """The backend made its first life."""
        self._generation = generation

    async def kill(self) -> None:
        if self._change.locked():  # whoever changes its life may take long, and meets its end
            self._lives.retire(self._generation, "it was killed")
        async with self._change:
            await self._lives.kill(self)

    async def __aenter__(self) -> "ProcessBox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()

    async def snapshot(self) -> ProcessSnapshot:
        """See `SandboxBox.snapshot`."""
        async with self._change:
            snapshot = await self._take_snapshot()
            self._live_over(snapshot)
            return snapshot

    async def _take_snapshot(self) -> ProcessSnapshot:
        """Idle: the files become a layer as they are, and this life may write no more (`_live_over`)."""
        old = self._generation
        if old.is_dead:
            raise old.fresh_death()
        live = not old.is_idle
        stack = await self._lives.take_layer(self, live=live)
        return self._lives.snapshot_of(self, stack, was_live=live)

    def _live_over(self, snapshot: ProcessSnapshot) -> None:
        """Begins the next life, over what the present one wrote. Whoever calls next waits for it, and nobody before."""
        old = self._generation
        if not snapshot.was_live and not old.is_dead:
            self._generation = self._lives.begin(self, snapshot.stack)
            self._lives.retire(old, "it became a snapshot")

    async def fork(self, n: int = 1) -> list["ProcessBox"]:
        """See `SandboxBox.fork`."""
        if n < 1:
            raise UserError(f"{n} copies", where="fork", fix="ask for at least one")
        async with self._change, await self._take_snapshot() as snapshot:
            try:
                return await self._make_copies(snapshot, n)
            finally:
                self._live_over(snapshot)  # after them: they are what is waited for

    async def _make_copies(self, snapshot: ProcessSnapshot, n: int) -> list["ProcessBox"]:
        making = [asyncio.ensure_future(self._fork_of(snapshot)) for _ in range(n)]
        try:
            return await asyncio.gather(*making)
        except BaseException:
            for task in making:
                task.cancel()
            made = await asyncio.gather(*making, return_exceptions=True)
            await asyncio.gather(*(box.kill() for box in made if isinstance(box, ProcessBox)))
            raise

    def _fork_of(self, snapshot: Snapshot) -> Awaitable["ProcessBox"]:
        policy, on_network = (self.network.policy, self.network.on_record) if self.network else (None, None)
        return self._lives.create(
            limits=self._limits, envs=self.envs, snapshot=snapshot, network=policy, on_network=on_network
        )

    def set_network(self, policy: NetworkPolicy) -> None:
        """See `SandboxBox.set_network`."""
        require_network(self.network).set_policy(policy)

    async def restore(self, snapshot: Snapshot) -> None:
        """See `SandboxBox.restore`."""
        async with self._change:
            require_held(snapshot, self._lives.layers)
            assert isinstance(snapshot, ProcessSnapshot)
            old = self._generation
            if old.is_dead:
                raise old.fresh_death()
            self.family, self.base = snapshot.family, snapshot.base
            self._generation = self._lives.begin(self, snapshot.stack)
            self._lives.retire(old, "it was taken back to a snapshot")
            await self._lives.until_ready(self._generation)

    async def call(self, request: Message, fds: Sequence[int] = (), *, deadline_s: float) -> tuple[Message, list[int]]:
        """One request to the life that is, and its answer. Takes over `fds`."""
        if self._change.locked():
            try:
                async with self._change:
                    pass
            except BaseException:
                for descriptor in fds:
                    os.close(descriptor)
                raise
        generation = self._generation
        try:
            return await generation.call(request, fds, deadline_s=deadline_s)
        except TimeoutError:
            generation.bury(f"no answer to {request['op']} within {deadline_s:g} s")
            await self.kill()
            raise generation.fresh_death() from None

    def give_output(self, descriptor: int) -> None:
        """Makes a pipe the sandbox's own, so that programs may open /dev/stdout and /dev/stderr."""
        owner = self._generation.output_owner
        if owner is not None:
            os.fchown(descriptor, owner, owner)


def require_held(snapshot: Snapshot, table: LayerTable) -> None:
    """Raises UserError for a snapshot of another backend or one that was released, SandboxError for a lost one."""
    if not isinstance(snapshot, ProcessSnapshot) or not snapshot.is_of(table):
        raise UserError(f"snapshot {snapshot.id} is of another backend", fix="use one that this backend took")
    if not snapshot.is_held:
        raise UserError(f"snapshot {snapshot.id} was released", fix="restore and fork before its release")
    if snapshot.is_lost:
        raise SandboxError(f"snapshot {snapshot.id}: its files were lost with the sandbox host that kept them")


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
        return await self._exec({"op": "run", "argv": argv}, [], stdin, cwd, envs, timeout_s)

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
        """See `burnish.sandbox.base.Commands.run_code`."""
        code = wire.memfd("code", code_bytes(language, source))
        return await self._exec({"op": "code", "argv": ["python3"]}, [code], stdin, cwd, envs, timeout_s)

    async def _exec(
        self,
        request: Message,
        fds: list[int],
        stdin: bytes,
        cwd: str | None,
        envs: Mapping[str, str] | None,
        timeout_s: float | None,
    ) -> ExecResult:
        """`fds` are taken over, and followed by the streams."""
        timeout_s = self._box.limits.wall_s if timeout_s is None else timeout_s
        request["cwd"] = posixpath.join(HOME, cwd) if cwd else HOME
        request["envs"] = {**self._box.envs, **envs} if envs else self._box.envs
        request["timeout_s"] = timeout_s
        output = Output(self._box.limits.output_bytes)
        try:
            if stdin:
                fds.append(wire.memfd("stdin", stdin))
            for writer in output.writers:
                self._box.give_output(writer)
                fds.append(writer)
            before = self._box.network.num_denials if self._box.network else 0
            answer, _ = await self._box.call(request, fds, deadline_s=timeout_s + ANSWER_GRACE_S)
            num_denials = self._box.network.num_denials - before if self._box.network else None
            return _result(answer, output.finish(), num_denials)
        finally:
            output.close()


async def run_on_terminal(box: ProcessBox, argv: Sequence[str], terminal: int, *, timeout_s: float) -> ExecResult:
    """Runs a program on a terminal of the owner's, the inner end of a pty, which is taken over.

    Its output is nobody's but the terminal's, and is not bounded.
    """
    box.give_output(terminal)
    request = {
        "op": "run",
        "argv": ["/bin/sh", "-c", _TAKE_TERMINAL, "sh", *argv],
        "cwd": HOME,
        "envs": {**box.envs, "TERM": "xterm-256color"},
        "timeout_s": timeout_s,
    }
    fds = [terminal, os.dup(terminal), os.dup(terminal)]
    answer, _ = await box.call(request, fds, deadline_s=timeout_s + ANSWER_GRACE_S)
    return _result(answer, (b"", b"", 0), None)


def _result(answer: Message, output: tuple[bytes, bytes, int], num_denials: int | None) -> ExecResult:
    stdout, stderr, num_dropped = output
    return ExecResult(
        exit_code=answer.get("code"),
        signal=answer.get("signal"),
        stdout=stdout,
        stderr=stderr,
        timed_out=answer["timed_out"],
        limit_hit=answer["limit"] or ("output" if num_dropped else None),
        wall_s=answer["wall_s"],
        dropped_bytes=num_dropped,
        cpu_s=answer.get("cpu_s"),
        peak_memory_bytes=answer.get("peak"),
        oom_killed=answer.get("oom"),
        num_left=answer.get("num_left"),
        network_denials=num_denials,
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
