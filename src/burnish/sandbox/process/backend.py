"""The owner's side of the `process` backend: starts the host, asks it for sandboxes, and hears when they end."""

import asyncio
import contextlib
import itertools
import os
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence

from burnish.errors import SandboxError
from burnish.observe.emit import emit
from burnish.sandbox import images
from burnish.sandbox.asked import require_limits
from burnish.sandbox.base import HOST_IMAGE, Level, OnBytes, OnNetwork, Snapshot, SnapshotStore
from burnish.sandbox.images.location import default_store_dir
from burnish.sandbox.network import NetworkPolicy
from burnish.sandbox.process.box import ProcessBox, require_held
from burnish.sandbox.process.environment import base_environment
from burnish.sandbox.process.generation import Generation, describe_status
from burnish.sandbox.process.launch import GONE_S, HostProcess
from burnish.sandbox.process.proxied import ENVIRONMENT, BoxNetwork
from burnish.sandbox.process.snapshots import Base, LayerTable, ProcessSnapshot, require_mountable
from burnish.sandbox.process.stacks import LEAST_DISK_BYTES, Stacks
from burnish.sandbox.process.wire import Message
from burnish.types import Limits

CREATE_S = 20.0
_MAX_SPARES, _DEMAND_S = 8, 2.0
_REFILL_AFTER_S = 0.004  # the first command of who was just served comes first
_MAX_DEATHS, _DEATHS_WITHIN_S = 3, 60.0  # of hosts; one more is no accident
_ALWAYS = frozenset(
    {
        "shell", "python", "files", "snapshot", "snapshot.export", "isolation", "network_none", "confinement",
        "network_allowlist", "images", "shows_limits", "limits.cpu_time",
        "limits.wall", "limits.output", "limits.disk", "limits.pids", "limits.open_files", "reports.memory",
        "reports.usage",
    }
)  # fmt: skip
_WITH_CONTROLLER = {"memory": "limits.memory", "pids": "reports.pids", "cpu": "limits.cpu"}


