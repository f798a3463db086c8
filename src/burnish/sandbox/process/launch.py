"""The host as a child of its owner: started, spoken to by packets, and reaped when it ends, however it ends."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import burnish
from burnish.errors import SandboxError, UserError
from burnish.sandbox.images.location import default_store_dir
from burnish.sandbox.process import cgroups
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.environment import interpreter_prefixes
from burnish.sandbox.process.generation import describe_status
from burnish.sandbox.process.wire import Message

START_S = 20.0  # the host copies a few files and makes a dozen mounts
GONE_S = 10.0
REAP_S = 3.0
_LOG_BYTES = 4096
_BOOTSTRAP = (
    "import json, sys; sys.path.insert(0, json.loads(sys.argv[1])['source']); "
    "from burnish.sandbox.process.host import main; main()"
)


class HostProcess:
    """One host from its start to its end.

    `on_message` hears what it says after its greeting; `on_death` is called once, when it has been reaped.
    """

    def __init__(
        self, on_message: Callable[[Message], None], on_death: Callable[["HostProcess", SandboxError], None]
    ) -> None:
        """Starts it. From the loop's own thread: its parent-death signal is tied to the thread that started it.

        Raises SandboxError when it cannot be started.
        """
        self._on_message, self._on_death = on_message, on_death
        self._hello: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._greeting: Message | None = None
        self._death: SandboxError | None = None
        self._burying: asyncio.Task[None] | None = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = os.memfd_create("burnish-sandbox-host-log", os.MFD_CLOEXEC)
        settings = {
            "source": str(Path(burnish.__file__).resolve().parents[1]),
            "socket": theirs.fileno(),
            "parent": os.getpid(),
            "prefixes": interpreter_prefixes(),
            "images": _image_folder(),
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
            os.close(self._log)
            raise SandboxError(f"the sandbox host could not be started: {error}") from error
        finally:
            theirs.close()
        self._channel = Channel(ours, self._hear, self._bury_soon)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def death(self) -> SandboxError | None:
        """Why it is gone, to be raised; None while it lives."""
        return None if self._death is None else SandboxError(self._death.cause, evidence=self._death.evidence)

    @property
    def greeting(self) -> Message | None:
        """What `hello` returns, once it has."""
        return self._greeting

    @property
    def is_rootless(self) -> bool:
        """Of a host that has greeted."""
        assert self._greeting is not None
        return bool(self._greeting["rootless"])

    async def hello(self) -> Message:
        """What it can do. Raises UserError when the machine lacks what it takes, SandboxError when it died."""
        try:
            async with asyncio.timeout(START_S):
                hello = await asyncio.shield(self._hello)
        except TimeoutError:
            cause = f"the sandbox host did not start within {START_S:g} s"
            raise SandboxError(cause, evidence=self.log_tail()) from None
        if "unsupported" in hello:
            missing = hello["unsupported"]
            raise UserError(f"this machine cannot run it: {missing['cause']}", where="sandbox", fix=missing["fix"])
        greeting: Message = hello["hello"]
        self._greeting = greeting
        return greeting

    def post(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Sends, and takes over the descriptors. Lost when the host is gone, which `on_death` tells."""
        self._channel.post(message, fds)

    async def close(self) -> None:
        """Lets it end its sandboxes and itself; returns when it is reaped. Idempotent."""
        if self._death is None:
            self._death = SandboxError("the sandbox backend was closed")
        self._channel.close()
        self._bury_soon()
        assert self._burying is not None
        await asyncio.shield(self._burying)

    def log_tail(self) -> str:
        """The last of what it printed."""
        if self._log < 0:
            return ""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace")

    def _hear(self, message: Message, fds: list[int]) -> None:
        for descriptor in fds:  # the host sends none
            os.close(descriptor)
        if self._hello.done():
            self._on_message(message)
        else:
            self._hello.set_result(message)

    def _bury_soon(self) -> None:
        if self._burying is None:
            self._burying = asyncio.create_task(self._bury(), name="sandbox:bury-host")

    async def _bury(self) -> None:
        """Reaps it, tells everybody, and removes the control groups that a killed host could not."""
        try:
            code = await asyncio.to_thread(self._process.wait, GONE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = await asyncio.to_thread(self._process.wait)
        if self._death is None:
            self._death = SandboxError(f"the sandbox host died: {describe_status(code)}", evidence=self.log_tail())
        if not self._hello.done():
            self._hello.set_exception(SandboxError(self._death.cause, evidence=self._death.evidence))
            self._hello.exception()  # nobody may be waiting
        self._on_death(self, self._death)
        await asyncio.to_thread(_reap_groups, self._process.pid)
        os.close(self._log)
        self._log = -1


def _image_folder() -> str:
    """The image store's folder, made now, since a host cannot look for it later. Empty where it cannot be made, as for
    users without a home; importing an image says so."""
    try:
        folder = default_store_dir()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return ""
    return str(folder)


def _reap_groups(host_pid: int) -> None:
    with contextlib.suppress(OSError):  # no control groups here, or they are not ours to read
        cgroups.reap_host(host_pid, REAP_S)
