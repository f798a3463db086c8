"""The owner's side of the `gvisor` backend: starts a launcher per sandbox and hears when it ends."""

import asyncio
import functools
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import burnish
from burnish.errors import SandboxError, UserError
from burnish.observe.emit import emit
from burnish.sandbox.base import Level
from burnish.sandbox.oci import bundle
from burnish.sandbox.oci.box import OciBox
from burnish.sandbox.oci.runtimes import Runtime, find_runtime, level_of
from burnish.sandbox.oci.shipped import BOOTSTRAP, shipped_source
from burnish.sandbox.process import cgroups, seccomp
from burnish.sandbox.process.backend import base_environment, interpreter_prefixes
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.template import HOME
from burnish.sandbox.process.wire import Message
from burnish.types import Limits

CREATE_S = 60.0  # gVisor takes a third of a second on an idle machine
GONE_S = 15.0
REAP_S, _REAP_EVERY_S = 1.0, 0.01
_LOG_BYTES = 4096
# A uid per sandbox, so that a runtime without a user namespace keeps its sandboxes apart; above those of `process`.
_FIRST_UID, _UIDS_PER_OWNER, _NUM_OWNERS = 2_105_000_000, 4096, 10_000
# A runtime with a kernel of its own bounds what programs use by itself; its control group only protects the machine.
_OWN_KERNEL_BYTES, _OWN_KERNEL_FACTOR = 512 << 20, 4
_BYTES_PER_FORK = 4 << 20  # gVisor copies megabytes where Linux copies a page, which is not the candidate's doing
_GROUP_PIDS, _GROUP_PIDS_FACTOR = 1024, 64  # gVisor needs a thread of the machine for most pairs of processes
_LAUNCH = (
    "import json, sys; sys.path.insert(0, json.loads(sys.argv[1])['source']); "
    "from burnish.sandbox.oci.launcher import main; main()"
)
_ALWAYS = frozenset(
    {
        "shell", "python", "files", "isolation", "network_none", "confinement",
        "limits.wall", "limits.output", "limits.disk", "limits.pids", "limits.open_files", "reports.memory",
    }
)  # fmt: skip


@dataclass(slots=True)
class _Launched:
    """The processes and sockets behind one box."""

    box: OciBox
    process: "subprocess.Popen[bytes]"
    pidfd: int
    log: int
    control: Channel | None = None
    burying: asyncio.Task[None] | None = None


