"""The owner's side of the `process` backend: starts the host, asks it for sandboxes, and hears when they end."""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import burnish
from burnish.errors import SandboxError, UserError
from burnish.observe.emit import emit
from burnish.sandbox.base import Level
from burnish.sandbox.process import cgroups
from burnish.sandbox.process.box import ProcessBox, describe_status
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.template import HOME
from burnish.sandbox.process.wire import Message
from burnish.types import Limits

START_S = 20.0  # the host copies a few files and makes a dozen mounts
CREATE_S = 20.0
GONE_S = 10.0
REAP_S = 3.0
_LOG_BYTES = 4096
_BOOTSTRAP = (
    "import json, sys; sys.path.insert(0, json.loads(sys.argv[1])['source']); "
    "from burnish.sandbox.process.host import main; main()"
)
_ALWAYS = frozenset(
    {
        "shell", "python", "files", "isolation", "network_none", "confinement",
        "limits.wall", "limits.output", "limits.disk", "limits.pids", "limits.open_files", "reports.memory",
    }
)  # fmt: skip
_WITH_CONTROLLER = {"memory": ("limits.memory",), "pids": ("reports.pids",)}


class ProcessBackend:
    """Sandboxes from Linux namespaces. The host is started by the first `create`; see `SandboxBackend`.

    Belongs to the event loop of its first use. A backend whose host has died stays dead: make a new one.
    """

    def __init__(self) -> None:
        self._start_lock = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._hello: asyncio.Future[Message] | None = None
        self._log = -1
        self._boxes: dict[str, ProcessBox] = {}
        self._announced: set[str] = set()  # of these the events told that they exist
        self._numbers = itertools.count()
        self._death: SandboxError | None = None
        self._burying: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return "process"

    @property
    def level(self) -> Level:
        return "process"

    @property
    def host_pid(self) -> int | None:
        """Process id of the host; None before it was started."""
        return self._process.pid if self._process else None

    async def capabilities(self) -> frozenset[str]:
        """What this machine lets the backend do; starts the host.

        "limits.memory" and "reports.pids" need a writable control group. Without one the supervisor samples the memory
        of all processes and ends those that use too much a moment later, under a wider RLIMIT_DATA for each; and
        RLIMIT_NPROC bounds the processes, but does not tell when it was hit.
        """
        hello = await self._started()
        found = set(_ALWAYS)
        for controller in hello["controllers"]:
            found.update(_WITH_CONTROLLER[controller])
        return frozenset(found)

    async def create(self, *, limits: Limits = Limits(), envs: Mapping[str, str] | None = None) -> ProcessBox:
        """See `SandboxBackend.create`. A cancelled creation leaves nothing behind."""
        hello = await self._started()
        assert self._channel is not None
        name = f"{os.getpid()}-{self.host_pid}-{next(self._numbers)}"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        box = ProcessBox(name, limits, self._kill)
        box.connect(ours, owns_output=not hello["rootless"])
        self._boxes[name] = box
        request = {
            "op": "create",
            "box": name,
            "memory_bytes": limits.memory_bytes,
            "num_pids": limits.num_pids,
            "disk_bytes": limits.disk_bytes,
            "envs": {**base_environment(), **(envs or {})},
        }
        self._channel.post(request, [theirs.detach()])
        try:
            async with asyncio.timeout(CREATE_S):
                await box.ready
        except TimeoutError:
            box.bury(f"not created within {CREATE_S:g} s")
            self._post_kill(box)
            raise SandboxError(f"create: no sandbox within {CREATE_S:g} s") from None
        except BaseException:
            box.bury("its creation was given up")
            self._post_kill(box)
            raise
        self._announced.add(name)
        emit("sandbox.create", id=name)
        return box

    async def close(self) -> None:
        """Ends every sandbox, then the host; waits until it is reaped. Idempotent."""
        if self._death is None:
            self._death = SandboxError("the sandbox backend was closed")
        for box in tuple(self._boxes.values()):
            box.bury("its backend was closed")
        if self._channel is not None:
            self._channel.close()
        if self._burying is None and self._process is not None:
            self._burying = asyncio.create_task(self._bury_host(), name="sandbox:bury-host")
        if self._burying is not None:
            await asyncio.shield(self._burying)

    async def __aenter__(self) -> "ProcessBackend":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _started(self) -> Message:
        """Starts the host once. Raises UserError when the machine lacks what it takes, SandboxError when it died."""
        if self._death is not None:
            raise self._fresh_death()
        async with self._start_lock:
            if self._hello is None:
                self._start()
        assert self._hello is not None
        try:
            async with asyncio.timeout(START_S):
                hello = await asyncio.shield(self._hello)
        except TimeoutError:
            raise SandboxError(
                f"the sandbox host did not start within {START_S:g} s", evidence=self._log_tail()
            ) from None
        if "unsupported" in hello:
            missing = hello["unsupported"]
            raise UserError(f"this machine cannot run it: {missing['cause']}", where="sandbox", fix=missing["fix"])
        ready: Message = hello["hello"]
        return ready

    def _start(self) -> None:
        """From the loop's own thread: the host's parent-death signal is tied to the thread that started it."""
        self._hello = asyncio.get_running_loop().create_future()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = os.memfd_create("burnish-sandbox-host-log", os.MFD_CLOEXEC)
        settings = {
            "source": str(Path(burnish.__file__).resolve().parents[1]),
            "socket": theirs.fileno(),
            "parent": os.getpid(),
            "prefixes": interpreter_prefixes(),
        }
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, json.dumps(settings)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._death = SandboxError(f"the sandbox host could not be started: {error}")
            raise self._fresh_death() from error
        finally:
            theirs.close()
        self._channel = Channel(ours, self._on_message, self._on_end)

    async def _kill(self, box: ProcessBox) -> None:
        box.bury("it was killed")
        if box.id not in self._boxes:
            return
        self._post_kill(box)
        try:
            async with asyncio.timeout(GONE_S):
                await asyncio.shield(box.gone)
        except TimeoutError:
            raise SandboxError(f"sandbox {box.id}: not reclaimed within {GONE_S:g} s") from None

    def _post_kill(self, box: ProcessBox) -> None:
        if self._channel is not None and box.id in self._boxes:
            self._channel.post({"op": "kill", "box": box.id})

    def _on_message(self, message: Message, fds: list[int]) -> None:
        for descriptor in fds:  # the host sends none
            os.close(descriptor)
        if "gone" in message:
            self._forget(message["gone"], f"it ended unexpectedly: {describe_status(message['status'])}")
        elif "refused" in message:
            self._forget(message["refused"], f"create: {message['cause']}")
        elif self._hello is not None and not self._hello.done():
            self._hello.set_result(message)

    def _forget(self, name: str, cause: str) -> None:
        box = self._boxes.pop(name)
        cause = box.bury(cause, evidence=self._log_tail())
        if not box.gone.done():
            box.gone.set_result(None)
        if name in self._announced:
            self._announced.remove(name)
            emit("sandbox.kill", id=name, cause=cause)

    def _on_end(self) -> None:
        if self._burying is None:
            self._burying = asyncio.create_task(self._bury_host(), name="sandbox:bury-host")

    async def _bury_host(self) -> None:
        """Reaps the host, tells everybody, and removes the control groups that a killed host could not."""
        assert self._process is not None
        process = self._process
        try:
            code = await asyncio.to_thread(process.wait, GONE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = await asyncio.to_thread(process.wait)
        if self._death is None:
            self._death = SandboxError(f"the sandbox host died: {describe_status(code)}", evidence=self._log_tail())
        if self._hello is not None and not self._hello.done():
            self._hello.set_exception(self._fresh_death())
            self._hello.exception()  # nobody may be waiting
        for name in tuple(self._boxes):
            self._forget(name, self._death.cause)
        await asyncio.to_thread(_reap_groups, process.pid)
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _fresh_death(self) -> SandboxError:
        assert self._death is not None
        return SandboxError(self._death.cause, evidence=self._death.evidence)

    def _log_tail(self) -> str:
        if self._log < 0:
            return ""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace")


def _reap_groups(host_pid: int) -> None:
    with contextlib.suppress(OSError):  # no control groups here, or they are not ours to read
        cgroups.reap_host(host_pid, REAP_S)


def interpreter_prefixes() -> list[str]:
    """The install prefix of this Python where it lies outside the system directories, so that programs can run it.

    Never a home directory or one above it: that would show more than an interpreter.
    """
    prefix = Path(sys.base_prefix).resolve()
    if prefix.is_relative_to("/usr") or Path.home().resolve().is_relative_to(prefix):
        return []
    return [str(prefix)]


def base_environment() -> dict[str, str]:
    """All that a program in a sandbox finds in its environment, unless the caller adds to it."""
    folders = [*(f"{prefix}/bin" for prefix in interpreter_prefixes()), "/usr/local/bin", "/usr/bin", "/bin"]
    return {"PATH": ":".join(folders), "HOME": HOME, "USER": "agent", "LANG": "C.UTF-8"}