class ProcessBackend:
    """Sandboxes from Linux namespaces. The host is started by the first `create`; see `SandboxBackend`.

    Belongs to the event loop of its first use. When the host dies, its sandboxes and snapshots are lost, and the next
    `create` starts another one; not when several die within a minute.
    """

    def __init__(self, *, pool: int | None = None) -> None:
        """`pool`: how many sandboxes to keep ready; None makes it as many as were asked for lately, up to eight."""
        self._pool = pool
        self._spares: deque[ProcessBox] = deque()  # made and never used
        self._recent: deque[float] = deque(maxlen=_MAX_SPARES)  # when sandboxes were asked for
        self._host: HostProcess | None = None
        self._deaths: deque[float] = deque(maxlen=_MAX_DEATHS)
        self._starting = asyncio.Lock()
        self._is_closed = False
        self._boxes: dict[str, ProcessBox] = {}  # until they are killed or dead
        self._lives: dict[str, tuple[Generation, ProcessBox]] = {}  # until the host says that they are gone
        self._bases = {HOST_IMAGE: Base()}
        self._holds = contextlib.ExitStack()  # of images that sandboxes were made from
        self._networks: set[BoxNetwork] = set()
        self._stacks = Stacks(self._post)
        self._numbers = itertools.count()
        self._environment = base_environment()

    @property
    def name(self) -> str:
        return "process"

    @property
    def level(self) -> Level:
        return "process"

    @property
    def host_pid(self) -> int | None:
        """Process id of the host; None before it was started."""
        return self._host.pid if self._host else None

    async def capabilities(self) -> frozenset[str]:
        """What this machine lets the backend do; starts the host.

        "limits.memory", "reports.pids" and "limits.cpu" need a writable control group with the controller. Without one
        the supervisor samples the memory of all processes and ends those that use too much a moment later, under a
        wider RLIMIT_DATA for each; RLIMIT_NPROC bounds the processes, but does not tell when it was hit, and with root
        it counts a sandbox and its forks together, since they share a uid; and CPU time is sampled too.
        """
        hello = await self._started()
        found = set(_ALWAYS)
        for controller in hello["controllers"]:
            found.update({_WITH_CONTROLLER[controller]} if controller in _WITH_CONTROLLER else ())
        if hello["knows_peak"]:
            found.add("reports.peak_memory")
        return frozenset(found)

    async def create(
        self,
        *,
        limits: Limits = Limits(),
        envs: Mapping[str, str] | None = None,
        snapshot: Snapshot | None = None,
        network: NetworkPolicy | None = None,
        on_network: OnNetwork | None = None,
        image: str = HOST_IMAGE,
    ) -> ProcessBox:
        """See `SandboxBackend.create`. A cancelled creation leaves nothing behind."""
        await self._started()
        if limits.num_cpus is not None or limits.cpu_s is not None:
            require_limits(limits, await self.capabilities(), self.name)
        if snapshot is not None:
            require_held(snapshot, self._stacks.table)
        assert snapshot is None or isinstance(snapshot, ProcessSnapshot)
        base = snapshot.base if snapshot else self._base_of(image)
        is_plain = snapshot is None and network is None and not base.root  # those can be made ahead
        box = self._take_spare(limits) if is_plain else None
        if box is None:
            box = self._new_box(limits, base, snapshot, network, on_network)
        proxy = ENVIRONMENT if box.network else {}
        box.envs = {**self._environment, **base.envs, **proxy, **(envs or {})}
        if is_plain:
            self._recent.append(time.monotonic())
            asyncio.get_running_loop().call_later(_REFILL_AFTER_S, self._refill, limits)
        try:
            await self.until_ready(box.generation)
        except BaseException:
            self.retire(box.generation, "its creation was given up")
            await self._close_network(box)
            raise
        self._boxes[box.id] = box
        emit("sandbox.create", id=box.id)
        return box

    async def export_snapshot(
        self, snapshot: Snapshot, store: SnapshotStore, *, timeout_s: float = 600.0, on_bytes: OnBytes | None = None
    ) -> str:
        """See `SandboxBackend.export_snapshot`."""
        require_held(snapshot, self._stacks.table)
        assert isinstance(snapshot, ProcessSnapshot)
        return await self._stacks.export_snapshot(snapshot, store, timeout_s=timeout_s, on_bytes=on_bytes)

    async def import_snapshot(
        self,
        name: str,
        store: SnapshotStore,
        *,
        disk_bytes: int = Limits().disk_bytes,
        timeout_s: float = 600.0,
        on_bytes: OnBytes | None = None,
    ) -> ProcessSnapshot:
        """See `SandboxBackend.import_snapshot`."""
        await self._started()
        assert self._host is not None
        return await self._stacks.import_snapshot(
            name, store, self._host, self._base_of, disk_bytes=disk_bytes, timeout_s=timeout_s, on_bytes=on_bytes
        )

    def _new_box(
        self,
        limits: Limits,
        base: Base,
        snapshot: ProcessSnapshot | None = None,
        policy: NetworkPolicy | None = None,
        on_network: OnNetwork | None = None,
    ) -> ProcessBox:
        name = f"{os.getpid()}-{self.host_pid}-{next(self._numbers)}"
        network = None if policy is None else BoxNetwork(name, policy, on_network)
        box = ProcessBox(name, snapshot.family if snapshot else name, limits, base, network, self)
        if network is not None:
            self._networks.add(network)
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
        if self._is_closed or self._host is None or self._host.death is not None:
            return
        now = time.monotonic()
        demand = sum(moment > now - _DEMAND_S for moment in self._recent)
        while len(self._spares) < (demand if self._pool is None else self._pool):
            self._spares.append(self._new_box(limits, Base()))

    # -- for its sandboxes -------------------------------------------------------------------------------------------

    def begin(self, box: ProcessBox, stack: tuple[str, ...]) -> Generation:
        """See `Lives.begin`."""
        assert self._host is not None
        stack = self._stacks.squashes.shorten(stack)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        name = f"{box.id}.{next(self._numbers)}"
        serve = box.network.serve if box.network else None
        generation = Generation(
            name,
            stack,
            ours,
            owns_output=not self._host.is_rootless,
            on_late=lambda: self._post({"op": "free", "box": name}),
            serve=serve,
        )
        self._lives[name] = generation, box
        self._stacks.table.hold(stack)
        request = {
            "op": "create",
            "box": name,
            "family": box.family,
            "stack": stack,
            "image": box.base.root,
            "memory_bytes": box.limits.memory_bytes,
            "num_pids": box.limits.num_pids,
            "num_cpus": box.limits.num_cpus,
            "cpu_s": box.limits.cpu_s,
            "disk_bytes": max(LEAST_DISK_BYTES, box.limits.disk_bytes - self._stacks.table.used_bytes(stack)),
            "proxied": box.network is not None,
        }
        self._host.post(request, [theirs.detach()])
        return generation

    def retire(self, generation: Generation, cause: str) -> None:
        """See `Lives.retire`."""
        generation.bury(cause)
        if generation.name in self._lives:
            self._post({"op": "kill", "box": generation.name})

    async def until_ready(self, generation: Generation) -> None:
        """See `Lives.until_ready`."""
        try:
            async with asyncio.timeout(CREATE_S):
                await asyncio.shield(generation.ready)  # others wait for it too
        except TimeoutError:
            self.retire(generation, f"not created within {CREATE_S:g} s")
            raise SandboxError(f"create: no sandbox within {CREATE_S:g} s") from None

    async def take_layer(self, box: ProcessBox, *, live: bool) -> tuple[str, ...]:
        """See `Lives.take_layer`."""
        assert self._host is not None
        stack = self._stacks.squashes.shorten(box.generation.stack)
        require_mountable(stack, 1, box.base, rootless=self._host.is_rootless, what="snapshot")
        await self.until_ready(box.generation)  # it is over since long, but for one that was just restored
        return await self._stacks.take(box.generation, box.family, live=live)

    @property
    def layers(self) -> LayerTable:
        """See `Lives.layers`."""
        return self._stacks.table

    def snapshot_of(self, box: ProcessBox, stack: tuple[str, ...], *, was_live: bool) -> ProcessSnapshot:
        """See `Lives.snapshot_of`."""
        return ProcessSnapshot(stack, box.family, box.base, self._stacks.table, was_live=was_live)

    def _base_of(self, image: str) -> Base:
        """What an image's name stands for; the image is held from now on. Raises UserError when there is none."""
        if image not in self._bases:
            held = self._holds.enter_context(images.ImageStore().hold(image))
            root = held.rootfs.relative_to(default_store_dir())
            self._bases[image] = Base(root=str(root), digest=held.digest, envs=dict(held.env))
        return self._bases[image]

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
        try:
            await self._close_network(box)
        finally:
            self._end_box(box, "it was killed")

    async def _close_network(self, box: ProcessBox) -> None:
        if box.network is not None:
            self._networks.discard(box.network)
            await box.network.close()

    def _post(self, message: Message, fds: Sequence[int] = ()) -> None:
        assert self._host is not None
        self._host.post(message, fds)

    # ----------------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Ends every sandbox, then the host; waits until it is reaped. Idempotent."""
        self._is_closed = True
        for generation, _ in self._lives.values():
            generation.bury("the sandbox backend was closed")
        try:
            await self._stacks.squashes.close()
            for network in tuple(self._networks):
                await network.close()
        finally:
            if self._host is not None:
                await self._host.close()
            self._holds.close()

    async def __aenter__(self) -> "ProcessBackend":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _started(self) -> Message:
        """What the host can do; starts one when there is none. Raises what `HostProcess` raises."""
        if self._is_closed:
            raise SandboxError("the sandbox backend was closed")
        if self._host is not None and self._host.death is None and self._host.greeting is not None:
            return self._host.greeting
        async with self._starting:  # or several would be started in place of one that died
            if self._host is not None and (death := self._host.death) is not None:
                if len(self._deaths) == _MAX_DEATHS and self._deaths[0] > time.monotonic() - _DEATHS_WITHIN_S:
                    raise death
                await self._host.close()  # until its remains are gone
                self._host = None
            if self._host is None:
                self._host = HostProcess(self._on_message, self._on_death)
            return await self._host.hello()

    def _on_message(self, message: Message) -> None:
        if "gone" in message:
            self._forget(message["gone"], f"it ended unexpectedly: {describe_status(message['status'])}")
            self._post({"op": "forget", "box": message["gone"]})
        elif "refused" in message:
            self._forget(message["refused"], f"create: {message['cause']}")
        else:
            self._stacks.jobs.finish(message)

    def _on_death(self, host: HostProcess, death: SandboxError) -> None:
        self._deaths.append(time.monotonic())
        self._spares.clear()
        for name in tuple(self._lives):
            self._forget(name, death.cause)
        self._stacks.forget(death.cause)

    def _forget(self, name: str, cause: str) -> None:
        """The host says that a life is gone; a sandbox whose life should have gone on is dead with it."""
        generation, box = self._lives.pop(name)
        cause = generation.bury(cause, evidence=self._host.log_tail() if self._host else "")
        if not generation.gone.done():
            generation.gone.set_result(None)
        self._stacks.table.release(generation.stack)
        if box.generation is generation:
            self._end_box(box, cause)

    def _end_box(self, box: ProcessBox, cause: str) -> None:
        if self._boxes.pop(box.id, None) is not None:
            emit("sandbox.kill", id=box.id, cause=cause)
