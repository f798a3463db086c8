"""How stacks of layers come to be, on the owner's side: from sandboxes, and from exported snapshots."""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Sequence

from burnish.errors import SandboxError
from burnish.sandbox.base import HOST_IMAGE, OnBytes, SnapshotStore
from burnish.sandbox.process.generation import Generation
from burnish.sandbox.process.jobtable import JobTable
from burnish.sandbox.process.launch import GONE_S, HostProcess
from burnish.sandbox.process.portable import Exports, import_layer, read_manifest
from burnish.sandbox.process.snapshots import Base, LayerTable, ProcessSnapshot, require_mountable
from burnish.sandbox.process.squashing import Squashes
from burnish.sandbox.process.wire import Message

COPY_S = 120.0  # of the files of a sandbox that goes on running
LEAST_DISK_BYTES = 64 << 10  # a sandbox whose layers have used up its disk limit still has its directories


class Stacks:
    """The layers of one backend, whichever host keeps them."""

    def __init__(self, post: Callable[[Message, Sequence[int]], None]) -> None:
        """`post`: to the host."""
        self._post = post
        self.table = LayerTable(self._drop)
        self.jobs = JobTable(post)
        self._exports = Exports(self.jobs, self.table)
        self.squashes = Squashes(self.jobs, self.table, self._name, self._drop)
        self._families: dict[str, str] = {}  # of the layers that the host has heard of
        self._numbers = itertools.count()

    async def take(self, generation: Generation, family: str, *, live: bool) -> tuple[str, ...]:
        """See `Lives.take_layer`."""
        layer, upper = self._name(family), os.dup(generation.upper)
        if live:
            await self._copy(generation, layer, family, upper)
        else:
            self.table.weigh(layer, _used_bytes(upper))
            self._post({"op": "keep", "layer": layer, "family": family}, [upper])
        stack = (*self.squashes.shorten(generation.stack), layer)
        self.squashes.begin(stack, family)
        return stack

    async def _copy(self, generation: Generation, layer: str, family: str, upper: int) -> None:
        """Stops the processes inside, copies, and lets them go on."""
        try:
            await generation.freeze(deadline_s=GONE_S)
        except BaseException:
            os.close(upper)
            self._families.pop(layer, None)  # the host has not heard of it, or has died
            await _thaw_anyway(generation)
            raise
        size, done = _used_bytes(upper), False
        try:
            request = {"kind": "copy", "layer": layer, "family": family}
            try:
                await self.jobs.run(request, [upper], what="copying the files", deadline_s=COPY_S)
            except BaseException:
                await _thaw_anyway(generation)
                raise
            await generation.thaw(deadline_s=GONE_S)
            done = True
        finally:
            if not done:
                self._drop(layer)
        self.table.weigh(layer, size)

    async def export_snapshot(
        self, snapshot: ProcessSnapshot, store: SnapshotStore, *, timeout_s: float, on_bytes: OnBytes | None
    ) -> str:
        """See `SandboxBackend.export_snapshot`."""
        return await self._exports.export(snapshot, store, timeout_s=timeout_s, on_bytes=on_bytes or _ignore)

    async def import_snapshot(
        self,
        name: str,
        store: SnapshotStore,
        host: HostProcess,
        base_of: Callable[[str], Base],
        *,
        disk_bytes: int,
        timeout_s: float,
        on_bytes: OnBytes | None,
    ) -> ProcessSnapshot:
        """See `SandboxBackend.import_snapshot`."""
        made: list[str] = []
        try:
            async with asyncio.timeout(timeout_s):
                manifest = await read_manifest(name, store)
                base = base_of(HOST_IMAGE if manifest.base == "host" else manifest.base)
                require_mountable((), len(manifest.layers), base, rootless=host.is_rootless, what="import")
                family = f"import-{host.pid}-{next(self._numbers)}"
                for part in manifest.layers:
                    layer = self._name(family)
                    made.append(layer)
                    request = {"layer": layer, "family": family, "on_host": not base.root, "is_lowest": len(made) == 1}
                    used = await import_layer(
                        self.jobs, part, store, request,
                        room_bytes=max(disk_bytes, LEAST_DISK_BYTES), timeout_s=timeout_s, on_bytes=on_bytes or _ignore,
                    )  # fmt: skip
                    disk_bytes -= used
                    self.table.weigh(layer, used)
            if host.death is not None:
                raise SandboxError(f"import of snapshot {name}: the sandbox host died meanwhile")
            return ProcessSnapshot(tuple(made), family, base, self.table, was_live=False)
        except BaseException as error:
            for layer in made:
                self.table.unweigh(layer)
                self._drop(layer)
            if isinstance(error, TimeoutError):
                raise SandboxError(f"import of snapshot {name}: not done within {timeout_s:g} s") from None
            raise

    def forget(self, cause: str) -> None:
        """Their host is gone, and all layers and jobs with it."""
        self.jobs.give_up(cause)
        self.table.forget()
        self._families.clear()
        self._exports.forget_all()
        self.squashes.forget()

    def _name(self, family: str) -> str:
        layer = str(next(self._numbers))
        self._families[layer] = family
        return layer

    def _drop(self, layer: str) -> None:
        self._exports.forget(layer)
        self.squashes.dropped(layer)
        if self._families.pop(layer, None) is not None:  # else it was lost with its host
            self._post({"op": "drop", "layer": layer}, ())


async def _thaw_anyway(generation: Generation) -> None:
    with contextlib.suppress(SandboxError, TimeoutError):  # a death is met by the next call
        await generation.thaw(deadline_s=GONE_S)


def _used_bytes(tree: int) -> int:
    """What the files of a file system take."""
    space = os.fstatvfs(tree)
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def _ignore(num_bytes: int) -> None:
    pass
