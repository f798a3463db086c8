"""Object stores for exported snapshots, by obstore: a folder, memory, or what speaks the protocol of S3, GCS or Azure.

    store = ObjectStore.at("s3://bucket/snapshots", region="eu-central-1")

Credentials come from the environment, as obstore documents them. Archives lie there compressed, by zstd.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import obstore
import zstandard
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore, MemoryStore, from_url

from burnish.errors import SandboxError, UserError, boundary

_PIECE_BYTES = 1 << 20
_PART_BYTES, _PARTS_AT_ONCE = 8 << 20, 2  # what an upload holds in memory
_SLICE_BYTES = 1 << 10  # of compressed data at a time: it may become 32 thousand times as much
_LEVEL, _WINDOW_BYTES = 3, 8 << 20


class ObjectStore:
    """A `burnish.sandbox.base.SnapshotStore`."""

    def __init__(self, store: "obstore.store.ObjectStore") -> None:
        """`store`: any of obstore's."""
        self._store = store

    @classmethod
    def at(cls, url: str, **options: Any) -> "ObjectStore":
        """By URL: `s3://bucket/prefix`, `gs://...`, `az://...`, `memory:///`, or a folder, which is made.

        Raises UserError for a URL that means nothing.
        """
        if url == "memory:///":
            return cls(MemoryStore())
        try:
            return cls(from_url(url, **options) if "://" in url else LocalStore(url, mkdir=True))
        except (BaseError, ValueError, OSError) as error:
            raise UserError(f"no object store: {error}", where=url, fix="a folder, or s3://bucket/prefix") from error

    async def has(self, key: str) -> bool:
        """See `SnapshotStore.has`."""
        with boundary(SandboxError, during=f"asking the store for {key}"):
            try:
                await obstore.head_async(self._store, _stored(key))
            except (NotFoundError, FileNotFoundError):
                return False
            return True

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """See `SnapshotStore.read`."""
        pieces = self._read(key)
        if _is_compressed(key):
            pieces = _decompressed(pieces, key)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def write(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        """See `SnapshotStore.write`."""
        failure: list[BaseException] = []

        async def watched() -> AsyncIterator[bytes]:
            try:
                async for piece in _compressed(pieces) if _is_compressed(key) else pieces:
                    yield piece
            except BaseException as error:
                failure.append(error)  # obstore would give it another name
                raise

        with boundary(SandboxError, during=f"writing {key} to the store"):
            try:
                await obstore.put_async(
                    self._store, _stored(key), watched(), chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
                )
            except Exception:
                if failure:
                    raise failure[0] from None
                raise

    async def _read(self, key: str) -> AsyncGenerator[bytes, None]:
        with boundary(SandboxError, during=f"reading {key} from the store"):
            try:
                found = await obstore.get_async(self._store, _stored(key))
            except (NotFoundError, FileNotFoundError):
                raise UserError("the store does not have it", where=key) from None
            async for piece in found.stream(min_chunk_size=_PIECE_BYTES):
                yield bytes(piece)


def _is_compressed(key: str) -> bool:
    return key.endswith(".tar")


def _stored(key: str) -> str:
    return f"{key}.zst" if _is_compressed(key) else key


async def _compressed(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()
    async for piece in pieces:
        if data := await asyncio.to_thread(packer.compress, piece):
            yield data
    yield packer.flush()


async def _decompressed(pieces: AsyncIterator[bytes], key: str) -> AsyncGenerator[bytes, None]:
    """Whatever a stranger put there, a few megabytes are in memory. Raises UserError."""
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).decompressobj()

    def some(data: bytes, at: int) -> tuple[bytes, int]:
        """About a piece of what follows from `at` on, and where to go on."""
        parts, num_bytes = [], 0
        while at < len(data) and num_bytes < _PIECE_BYTES:
            if unpacker.eof:
                raise UserError("damaged: it goes on after its end", where=key)
            parts.append(unpacker.decompress(data[at : at + _SLICE_BYTES]))
            num_bytes += len(parts[-1])
            at += _SLICE_BYTES
        return b"".join(parts), at

    try:
        async for piece in pieces:
            at = 0
            while at < len(piece):
                data, at = await asyncio.to_thread(some, piece, at)
                if data:
                    yield data
    except zstandard.ZstdError as error:
        raise UserError(f"damaged: {error}", where=key) from error
    if not unpacker.eof or unpacker.unused_data:
        raise UserError("damaged: it is not a whole archive", where=key)
