"""Object stores for exported snapshots, by obstore: a folder, memory, or what speaks the protocol of S3, GCS or Azure.

    store = ObjectStore.at("s3://bucket/snapshots", region="eu-central-1")

Credentials come from the environment, as obstore documents them.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import obstore
from obstore.exceptions import NotFoundError
from obstore.store import LocalStore, MemoryStore, from_url

from burnish.errors import SandboxError, UserError, boundary

_PIECE_BYTES = 1 << 20
_PART_BYTES, _PARTS_AT_ONCE = 8 << 20, 2  # what an upload holds in memory


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
        if "://" not in url:
            return cls(LocalStore(url, mkdir=True))
        try:
            return cls(from_url(url, **options))
        except Exception as error:  # whatever obstore calls it
            raise UserError(
                f"no object store: {error}", where=url, fix="a folder, or a URL such as s3://bucket"
            ) from error

    async def size(self, key: str) -> int | None:
        """See `SnapshotStore.size`."""
        with boundary(SandboxError, during=f"asking the store for {key}"):
            try:
                return int((await obstore.head_async(self._store, key))["size"])
            except (NotFoundError, FileNotFoundError):
                return None

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """See `SnapshotStore.read`."""
        with boundary(SandboxError, during=f"reading {key} from the store"):
            try:
                found = await obstore.get_async(self._store, key)
            except (NotFoundError, FileNotFoundError):
                raise UserError("the store does not have it", where=key) from None
            async for piece in found.stream(min_chunk_size=_PIECE_BYTES):
                data = bytes(piece)
                for at in range(0, len(data), _PIECE_BYTES):
                    yield data[at : at + _PIECE_BYTES]

    async def write(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        """See `SnapshotStore.write`."""
        failure: list[BaseException] = []

        async def watched() -> AsyncIterator[bytes]:
            try:
                async for piece in pieces:
                    yield piece
            except BaseException as error:
                failure.append(error)  # obstore would give it another name
                raise

        with boundary(SandboxError, during=f"writing {key} to the store"):
            try:
                await obstore.put_async(
                    self._store, key, watched(), chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
                )
            except Exception:
                if failure:
                    raise failure[0] from None
                raise
