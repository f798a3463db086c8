"""Snapshots that leave the machine: layers as archives in an object store, and back.

The host packs and unpacks (archive.py, unarchive.py); what passes through here is a stream in each direction, of which
a few megabytes are in memory at a time. An archive is named by what it holds, so one that the store has is not written
again, and one that comes from it is checked against its name.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from burnish.errors import SandboxError, UserError
from burnish.sandbox.base import OnBytes, SnapshotStore
from burnish.sandbox.process import manifest as manifests
from burnish.sandbox.process.jobtable import JobTable
from burnish.sandbox.process.manifest import Layer, Manifest
from burnish.sandbox.process.snapshots import LayerTable, ProcessSnapshot
from burnish.sandbox.process.wire import Message

_CHUNK_BYTES = 256 << 10  # hashed in well under a millisecond, on the loop
_INODE_BYTES, _INODES_TO_START = 4096, 1024  # as a sandbox has for its disk limit
_LEFT_OUT_ON_HOST = "etc"  # every host writes its own below the machine's programs


class Exports:
    """Writes snapshots of one backend to object stores."""

    def __init__(self, jobs: JobTable, table: LayerTable) -> None:
        self._jobs, self._table = jobs, table
        self._known: dict[str, tuple[str, int]] = {}  # layer -> digest and bytes of its archive; layers never change

    def forget(self, layer: str) -> None:
        self._known.pop(layer, None)

    def forget_all(self) -> None:
        self._known.clear()

    async def export(
        self, snapshot: ProcessSnapshot, store: SnapshotStore, *, timeout_s: float, on_bytes: OnBytes
    ) -> str:
        """See `SandboxBackend.export_snapshot`."""
        self._table.hold(snapshot.stack)
        try:
            async with asyncio.timeout(timeout_s):
                leave_out = "" if snapshot.base.root else _LEFT_OUT_ON_HOST
                layers = [
                    await self._export_layer(layer, leave_out, store, timeout_s, on_bytes) for layer in snapshot.stack
                ]
                name, data = manifests.encode(Manifest(snapshot.base.digest or "host", tuple(layers)))
                if not await store.has(manifests.key_of(name)):
                    await store.write(manifests.key_of(name), _once(data))
                return name
        except TimeoutError:
            raise SandboxError(f"export of snapshot {snapshot.id}: not done within {timeout_s:g} s") from None
        finally:
            self._table.release(snapshot.stack)

    async def _export_layer(
        self, layer: str, leave_out: str, store: SnapshotStore, timeout_s: float, on_bytes: OnBytes
    ) -> Layer:
        if layer not in self._known:  # its name is needed before it can be written: packed once to see what it is
            sha, size = hashlib.sha256(), 0
            async with contextlib.aclosing(self._packed(layer, leave_out, timeout_s)) as pieces:
                async for piece in pieces:
                    sha.update(piece)
                    size += len(piece)
            self._known[layer] = f"sha256:{sha.hexdigest()}", size
        digest, size = self._known[layer]
        exported = Layer(digest, size)
        if await store.has(exported.key):
            on_bytes(size)
        else:
            async with (
                contextlib.aclosing(self._packed(layer, leave_out, timeout_s)) as pieces,
                contextlib.aclosing(_verified(pieces, exported, on_bytes)) as verified,
            ):
                await store.write(exported.key, verified)
        return exported

    async def _packed(self, layer: str, leave_out: str, timeout_s: float) -> AsyncGenerator[bytes, None]:
        """A layer's archive. Raises SandboxError when the job failed, before it ends."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        request = {"kind": "pack", "layer": layer, "leave_out": leave_out}
        job = asyncio.create_task(self._jobs.run(request, [writer], what="packing the files", deadline_s=timeout_s))
        try:
            while piece := await _read(reader):
                yield piece
            await job
        finally:
            os.close(reader)
            await _end(job)


async def _verified(pieces: AsyncIterator[bytes], layer: Layer, on_bytes: OnBytes) -> AsyncGenerator[bytes, None]:
    """An archive. Its last piece comes only when all of it is what its name says. Raises UserError."""
    sha, size, last = hashlib.sha256(), 0, b""
    async for piece in pieces:
        size += len(piece)
        if size > layer.num_bytes:
            break
        sha.update(piece)
        on_bytes(len(piece))
        if last:
            yield last
        last = piece
    if size != layer.num_bytes or f"sha256:{sha.hexdigest()}" != layer.digest:
        raise UserError("damaged: not what its name says", where=f"layer {layer.digest}")
    yield last


async def read_manifest(name: str, store: SnapshotStore) -> Manifest:
    """Raises UserError for one that is not there or cannot be understood."""
    data = b""
    async with contextlib.aclosing(store.read(manifests.key_of(name))) as pieces:
        async for piece in pieces:
            data += piece
            if len(data) > manifests.MAX_BYTES:
                raise UserError("too large for a manifest", where=f"snapshot {name}")
    return manifests.decode(name, data)


async def import_layer(
    jobs: JobTable,
    layer: Layer,
    store: SnapshotStore,
    request: Message,
    *,
    room_bytes: int,
    timeout_s: float,
    on_bytes: OnBytes,
) -> int:
    """Makes one layer of the host from the store; the bytes that its files take. Raises UserError, SandboxError."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    size = {"size_bytes": room_bytes, "num_inodes": room_bytes // _INODE_BYTES + _INODES_TO_START}
    what = f"unpacking layer {layer.digest}"
    job = asyncio.create_task(
        jobs.run({"kind": "unpack", **request, **size}, [reader], what=what, deadline_s=timeout_s)
    )
    try:
        try:
            async with (
                contextlib.aclosing(store.read(layer.key)) as pieces,
                contextlib.aclosing(_verified(pieces, layer, on_bytes)) as verified,
            ):
                async for piece in verified:
                    await _write(writer, piece)
        except BrokenPipeError:
            await job  # it says why it reads no more
            raise SandboxError(f"{what}: it ended early") from None
        finally:
            os.close(writer)
        return int(await job)
    finally:
        await _end(job)


async def _once(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


async def _end(job: "asyncio.Task[str]") -> None:
    """Whoever waited for it has its result, or an error of their own."""
    job.cancel()
    await asyncio.wait([job])
    if not job.cancelled():
        job.exception()


async def _read(pipe: int) -> bytes:
    """About a chunk from a pipe; empty at its end."""
    parts, num_bytes = [], 0
    while num_bytes < _CHUNK_BYTES:
        try:
            part = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            await _until_ready(asyncio.get_running_loop().add_reader, asyncio.get_running_loop().remove_reader, pipe)
            continue
        if not part:
            break
        parts.append(part)
        num_bytes += len(part)
    return b"".join(parts)


async def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(pipe, view) :]
        except BlockingIOError:
            await _until_ready(asyncio.get_running_loop().add_writer, asyncio.get_running_loop().remove_writer, pipe)


async def _until_ready(add: Callable[..., object], remove: Callable[[int], object], pipe: int) -> None:
    ready = asyncio.get_running_loop().create_future()
    add(pipe, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(pipe)
