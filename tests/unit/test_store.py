"""The run's object store: what a folder and the memory store do alike, and what a disk that fails says."""

import asyncio
from pathlib import Path

import pytest

from burnish.errors import StoreError, UserError
from burnish.store import ExistsError, RunStore


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    return RunStore.at("memory:///" if request.param == "memory" else str(tmp_path / "objects"))


async def test_what_was_written_is_read_and_listed(store: RunStore) -> None:
    await store.put("a/2", b"two")
    await store.put("a/1", b"one")
    await store.put("b/1", b"other")
    assert await store.get("a/1") == b"one"
    assert await store.get("a/3") is None
    assert await store.list("a") == ["a/1", "a/2"]
    await store.delete(["a/1", "a/9"])
    assert await store.list("a") == ["a/2"]
    await store.delete_under("a")
    assert await store.list("a") == []
    assert await store.list("b") == ["b/1"]


async def test_of_two_creators_one_succeeds(store: RunStore) -> None:
    answers = await asyncio.gather(*(store.create("x", bytes([n])) for n in range(8)), return_exceptions=True)
    assert sum(answer is None for answer in answers) == 1
    assert all(answer is None or isinstance(answer, ExistsError) for answer in answers)
    assert await store.get("x") == bytes([answers.index(None)])


async def test_many_objects_come_in_order_without_those_that_are_gone(store: RunStore) -> None:
    keys = [f"k/{n:03d}" for n in range(40)]
    for key in keys[1:]:
        await store.put(key, key.encode())
    found = [(key, data) async for key, data in store.read_all(keys, at_once=4)]
    assert found == [(key, key.encode()) for key in keys[1:]]
    await store.settle(keys[1:])


async def test_a_folder_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    store = RunStore.at(str(tmp_path / "objects"))
    (tmp_path / "objects" / "a").write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="write a/1"):
        await store.put("a/1", b"")


def test_a_url_that_means_nothing_is_the_callers_mistake() -> None:
    with pytest.raises(UserError, match="no object store"):
        RunStore.at("ftp://nowhere/x")