class OciBackend:
    """Sandboxes made by an OCI runtime: gVisor's `runsc`, or another by name or path. See `SandboxBackend`.

    Belongs to the event loop of its first use. Needs root and a Python that the container can see.

    Example:
        async with OciBackend(runtime="runsc") as backend, await backend.create() as box:
            result = await box.commands.run("dmesg")
    """

    def __init__(self, runtime: str = "runsc") -> None:
        self._runtime_name = runtime
        self._runtime: Runtime | None = None
        self._options: tuple[str, ...] | None = None  # those with which a container has started
        self._controllers: frozenset[str] = frozenset()
        self._start_lock = asyncio.Lock()
        self._boxes: dict[str, _Launched] = {}
        self._announced: set[str] = set()  # of these the events told that they exist
        self._numbers = itertools.count()
        self._program = b""
        self._closed = False

    @property
    def name(self) -> str:
        return "gvisor" if self.level == "gvisor" else Path(self._runtime_name).name

    @property
    def level(self) -> Level:
        """ "gvisor" for runsc, "microvm" for kata and the like, "process" for runtimes on the machine's own kernel."""
        return level_of(self._runtime_name)

    async def capabilities(self) -> frozenset[str]:
        """What this machine lets the backend do; starts a container to find out.

        "limits.memory" needs the machine's own kernel and a writable control group. Without them the agent looks every
        20 ms at the memory in use and ends the commands when it is too much. The number of processes is bounded by
        RLIMIT_NPROC, which does not tell when it was hit, so "reports.pids" is never there.
        """
        runtime = await self._started()
        bounded_by_kernel = not runtime.has_own_kernel and "memory" in self._controllers
        return _ALWAYS | ({"limits.memory"} if bounded_by_kernel else set())

    async def create(
        self, *, limits: Limits = Limits(), envs: Mapping[str, str] | None = None, snapshot: object | None = None
    ) -> OciBox:
        """See `SandboxBackend.create`. A cancelled creation leaves nothing behind."""
        if snapshot is not None:
            raise UserError("this backend restores no snapshots", where="sandbox", fix="use the `process` backend")
        await self._started()
        assert self._options is not None
        box = await self._create(self._options, limits, envs or {})
        self._announced.add(box.id)
        emit("sandbox.create", id=box.id)
        return box

    async def close(self) -> None:
        """Ends every sandbox and waits until all of it is gone. Idempotent."""
        self._closed = True
        boxes = [launched.box for launched in self._boxes.values()]
        for box in boxes:
            box.bury("its backend was closed")
        await asyncio.gather(*(self._kill(box) for box in boxes))

    async def __aenter__(self) -> "OciBackend":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _started(self) -> Runtime:
        """Finds the runtime and, once, options with which a container starts and answers.

        Raises UserError, with what the runtime said, when there are none.
        """
        if self._closed:
            raise SandboxError("the sandbox backend was closed")
        async with self._start_lock:
            if self._runtime is None:
                self._runtime = find_runtime(self._runtime_name)
            if self._options is None:
                self._program = seccomp.build_program()
                await self._find_options(self._runtime)
        return self._runtime

    async def _find_options(self, runtime: Runtime) -> None:
        failure = SandboxError("no options to try")
        for options in runtime.options:
            try:
                async with await self._create(options, Limits(), {}) as box:
                    result = await box.commands.run(["true"])
                    if not result.ok:
                        raise SandboxError("its first command failed", evidence=str(result))
            except SandboxError as error:
                failure = error
            else:
                self._options = options
                return
        said = " ".join(failure.evidence.split())[-600:]
        raise UserError(
            f"{self._runtime_name} starts no container on this machine: {failure.cause}: {said or 'it said nothing'}",
            where="sandbox",
            fix=f"run `{self._runtime_name} --version` and see docs/backends.md, or use the `process` backend",
        )

    async def _create(self, options: tuple[str, ...], limits: Limits, envs: Mapping[str, str]) -> OciBox:
        number = next(self._numbers)
        box = OciBox(f"{self.name}-{os.getpid()}-{id(self):x}-{number}", limits, self._kill)
        uid = _FIRST_UID + os.getpid() % _NUM_OWNERS * _UIDS_PER_OWNER + number % _UIDS_PER_OWNER
        try:
            launched = self._launch(box, options, uid)
            box.post_source(shipped_source())
            async with asyncio.timeout(CREATE_S):
                up = await box.up
                self._controllers = frozenset(up["controllers"])
                box.post(self._settings(uid, limits, {**base_environment(), **envs}), self._program)
                await box.ready
        except TimeoutError:
            box.bury(f"not created within {CREATE_S:g} s", evidence=_log_tail(launched.log))
            self._hang_up(box)
            raise SandboxError(f"create: no sandbox within {CREATE_S:g} s", evidence=_log_tail(launched.log)) from None
        except BaseException:
            box.bury("its creation was given up")
            self._hang_up(box)
            raise
        return box

    def _settings(self, uid: int, limits: Limits, envs: Mapping[str, str]) -> Message:
        """The agent's; see agent.py."""
        assert self._runtime is not None
        own_kernel = self._runtime.has_own_kernel
        sample = "kernel" if own_kernel else "" if "memory" in self._controllers else "processes"
        headroom = _BYTES_PER_FORK * limits.num_pids if own_kernel else 0
        return {
            "op": "begin",
            "uid": uid,
            "home": HOME,
            "envs": dict(envs),
            "output_bytes": limits.output_bytes,
            "memory_bytes": limits.memory_bytes + headroom,
            "sample": sample,
            "placeholder": bundle.PLACEHOLDER,
            "own_kernel": own_kernel,
        }

    def _launch(self, box: OciBox, options: tuple[str, ...], uid: int) -> _Launched:
        """From the loop's own thread: the launcher's parent-death signal is tied to the thread that started it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (from_box, box_out), (box_in, to_box) = os.pipe(), os.pipe()
        log = os.memfd_create("burnish-launcher-log", os.MFD_CLOEXEC)
        box.connect(from_box, to_box)
        settings = self._launcher_settings(box.limits, options, uid) | {"socket": theirs.fileno()}
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCH, json.dumps(settings)],
                stdin=box_in,
                stdout=box_out,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            os.close(log)
            raise SandboxError(f"the launcher could not be started: {error}") from error
        finally:
            theirs.close()
            os.close(box_in)
            os.close(box_out)
        launched = _Launched(box, process, os.pidfd_open(process.pid), log)
        launched.control = Channel(ours, functools.partial(_on_event, box, log), lambda: None)
        self._boxes[box.id] = launched
        loop = asyncio.get_running_loop()
        loop.add_reader(launched.pidfd, self._on_exit, launched)
        return launched

    def _launcher_settings(self, limits: Limits, options: tuple[str, ...], uid: int) -> dict[str, Any]:
        """See launcher.py and bundle.py."""
        assert self._runtime is not None
        factor, extra = (_OWN_KERNEL_FACTOR, _OWN_KERNEL_BYTES) if self._runtime.has_own_kernel else (1, 0)
        return {
            "source": str(Path(burnish.__file__).resolve().parents[1]),
            "parent": os.getpid(),
            "runtime": self._runtime.path,
            "options": options,
            "hide_cgroups": self._runtime.hide_cgroups,
            "group_memory_bytes": factor * limits.memory_bytes + extra + limits.disk_bytes,
            "group_pids": _GROUP_PIDS_FACTOR * limits.num_pids + _GROUP_PIDS,
            "uid": uid,
            "memory_bytes": limits.memory_bytes,
            "disk_bytes": limits.disk_bytes,
            "num_pids": limits.num_pids,
            "prefixes": interpreter_prefixes(),
            "args": [_visible_python(), "-I", "-S", "-c", BOOTSTRAP, str(len(shipped_source()))],
            "envs": base_environment(),
        }

    def _hang_up(self, box: OciBox) -> None:
        launched = self._boxes.get(box.id)
        if launched is not None and launched.control is not None:
            launched.control.close()

    async def _kill(self, box: OciBox) -> None:
        box.bury("it was killed")
        launched = self._boxes.get(box.id)
        if launched is None:
            return
        self._hang_up(box)
        try:
            async with asyncio.timeout(GONE_S):
                await asyncio.shield(box.gone)
        except TimeoutError:
            launched.process.kill()  # the runtime and all below it follow by their parent-death signal
            raise SandboxError(f"sandbox {box.id}: not reclaimed within {GONE_S:g} s") from None

    def _on_exit(self, launched: _Launched) -> None:
        """The launcher has ended, and everything of its container with it."""
        asyncio.get_running_loop().remove_reader(launched.pidfd)
        os.close(launched.pidfd)
        launched.burying = asyncio.create_task(self._bury(launched), name="sandbox:bury-container")

    async def _reap_groups(self) -> None:
        """Of a launcher that was killed; its container's last processes end a moment after it."""
        for _ in range(round(REAP_S / _REAP_EVERY_S)):
            if not self._controllers or cgroups.reap_dead():
                return
            await asyncio.sleep(_REAP_EVERY_S)

    async def _bury(self, launched: _Launched) -> None:
        box = launched.box
        code = launched.process.wait()
        if launched.control is not None:
            launched.control.close()
        cause = box.bury("it ended unexpectedly", evidence=_log_tail(launched.log))
        os.close(launched.log)
        if code != 0:  # it was killed, and could not remove its control groups
            await self._reap_groups()
        del self._boxes[box.id]
        if not box.gone.done():
            box.gone.set_result(None)
        if box.id in self._announced:
            self._announced.remove(box.id)
            emit("sandbox.kill", id=box.id, cause=cause)


