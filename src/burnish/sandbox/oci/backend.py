"""The owner's side of the `gvisor` backend: starts a launcher per sandbox and hears when it ends."""

import asyncio
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import burnish
from burnish.errors import SandboxError, UserError
from burnish.observe.emit import emit
from burnish.sandbox.asked import require_limits
from burnish.sandbox.base import CAPABILITIES, HOST_IMAGE, Level
from burnish.sandbox.oci import bundle, checkpoints
from burnish.sandbox.oci.box import OciBox
from burnish.sandbox.oci.checkpoints import Saved
from burnish.sandbox.oci.launched import Launched, visible_python
from burnish.sandbox.oci.runtimes import Runtime, find_runtime, level_of
from burnish.sandbox.oci.shipped import BOOTSTRAP, shipped_source
from burnish.sandbox.process import cgroups, seccomp
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.environment import base_environment, interpreter_prefixes
from burnish.sandbox.process.template import HOME
from burnish.sandbox.process.wire import Message
from burnish.sandbox.unexported import NoExport
from burnish.types import Limits

CREATE_S = 60.0  # gVisor takes a third of a second on an idle machine
GONE_S = 15.0
CHECKPOINT_S = 120.0
REAP_S, _REAP_EVERY_S = 1.0, 0.01
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


class OciBackend(NoExport):
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
        self._boxes: dict[str, Launched] = {}
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
        found = _ALWAYS | ({"limits.memory"} if bounded_by_kernel else set())
        return found | ({"checkpoint"} & CAPABILITIES.keys() if self.level == "gvisor" else set())

    async def create(
        self,
        *,
        limits: Limits = Limits(),
        envs: Mapping[str, str] | None = None,
        snapshot: object | None = None,
        network: object | None = None,
        on_network: object | None = None,
        image: str = HOST_IMAGE,
    ) -> OciBox:
        """See `SandboxBackend.create`. A cancelled creation leaves nothing behind."""
        if snapshot is not None:
            raise UserError("this backend restores no snapshots", where="sandbox", fix="use the `process` backend")
        if image != HOST_IMAGE:
            raise UserError("this backend mounts no images", where="sandbox", fix="use the `process` backend")
        if network is not None:
            raise UserError("this backend has no network", where="sandbox", fix="use the `process` backend")
        require_limits(limits, _ALWAYS, self.name)
        await self._started()
        assert self._options is not None
        box = await self._create(self._options, limits, envs or {})
        self._announced.add(box.id)
        emit("sandbox.create", id=box.id)
        return box

    async def restore(self, path: Path, /) -> OciBox:
        """A sandbox as it was when `box.checkpoint(path)` saved it, with its limits, files and running processes.

        What a command that was running then still prints has no receiver. The folder is only read.
        Raises UserError for a folder without a checkpoint and for runtimes that have none.
        """
        await self._started()
        self._require_checkpoints()
        folder, saved = checkpoints.load(path)
        box = await self._create(saved.options, saved.limits, {}, (folder, saved))
        self._announced.add(box.id)
        emit("sandbox.create", id=box.id)
        return box

    def _require_checkpoints(self) -> None:
        if self.level != "gvisor":
            fix = "use the runtime `runsc`"
            raise UserError(f"no memory checkpoints with {self._runtime_name}", where="sandbox", fix=fix)

    async def _checkpoint(self, box: OciBox, path: Path) -> None:
        """See `OciBox.checkpoint`."""
        self._require_checkpoints()
        launched = self._boxes.get(box.id)
        if launched is None or launched.control is None or self._options is None:
            raise SandboxError(f"sandbox {box.id}: it has ended")
        folder = checkpoints.make_folder(path)
        saved = Saved(limits=box.limits, uid=launched.uid, next_id=box.next_id, options=self._options)
        launched.control.post({"checkpoint": str(folder)})
        try:
            async with asyncio.timeout(CHECKPOINT_S):
                failure = await launched.saving
        except TimeoutError:
            failure = f"not done within {CHECKPOINT_S:g} s"
        if not failure:
            saved.store(folder)
            await self._kill(box)
            return
        evidence = launched.log_tail() if box.id in self._boxes else ""
        await self._kill(box)
        shutil.rmtree(folder, ignore_errors=True)
        raise SandboxError(f"checkpoint of {box.id}: {failure}", evidence=evidence)

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

    async def _create(
        self,
        options: tuple[str, ...],
        limits: Limits,
        envs: Mapping[str, str],
        restored: tuple[Path, Saved] | None = None,
    ) -> OciBox:
        number = next(self._numbers)
        box = OciBox(f"{self.name}-{os.getpid()}-{id(self):x}-{number}", limits, self._kill, self._checkpoint)
        uid = _FIRST_UID + os.getpid() % _NUM_OWNERS * _UIDS_PER_OWNER + number % _UIDS_PER_OWNER
        if restored is not None:
            uid, box.next_id = restored[1].uid, restored[1].next_id
        launched = self._launch(box, options, uid, str(restored[0]) if restored else "")
        try:
            async with asyncio.timeout(CREATE_S):
                await self._greet(launched, {**base_environment(), **envs}, is_new=restored is None)
        except TimeoutError:
            evidence = launched.log_tail()
            box.bury(f"not created within {CREATE_S:g} s")
            self._hang_up(box)
            raise SandboxError(f"create: no sandbox within {CREATE_S:g} s", evidence=evidence) from None
        except BaseException:
            box.bury("its creation was given up")
            self._hang_up(box)
            raise
        return box

    async def _greet(self, launched: Launched, envs: Mapping[str, str], *, is_new: bool) -> None:
        """Until the agent answers. A restored one has its source and settings."""
        box = launched.box
        if is_new:
            box.post_source(shipped_source())
        up = await box.up
        self._controllers = frozenset(up["controllers"])
        if is_new:
            box.post(self._settings(launched.uid, box.limits, envs), self._program)
            await box.ready
        else:
            await box.files.exists("/")

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

    def _launch(self, box: OciBox, options: tuple[str, ...], uid: int, restore: str) -> Launched:
        """From the loop's own thread: the launcher's parent-death signal is tied to the thread that started it."""
        settings = self._launcher_settings(box.limits, options, uid)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (from_box, box_out), (box_in, to_box) = os.pipe(), os.pipe()
        log = os.memfd_create("burnish-launcher-log", os.MFD_CLOEXEC)
        box.connect(from_box, to_box)
        settings |= {"socket": theirs.fileno(), "restore": restore}
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
            box.bury(f"the launcher could not be started: {error}")
            raise SandboxError(f"the launcher could not be started: {error}") from error
        finally:
            theirs.close()
            os.close(box_in)
            os.close(box_out)
        loop = asyncio.get_running_loop()
        launched = Launched(box, process, os.pidfd_open(process.pid), log, uid, loop.create_future())
        launched.control = Channel(ours, launched.on_event, lambda: None)
        self._boxes[box.id] = launched
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
            "args": [visible_python(), "-I", "-S", "-c", BOOTSTRAP, str(len(shipped_source()))],
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

    def _on_exit(self, launched: Launched) -> None:
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

    async def _bury(self, launched: Launched) -> None:
        box = launched.box
        code = launched.process.wait()
        if launched.control is not None:
            launched.control.close()
        if not launched.saving.done():
            launched.saving.set_result("the sandbox ended")
        cause = box.bury("it ended unexpectedly", evidence=launched.log_tail())
        os.close(launched.log)
        if code != 0:  # it was killed, and could not remove its control groups
            await self._reap_groups()
        del self._boxes[box.id]
        if not box.gone.done():
            box.gone.set_result(None)
        if box.id in self._announced:
            self._announced.remove(box.id)
            emit("sandbox.kill", id=box.id, cause=cause)
