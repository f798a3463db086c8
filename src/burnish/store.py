"""A run's object store: a folder, or anything that speaks the protocol of S3, GCS or Azure, through obstore.

Objects are written whole and never change; `create` is the one conditional operation, which both a folder and S3 have
(`If-None-Match: *`), so everything that must happen once is a name that can be created once.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, MemoryStore, from_url

from burnish.errors import StoreError, UserError, boundary

STORE_TIMEOUT_S = 60.0
"""A single operation that takes longer has failed."""
_LISTED_AT_ONCE = 1000


class ExistsError(Exception):
    """There is an object of that name already: somebody else was first, or we were, and the answer got lost."""


class RunStore:
    """Named bytes. Everything raises StoreError when the store fails or does not answer in time.

    Example:
        store = RunStore.at("s3://bucket/runs/quickstart-1")
        await store.create("manifests/00000001.json", b"{}")
    """

    def __init__(self, store: "obstore.store.ObjectStore", *, url: str, folder: Path | None = None) -> None:
        """`folder`: where a store of this machine's files lies, so that writes can be made to survive a power cut."""
        self._store, self._folder = store, folder
        self.url = url

    @classmethod
    def at(cls, url: str, **options: Any) -> "RunStore":
        """By URL: `s3://bucket/prefix`, `gs://...`, `az://...`, `memory:///`, or a folder, which is made.

        Credentials come from the environment, as obstore documents them. Raises UserError for a URL that means nothing.
        """
        try:
            if url == "memory:///":
                return cls(MemoryStore(), url=url)
            if "://" in url:
                return cls(from_url(url, **options), url=url)
            return cls(LocalStore(url, automatic_cleanup=True, mkdir=True), url=url, folder=Path(url))
        except (BaseError, ValueError, OSError) as error:
            raise UserError(f"no object store: {error}", where=url, fix="a folder, or s3://bucket/prefix") from error

    async def create(self, key: str, data: bytes) -> None:
        """Writes an object that must not exist yet. Raises ExistsError when it does; of two at once, one succeeds."""
        with boundary(StoreError, during=f"create {key}"):
            try:
                async with asyncio.timeout(STORE_TIMEOUT_S):
                    await obstore.put_async(self._store, key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                exists = True
            else:
                exists = False
        if exists:
            raise ExistsError(key)

    async def put(self, key: str, data: bytes) -> None:
        """Writes an object, in place of an older one."""
        with boundary(StoreError, during=f"write {key}"):
            async with asyncio.timeout(STORE_TIMEOUT_S):
                await obstore.put_async(self._store, key, data)

    async def get(self, key: str) -> bytes | None:
        """An object's bytes; None when there is none."""
        with boundary(StoreError, during=f"read {key}"):
            try:
                async with asyncio.timeout(STORE_TIMEOUT_S):
                    found = await obstore.get_async(self._store, key)
                    return bytes(await found.bytes_async())
            except (NotFoundError, FileNotFoundError):
                return None

    async def list(self, prefix: str) -> list[str]:
        """The names under a prefix (a folder, no half names), sorted."""
        names: list[str] = []
        with boundary(StoreError, during=f"list {prefix}"):
            async with asyncio.timeout(STORE_TIMEOUT_S):
                async for chunk in obstore.list(self._store, prefix, chunk_size=_LISTED_AT_ONCE):
                    names += [entry["path"] for entry in chunk]
        return sorted(names)

    async def delete(self, keys: Iterable[str]) -> None:
        """Removes objects; those that are not there are no error."""
        with boundary(StoreError, during="delete"):
            async with asyncio.timeout(STORE_TIMEOUT_S):
                for key in keys:
                    try:
                        await obstore.delete_async(self._store, key)
                    except (NotFoundError, FileNotFoundError):
                        continue

    async def delete_under(self, prefix: str) -> None:
        """Removes everything under a prefix."""
        await self.delete(await self.list(prefix))

    async def settle(self, keys: Iterable[str]) -> None:
        """These objects survive a power cut after this. A store that is not this machine's own has seen to that."""
        if self._folder is not None:
            folder = self._folder
            with boundary(StoreError, during="flush to the disk"):
                await asyncio.to_thread(_flush, [folder / key for key in keys])

    async def read_all(self, keys: Iterable[str], *, at_once: int = 16) -> AsyncIterator[tuple[str, bytes]]:
        """Objects in the order of `keys`, some of them fetched ahead. One that has gone meanwhile is left out."""
        waiting: list[tuple[str, asyncio.Task[bytes | None]]] = []
        try:
            for key in keys:
                waiting.append((key, asyncio.create_task(self.get(key))))
                if len(waiting) >= at_once:
                    name, task = waiting.pop(0)
                    if (data := await task) is not None:
                        yield name, data
            while waiting:
                name, task = waiting.pop(0)
                if (data := await task) is not None:
                    yield name, data
        finally:
            for _, task in waiting:
                task.cancel()
            await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)


def _flush(paths: list[Path]) -> None:
    for path in [*paths, *{path.parent for path in paths}]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
