"""Object stores for snapshots: a folder and memory, by the same code that speaks to S3."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zstandard

from burnish.errors import SandboxError, UserError
from burnish.sandbox.objects import ObjectStore


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def read(store: ObjectStore, key: str) -> bytes:
    return b"".join([piece async for piece in store.read(key)])


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return ObjectStore.at("memory:///" if request.param == "memory" else str(tmp_path / "store"))


async def test_what_was_written_is_read(store: ObjectStore) -> None:
    for key in ("layers/a.tar", "snapshots/b.json"):
        assert not await store.has(key)
        await store.write(key, pieces(b"x" * 3_000_000, b"", b"y"))
        assert await store.has(key)
        assert await read(store, key) == b"x" * 3_000_000 + b"y"
        with pytest.raises(UserError, match="does not have it"):
            await read(store, key + "-not")


async def test_a_write_that_fails_leaves_nothing(store: ObjectStore) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"x" * 20_000_000
        raise SandboxError("the job failed")

    for key in ("layers/a.tar", "snapshots/b.json"):
        with pytest.raises(SandboxError, match="the job failed"):
            await store.write(key, failing())
        assert not await store.has(key)


async def test_archives_are_compressed_and_damage_is_told(tmp_path: Path) -> None:
    store = ObjectStore.at(str(tmp_path))
    await store.write("a.tar", pieces(b"x" * 3_000_000))
    stored = tmp_path / "a.tar.zst"
    whole = stored.read_bytes()
    assert len(whole) < 10_000
    for lie in (b"", whole[:-1], whole + b"\0", whole + whole, whole[:50] + b"!" + whole[51:], b"no archive"):
        stored.write_bytes(lie)
        with pytest.raises(UserError, match="damaged"):
            await read(store, "a.tar")


async def test_what_grows_without_measure_comes_in_small_pieces(tmp_path: Path) -> None:
    store = ObjectStore.at(str(tmp_path))
    (tmp_path / "a.tar.zst").write_bytes(zstandard.ZstdCompressor(level=19).compress(bytes(200 << 20)))
    assert max([len(piece) async for piece in store.read("a.tar")]) <= 64 << 20


def test_a_url_that_means_nothing() -> None:
    with pytest.raises(UserError, match="no object store"):
        ObjectStore.at("nowhere://bucket")
