"""Any backend as a fleet: every sandbox under a lease, so many at once and no more, creations tried again.

create ──► a place (fair, with a deadline) ──► the backend, up to `retries` more times ──► a lease
a clock runs out ──► event `sandbox.expire` ──► killed; whoever uses it afterwards hears which clock it was
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence

from burnish.errors import SandboxError
from burnish.observe.emit import emit
from burnish.sandbox.audited import trajectory
from burnish.sandbox.base import (
    HOST_IMAGE,
    Level,
    OnBytes,
    OnNetwork,
    SandboxBackend,
    SandboxBox,
    Snapshot,
    SnapshotStore,
)
from burnish.sandbox.fleet.box import FleetBox
from burnish.sandbox.fleet.lease import Clock, Lease, require_positive
from burnish.sandbox.fleet.listing import Listing
from burnish.sandbox.fleet.places import Places
from burnish.sandbox.network import NetworkPolicy
from burnish.types import Limits

RETRIES = 2
WAIT_S = 600.0
_LEAST_NAP_S = 0.001
_BACKOFF_S = 0.1  # before the first retry, doubled for each that follows


class Fleet:
    """See `SandboxBackend`; closes the backend inside with itself.

    Example: Fleet(ProcessBackend(), max_live=64, ttl_s=3600, idle_timeout_s=300)
    """

    def __init__(
        self,
        backend: SandboxBackend,
        *,
        max_live: int | None = None,
        ttl_s: float | None = None,
        idle_timeout_s: float | None = None,
        wait_s: float = WAIT_S,
        retries: int = RETRIES,
        listed: bool = False,
        clock: Clock = time.monotonic,
    ) -> None:
        """Raises UserError for a number out of range.

        Args:
            backend: what the sandboxes are made of.
            max_live: sandboxes at once, forks included; None is no bound.
            ttl_s: the life of a sandbox until its lease is renewed; None is no end.
            idle_timeout_s: how long a sandbox may go without a command or file operation; None is no end.
            wait_s: how long a creation waits for a place.
            retries: of a creation that failed with a SandboxError.
            listed: whether `burnish sandbox ls` shows its sandboxes, and its other verbs reach them.
            clock: seconds; for tests.
        """
        require_positive(ttl_s=ttl_s, idle_timeout_s=idle_timeout_s, wait_s=wait_s)
        self._backend, self._clock = backend, clock
        self._ttl_s, self._idle_timeout_s = ttl_s, idle_timeout_s
        self._wait_s, self._retries = wait_s, retries
        self._places = Places(max_live)
        self._boxes: dict[str, FleetBox] = {}
        self._killing: set[asyncio.Task[None]] = set()
        self._listing = Listing(self) if listed else None
        self._is_closed = False

    @property
    def name(self) -> str:
        return self._backend.name

    @property
    def level(self) -> Level:
        return self._backend.level

    @property
    def boxes(self) -> Sequence[FleetBox]:
        """Those that live, oldest first."""
        return tuple(self._boxes.values())

    @property
    def backend(self) -> SandboxBackend:
        """What the sandboxes are made of."""
        return self._backend

    async def capabilities(self) -> frozenset[str]:
        return await self._backend.capabilities()

    async def create(
        self,
        *,
        limits: Limits = Limits(),
        envs: Mapping[str, str] | None = None,
        snapshot: Snapshot | None = None,
        network: NetworkPolicy | None = None,
        on_network: OnNetwork | None = None,
        image: str = HOST_IMAGE,
        ttl_s: float | None = None,
        idle_timeout_s: float | None = None,
    ) -> FleetBox:
        """See `SandboxBackend.create`. `ttl_s` and `idle_timeout_s` None take the fleet's.

        Raises SandboxError also when no place is free in time.
        """
        lease = self._lease(
            self._ttl_s if ttl_s is None else ttl_s,
            self._idle_timeout_s if idle_timeout_s is None else idle_timeout_s,
        )
        self._check_open()
        if self._listing is not None:
            await self._listing.start()
        await self._places.take(1, wait_s=self._wait_s)
        try:
            self._check_open()
            for attempt in range(self._retries + 1):
                try:
                    box = await self._backend.create(
                        limits=limits,
                        envs=envs,
                        snapshot=snapshot,
                        network=network,
                        on_network=on_network,
                        image=image,
                    )
                    break
                except SandboxError as error:
                    if attempt == self._retries or self._is_closed:
                        raise
                    emit("sandbox.retry", cause=error.cause, retry=attempt + 1)
                    await asyncio.sleep(_BACKOFF_S * 2**attempt)
        except BaseException:
            self._places.give_back(1)
            raise
        lease.renew()  # its life begins now
        return self._adopt(box, lease, snapshot.id if snapshot else image)

    async def export_snapshot(
        self, snapshot: Snapshot, store: SnapshotStore, *, timeout_s: float = 600.0, on_bytes: OnBytes | None = None
    ) -> str:
        """See `SandboxBackend.export_snapshot`."""
        return await self._backend.export_snapshot(snapshot, store, timeout_s=timeout_s, on_bytes=on_bytes)

    async def import_snapshot(
        self,
        name: str,
        store: SnapshotStore,
        *,
        disk_bytes: int = Limits().disk_bytes,
        timeout_s: float = 600.0,
        on_bytes: OnBytes | None = None,
    ) -> Snapshot:
        """See `SandboxBackend.import_snapshot`."""
        return await self._backend.import_snapshot(
            name, store, disk_bytes=disk_bytes, timeout_s=timeout_s, on_bytes=on_bytes
        )

    async def fork(self, parent: FleetBox, inner: SandboxBox, n: int) -> list[FleetBox]:
        """For its sandboxes: copies take places and get leases like their parent's."""
        await self._places.take(max(n, 0), wait_s=self._wait_s)
        try:
            copies = await inner.fork(n)
        except BaseException:
            self._places.give_back(max(n, 0))
            raise
        limits = parent.lease.limits
        return [
            self._adopt(copy, self._lease(limits["ttl_s"], limits["idle_timeout_s"]), parent.origin) for copy in copies
        ]

    def forget(self, box: FleetBox) -> None:
        """For its sandboxes: one has ended. Idempotent."""
        if self._boxes.pop(box.id, None) is not None:
            self._changed()
            self.watch(box)
            self._places.give_back(1)

    def expire(self) -> None:
        """Begins to end the sandboxes whose clocks ran out. By itself it comes to that in time."""
        for box in self.boxes:
            self.watch(box)

    async def close(self) -> None:
        """Ends every sandbox and the backend. Idempotent."""
        self._is_closed = True
        if self._listing is not None:
            await self._listing.close()
        await asyncio.gather(*self._killing, return_exceptions=True)
        try:
            await self._backend.close()
        finally:
            for box in self.boxes:
                await box.let_go()

    async def __aenter__(self) -> "Fleet":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise SandboxError("the sandbox backend was closed")

    def _changed(self) -> None:
        if self._listing is not None:
            self._listing.changed()

    def _lease(self, ttl_s: float | None, idle_timeout_s: float | None) -> Lease:
        return Lease(ttl_s=ttl_s, idle_timeout_s=idle_timeout_s, clock=self._clock)

    def _adopt(self, inner: SandboxBox, lease: Lease, origin: str) -> FleetBox:
        box = FleetBox(inner, self, lease, origin=origin, trajectory=trajectory.get())
        self._boxes[box.id] = box
        self._changed()
        self.watch(box)
        return box

    def watch(self, box: FleetBox) -> None:
        """Ends it if a clock ran out; otherwise looks again when one may have. A use only moves that moment back."""
        if box.alarm is not None:
            box.alarm.cancel()
            box.alarm = None
        if box.id not in self._boxes or self._is_closed:
            return
        if box.lease.expired():
            box.end_lease()
            task = asyncio.create_task(_kill(box), name="sandbox:expire")
            self._killing.add(task)
            task.add_done_callback(self._killing.discard)
        elif (left_s := box.lease.left_s()) is not None:
            box.alarm = asyncio.get_running_loop().call_later(max(left_s, _LEAST_NAP_S), self.watch, box)


async def _kill(box: FleetBox) -> None:
    trajectory.set(box.trajectory)  # of this task, which any other one may have begun
    with contextlib.suppress(SandboxError):  # not reclaimed in time; the host goes on trying
        await box.kill()
