"""The way in for people: one sandbox by name, asynchronous or not, without a backend to look after."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from burnish.errors import SandboxError, UserError
from burnish.sandbox.audit import AuditLog
from burnish.sandbox.audited import AuditedBackend
from burnish.sandbox.base import Commands, ExecResult, Files, Language, SandboxBackend, SandboxBox, Snapshot
from burnish.sandbox.fleet.backend import Fleet
from burnish.sandbox.memory import MemoryBackend
from burnish.sandbox.network import NetworkPolicy
from burnish.sandbox.oci.backend import OciBackend
from burnish.sandbox.process.backend import ProcessBackend
from burnish.types import Limits

T = TypeVar("T")

_BACKENDS: dict[str, Callable[[], SandboxBackend]] = {
    "process": ProcessBackend,
    "gvisor": OciBackend,
    "memory": MemoryBackend,
}


def make_backend(name: str, *, audit: Path | None = None, listed: bool = False) -> SandboxBackend:
    """A new backend: "process", "gvisor" or "memory". Close it when done.

    Args:
        name: which.
        audit: an audit log to append to; None records nothing.
        listed: as a `Fleet`, whose sandboxes `burnish sandbox ls` shows.

    Raises UserError for another name, and what `AuditLog` raises.
    """
    if name not in _BACKENDS:
        raise UserError(f"no sandbox backend {name!r}", fix=f"use one of: {', '.join(sorted(_BACKENDS))}")
    backend = _BACKENDS[name]()
    if audit is not None:
        backend = AuditedBackend(backend, AuditLog(audit))
    return Fleet(backend, listed=True) if listed else backend


class _Shared:
    """One backend per event loop and name for all facade sandboxes in it; closed with the last of them."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, tuple[SandboxBackend, int]]]
        self._by_loop = WeakKeyDictionary()

    def take(self, name: str) -> SandboxBackend:
        here = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        backend, num_users = here[name] if name in here else (make_backend(name), 0)
        here[name] = (backend, num_users + 1)
        return backend

    async def give_back(self, name: str) -> None:
        here = self._by_loop[asyncio.get_running_loop()]
        backend, num_users = here[name]
        if num_users > 1:
            here[name] = (backend, num_users - 1)
        else:
            del here[name]
            await backend.close()


_shared = _Shared()


class Sandbox:
    """A sandbox with a life of its own.

    Example:
        async with await Sandbox.create(image="host", network=None) as box:
            result = await box.commands.run("python3 a.py", timeout_s=5)
    """

    def __init__(self, box: SandboxBox, backend_name: str) -> None:
        self._box, self._backend_name = box, backend_name
        self._closed = False

    @classmethod
    async def create(
        cls,
        *,
        image: str = "host",
        network: Sequence[str] | None = None,
        limits: Limits = Limits(),
        envs: Mapping[str, str] | None = None,
        backend: str = "process",
    ) -> "Sandbox":
        """A fresh sandbox; kill it, or use `async with`.

        Args:
            image: "host", a read-only view of this machine's system directories, or an image of the store.
            network: what may be reached, such as ["pypi.org:443", "*.pythonhosted.org:443"]; None, no network.
            limits: what each command may use.
            envs: added to the environment of every command.
            backend: "process" or "memory".

        Raises UserError for anything else, and what `SandboxBackend.create` raises.
        """
        policy = None if network is None else NetworkPolicy.parse(network, where="network")
        shared = _shared.take(backend)
        try:
            return cls(await shared.create(limits=limits, envs=envs, network=policy, image=image), backend)
        except BaseException:
            await _shared.give_back(backend)
            raise

    @property
    def id(self) -> str:
        return self._box.id

    @property
    def limits(self) -> Limits:
        return self._box.limits

    @property
    def commands(self) -> Commands:
        return self._box.commands

    @property
    def files(self) -> Files:
        return self._box.files

    async def snapshot(self) -> Snapshot:
        """See `SandboxBox.snapshot`. Worth nothing once the last sandbox of this backend and event loop is killed."""
        return await self._box.snapshot()

    async def restore(self, snapshot: Snapshot, /) -> None:
        """See `SandboxBox.restore`."""
        await self._box.restore(snapshot)

    async def fork(self, n: int = 1) -> list["Sandbox"]:
        """See `SandboxBox.fork`; each copy is to be killed like the original."""
        forks = await self._box.fork(n)
        for _ in forks:
            _shared.take(self._backend_name)
        return [Sandbox(fork, self._backend_name) for fork in forks]

    async def kill(self) -> None:
        """Ends every process in it and reclaims what it held. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._box.kill()
        finally:
            await _shared.give_back(self._backend_name)

    async def __aenter__(self) -> "Sandbox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()


class SyncSandbox:
    """`Sandbox` without `await`: the same names, served by an event loop in a thread of its own.

    Example:
        with SyncSandbox.create() as box:
            box.files.write("a.py", "print(1)")
            result = box.commands.run("python3 a.py")
    """

    def __init__(self, loop: "_LoopThread", box: Sandbox) -> None:
        self._loop, self._box = loop, box
        self.commands = SyncCommands(loop, box)
        self.files = SyncFiles(loop, box)

    @classmethod
    def create(
        cls,
        *,
        image: str = "host",
        network: Sequence[str] | None = None,
        limits: Limits = Limits(),
        envs: Mapping[str, str] | None = None,
        backend: str = "process",
    ) -> "SyncSandbox":
        """See `Sandbox.create`."""
        loop = _LoopThread()
        creating = Sandbox.create(image=image, network=network, limits=limits, envs=envs, backend=backend)
        try:
            return cls(loop, loop.run(creating))
        except BaseException:
            loop.close()
            raise

    @property
    def id(self) -> str:
        return self._box.id

    @property
    def limits(self) -> Limits:
        return self._box.limits

    def kill(self) -> None:
        """See `Sandbox.kill`."""
        if self._loop.is_open:
            try:
                self._loop.run(self._box.kill())
            finally:
                self._loop.close()

    def __enter__(self) -> "SyncSandbox":
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


class SyncCommands:
    """`Commands` for callers that block."""

    def __init__(self, loop: "_LoopThread", box: Sandbox) -> None:
        self._loop, self._box = loop, box

    def run(
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
        return self._loop.run(self._box.commands.run(cmd, stdin=stdin, cwd=cwd, envs=envs, timeout_s=timeout_s))

    def run_code(
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
        running = self._box.commands.run_code(language, source, stdin=stdin, cwd=cwd, envs=envs, timeout_s=timeout_s)
        return self._loop.run(running)


class SyncFiles:
    """`Files` for callers that block."""

    def __init__(self, loop: "_LoopThread", box: Sandbox) -> None:
        self._loop, self._box = loop, box

    def write(self, path: str, data: str | bytes, /) -> None:
        """See `burnish.sandbox.base.Files.write`."""
        self._loop.run(self._box.files.write(path, data))

    def read(self, path: str, /, *, max_bytes: int = 16 << 20) -> bytes:
        """See `burnish.sandbox.base.Files.read`."""
        return self._loop.run(self._box.files.read(path, max_bytes=max_bytes))

    def exists(self, path: str, /) -> bool:
        """See `burnish.sandbox.base.Files.exists`."""
        return self._loop.run(self._box.files.exists(path))


class _LoopThread:
    """An event loop in a thread, to which blocking callers hand coroutines."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="burnish-sandbox", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if not self.is_open:
            coroutine.close()
            raise SandboxError("the sandbox was killed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:  # ctrl-C while waiting: the call inside must not go on unheard
            future.cancel()
            raise

    def close(self) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
