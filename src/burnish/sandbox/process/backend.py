"""The owner's side of the `process` backend: starts the host, asks it for sandboxes, and hears when they end."""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import burnish
from burnish.errors import SandboxError, UserError
from burnish.observe.emit import emit
from burnish.sandbox.base import Level, Snapshot
from burnish.sandbox.process import cgroups
from burnish.sandbox.process.box import ProcessBox, require_held
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.environment import base_environment, interpreter_prefixes
from burnish.sandbox.process.generation import Generation, describe_status
from burnish.sandbox.process.snapshots import LayerTable, ProcessSnapshot
from burnish.sandbox.process.wire import Message
from burnish.types import Limits

START_S = 20.0  # the host copies a few files and makes a dozen mounts
CREATE_S = 20.0
_MAX_SPARES, _DEMAND_S = 8, 2.0
COPY_S = 120.0  # of the files of a sandbox that goes on running
GONE_S = 10.0
REAP_S = 3.0
_LOG_BYTES = 4096
_BOOTSTRAP = (
    "import json, sys; sys.path.insert(0, json.loads(sys.argv[1])['source']); "
    "from burnish.sandbox.process.host import main; main()"
)
_ALWAYS = frozenset(
    {
        "shell", "python", "files", "snapshot", "isolation", "network_none", "confinement",
        "limits.wall", "limits.output", "limits.disk", "limits.pids", "limits.open_files", "reports.memory",
        "reports.usage",
    }
)  # fmt: skip
_LEAST_DISK_BYTES = 64 << 10  # a sandbox whose layers have used up its disk limit still has its directories
_WITH_CONTROLLER = {"memory": ("limits.memory",), "pids": ("reports.pids",)}