def _on_event(box: OciBox, log: int, message: Message, fds: list[int]) -> None:
    """What the launcher says; see launcher.py."""
    if "failed" in message:
        box.bury(message["failed"])
        return
    if "ended" in message:
        box.bury(f"the runtime ended unexpectedly: {_in_words(message['ended'])}", evidence=_log_tail(log))
        return
    root, *groups = fds
    up = message["up"]
    events = -1
    for controller, directory in zip(up["controllers"], groups, strict=True):
        if controller == "memory":
            limit = (cgroups.V2 if up["kind"] == "v2" else cgroups.V1)[controller]
            events = os.open(limit.events_file, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        os.close(directory)
    box.watch(root, events)
    if not box.up.done():
        box.up.set_result(up)


def _in_words(status: int) -> str:
    """`status` as of os.waitstatus_to_exitcode."""
    return f"exit code {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"


def _visible_python() -> str:
    """This interpreter, at the path where the container sees it. Raises UserError when it does not."""
    program = Path(sys.executable).resolve()
    if any(program.is_relative_to(prefix) for prefix in ("/usr", *interpreter_prefixes())):
        return str(program)
    raise UserError(
        f"the container would have no python3: {program} lies outside the system directories",
        where="sandbox",
        fix="run burnish with a Python installed under /usr, or use the `process` backend",
    )


def _log_tail(log: int) -> str:
    size = os.fstat(log).st_size
    return os.pread(log, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace")