class ProcessBackend:
    """Sandboxes from Linux namespaces. The host is started by the first `create`; see `SandboxBackend`.

    Belongs to the event loop of its first use. A backend whose host has died stays dead: make a new one.
    """

    def __init__(self, *, pool: int | None = None) -> None:
        """`pool`: how many sandboxes to keep ready; None makes it as many as were asked for lately, up to eight."""
        self._pool = pool
        self._spares: deque[ProcessBox] = deque()  # made and never used
        self._recent: deque[float] = deque(maxlen=_MAX_SPARES)  # when sandboxes were asked for
        self._start_lock = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._hello: asyncio.Future[Message] | None = None
        self._log = -1
        self._boxes: dict[str, ProcessBox] = {}  # until they are killed or dead
        self._lives: dict[str, tuple[Generation, ProcessBox]] = {}  # until the host says that they are gone
        self._copies: dict[str, asyncio.Future[str]] = {}  # layer -> what went wrong, or nothing
        self._layers = LayerTable(self._drop_layer)
        self._family_of: dict[str, str] = {}  # layer -> family
        self._numbers = itertools.count()
        self._environment = base_environment()
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
        if hello["knows_peak"]:
            found.add("reports.peak_memory")
        return frozenset(found)

    async def create(
        self, *, limits: Limits = Limits(), envs: Mapping[str, str] | None = None, snapshot: Snapshot | None = None
    ) -> ProcessBox:
        """See `SandboxBackend.create`. A cancelled creation leaves nothing behind."""
        if snapshot is not None:
            require_held(snapshot)
        assert snapshot is None or isinstance(snapshot, ProcessSnapshot)
        await self._started()
        spare = None if snapshot is not None else self._take_spare(limits)
        box = spare or self._new_box(limits, snapshot)
        box.envs = {**self._environment, **(envs or {})}
        if snapshot is None:
            self._recent.append(time.monotonic())
            asyncio.get_running_loop().call_soon(self._refill, limits)
        try:
            await self.until_ready(box.generation)
        except BaseException:
            self.retire(box.generation, "its creation was given up")
            raise
        self._boxes[box.id] = box
        emit("sandbox.create", id=box.id)
        return box

    def _new_box(self, limits: Limits, snapshot: ProcessSnapshot | None) -> ProcessBox:
        name = f"{os.getpid()}-{self.host_pid}-{next(self._numbers)}"
        box = ProcessBox(name, snapshot.family if snapshot else name, limits, self)
        box.live(self.begin(box, snapshot.stack if snapshot else ()))
        return box

    def _take_spare(self, limits: Limits) -> ProcessBox | None:
        """One that was made ahead. Those of other limits make room for what is asked for now."""
        while self._spares:
            box = self._spares.popleft()
            if box.limits == limits and not box.generation.is_dead:
                return box
            self.retire(box.generation, "nobody wanted it")
        return None

    def _refill(self, limits: Limits) -> None:
        """Begins to make spares until there are enough, once whoever asked has what it needs."""
        if self._death is not None:
            return
        now = time.monotonic()
        demand = sum(moment > now - _DEMAND_S for moment in self._recent)
        while len(self._spares) < (demand if self._pool is None else self._pool):
            self._spares.append(self._new_box(limits, None))

    # -- for its sandboxes -------------------------------------------------------------------------------------------

    def begin(self, box: ProcessBox, stack: tuple[str, ...]) -> Generation:
        """See `Lives.begin`."""
        assert self._channel is not None and self._hello is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        name = f"{box.id}.{next(self._numbers)}"
        generation = Generation(name, stack, ours, owns_output=not self._hello.result()["hello"]["rootless"])
        self._lives[name] = generation, box
        self._layers.hold(stack)
        request = {
            "op": "create",
            "box": name,
            "family": box.family,
            "stack": stack,
            "memory_bytes": box.limits.memory_bytes,
            "num_pids": box.limits.num_pids,
            "disk_bytes": max(_LEAST_DISK_BYTES, box.limits.disk_bytes - self._layers.used_bytes(stack)),
        }
        self._channel.post(request, [theirs.detach()])
        return generation

    def retire(self, generation: Generation, cause: str) -> None:
        """See `Lives.retire`."""
        generation.bury(cause)
        if self._channel is not None and generation.name in self._lives:
            self._channel.post({"op": "kill", "box": generation.name})

    async def until_ready(self, generation: Generation) -> None:
        """See `Lives.until_ready`."""
        try:
            async with asyncio.timeout(CREATE_S):
                await generation.ready
        except TimeoutError:
            self.retire(generation, f"not created within {CREATE_S:g} s")
            raise SandboxError(f"create: no sandbox within {CREATE_S:g} s") from None

    async def take_layer(self, generation: Generation, family: str, *, live: bool) -> tuple[str, ...]:
        """See `Lives.take_layer`."""
        await self.until_ready(generation)  # it is over since long, but for one that was just restored
        layer = str(next(self._numbers))
        upper = os.dup(generation.upper)
        self._layers.weigh(layer, used_bytes(upper))
        self._family_of[layer] = family
        if live:
            await self._copy_layer(generation, layer, family, upper)
        else:
            self._post({"op": "keep", "layer": layer, "family": family}, [upper])
        return (*generation.stack, layer)

    def snapshot_of(self, stack: tuple[str, ...], family: str, *, was_live: bool) -> ProcessSnapshot:
        """See `Lives.snapshot_of`."""
        return ProcessSnapshot(stack, family, self._layers, was_live=was_live)

    async def kill(self, box: ProcessBox) -> None:
        """See `Lives.kill`."""
        self.retire(box.generation, "it was killed")
        mine = [generation.gone for generation, owner in self._lives.values() if owner is box]
        try:
            async with asyncio.timeout(GONE_S):
                for gone in mine:
                    await asyncio.shield(gone)
        except TimeoutError:
            raise SandboxError(f"sandbox {box.id}: not reclaimed within {GONE_S:g} s") from None
        self._end_box(box, "it was killed")

    async def _copy_layer(self, generation: Generation, layer: str, family: str, upper: int) -> None:
        """Stops the processes inside, copies, and lets them go on."""
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._copies[layer] = done
        cause = "interrupted"
        try:
            await generation.call({"op": "freeze"}, deadline_s=GONE_S)
            self._post({"op": "copy", "layer": layer, "family": family}, [upper])
            async with asyncio.timeout(COPY_S):
                cause = await done
        except TimeoutError:
            cause = f"copying the files took more than {COPY_S:g} s"
        finally:
            del self._copies[layer]
            if cause:
                self._layers.hold([layer])
                self._layers.release([layer])
            with contextlib.suppress(SandboxError, TimeoutError):  # a death is met by the next call
                await generation.call({"op": "thaw"}, deadline_s=GONE_S)
        if cause:
            raise SandboxError(f"snapshot: {cause}")

    def _drop_layer(self, layer: str) -> None:
        self._post({"op": "drop", "layer": layer, "family": self._family_of.pop(layer)})

    def _post(self, message: Message, fds: Sequence[int] = ()) -> None:
        if self._channel is None:
            for descriptor in fds:
                os.close(descriptor)
        else:
            self._channel.post(message, fds)

    # ----------------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Ends every sandbox, then the host; waits until it is reaped. Idempotent."""
        if self._death is None:
            self._death = SandboxError("the sandbox backend was closed")
        for generation, _ in self._lives.values():
            generation.bury("its backend was closed")
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

    def _on_message(self, message: Message, fds: list[int]) -> None:
        for descriptor in fds:  # the host sends none
            os.close(descriptor)
        if "gone" in message:
            self._forget(message["gone"], f"it ended unexpectedly: {describe_status(message['status'])}")
        elif "refused" in message:
            self._forget(message["refused"], f"create: {message['cause']}")
        elif "copied" in message:
            if (waiting := self._copies.get(message["copied"])) is not None and not waiting.done():
                waiting.set_result(message["cause"])
        elif self._hello is not None and not self._hello.done():
            self._hello.set_result(message)

    def _forget(self, name: str, cause: str) -> None:
        """The host says that a life is gone; a sandbox whose life should have gone on is dead with it."""
        generation, box = self._lives.pop(name)
        cause = generation.bury(cause, evidence=self._log_tail())
        if not generation.gone.done():
            generation.gone.set_result(None)
        self._layers.release(generation.stack)
        if box.generation is generation:
            self._end_box(box, cause)

    def _end_box(self, box: ProcessBox, cause: str) -> None:
        if self._boxes.pop(box.id, None) is not None:
            emit("sandbox.kill", id=box.id, cause=cause)

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
        for name in tuple(self._lives):
            self._forget(name, self._death.cause)
        for waiting in self._copies.values():
            if not waiting.done():
                waiting.set_result(self._death.cause)
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


def used_bytes(tree: int) -> int:
    """What the files of a file system take."""
    space = os.fstatvfs(tree)
    return (space.f_blocks - space.f_bfree) * space.f_frsize
