"""What is appended is what a resume finds, whatever the crash cut off."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.errors import StoreError
from burnish.flow import journal as journal_module
from burnish.flow.journal import Journal, Tail, cut_tail, read_journal, segment_key
from burnish.flow.records import Begun, Ended, Record, Recut, Resumed, Stepped, SteppedData, Voided, attempt_of, ended
from burnish.store import RunStore
from burnish.testing import make_attempt
from burnish.types import Attempt, Unmeasured

ALL_KINDS: list[Record] = [
    Begun(id="g000003.1", group="g000003", member=1, task_id="t/0", family="t", digest="ab", seed=7),
    Stepped(id="g000003.1", index=0, step=make_attempt().trajectory.steps[0]),
    Recut(id="g000003.1", num_steps=1),
    Voided(ids=("g000003.0", "g000003.2"), reason="resume_orphan"),
    Resumed(life=1, step=4),
    ended(make_attempt(id="g000003.1", outcome=Unmeasured(boundary="engine", cause="died", evidence="signal 9"))),
]


def memory() -> RunStore:
    return RunStore.at("memory:///")


async def records_of(store: RunStore, tail: Tail | None = None) -> list[Record]:
    return [
        Stepped(id=found.id, index=found.index, step=found.whole()) if isinstance(found, SteppedData) else found
        async for found in read_journal(store, tail)
    ]


async def test_records_come_back_equal_and_in_order() -> None:
    store = memory()
    async with await Journal.open(store) as journal:
        for record in ALL_KINDS:
            journal.append(record)
    assert await records_of(store) == ALL_KINDS


@pytest.mark.parametrize("outcome", [None, Unmeasured(boundary="engine", cause="died", evidence="signal 9")])
def test_an_attempt_is_what_its_records_say(outcome: Unmeasured | None) -> None:
    attempt = make_attempt(outcome=outcome, answers=((4, 5), (6,)), versions=(3, 4))
    begun = Begun(id="g000000.0", group="g000000", member=0, task_id="t/0", family="t", digest="ab", seed=7)
    assert attempt_of(begun, attempt.trajectory.steps, ended(attempt)) == attempt


async def test_what_is_appended_is_written_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "FLUSH_S", 0.01)
    store = memory()
    journal = await Journal.open(store)
    writing = asyncio.create_task(journal.run())
    journal.append(ALL_KINDS[0])
    async with asyncio.timeout(5):
        while journal.last_segment == 0:  # noqa: ASYNC110 (the store has no event)
            await asyncio.sleep(0.01)
    assert await records_of(store) == ALL_KINDS[:1], "the process may die now"
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_whoever_appends_more_than_the_store_takes_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_SEGMENT_BYTES", 50)
    monkeypatch.setattr(journal_module, "MAX_BUFFER_BYTES", 100)
    journal = await Journal.open(memory())
    await journal.room()
    for record in ALL_KINDS:
        journal.append(record)
    waiting = asyncio.create_task(journal.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await journal.flush()
    await waiting


async def test_every_life_goes_on_after_the_last_segment() -> None:
    store = memory()
    for life in range(3):
        async with await Journal.open(store) as journal:
            journal.append(Resumed(life=life, step=0))
    assert await records_of(store) == [Resumed(life=life, step=0) for life in range(3)]
    assert await store.list("journal") == [segment_key(n) for n in (1, 2, 3)]


@given(cut=st.integers(0, 2000))
@settings(max_examples=60)
def test_a_torn_tail_costs_its_own_segment_only(cut: int) -> None:
    async def check() -> None:
        store = memory()
        for index in range(3):
            async with await Journal.open(store) as journal:
                journal.append(Resumed(life=index, step=0))
        last = await store.get(segment_key(3))
        assert last is not None
        await store.put(segment_key(3), last[:cut])
        tail = Tail()
        found = await records_of(store, tail)
        whole = cut >= len(last)
        assert len(found) == (3 if whole else 2)
        assert tail.torn == (None if whole else segment_key(3))
        await cut_tail(store, tail)
        async with await Journal.open(store) as journal:
            journal.append(Resumed(life=9, step=0))
        assert (await records_of(store))[-1] == Resumed(life=9, step=0)

    asyncio.run(check())


@pytest.mark.parametrize("damage", ["flip", "shorten", "remove"])
async def test_damage_in_the_middle_is_corruption_and_named(damage: str) -> None:
    store = memory()
    for index in range(3):
        async with await Journal.open(store) as journal:
            journal.append(Resumed(life=index, step=0))
    data = bytearray(await store.get(segment_key(2)) or b"")
    if damage == "remove":
        await store.delete([segment_key(2)])
    else:
        data[20] ^= 0xFF
        await store.put(segment_key(2), bytes(data[: -3 if damage == "shorten" else None]))
    with pytest.raises(StoreError, match=r"00000002\.seg"):
        await records_of(store)


async def test_two_writers_of_one_journal_are_found_out() -> None:
    store = memory()
    first, second = await Journal.open(store), await Journal.open(store)
    first.append(Resumed(life=0, step=0))
    second.append(Resumed(life=1, step=0))
    await first.flush()
    with pytest.raises(StoreError, match="another process is writing"):
        await second.flush()


class Flaky(RunStore):
    """Refuses now and then; sometimes it has done what it was asked all the same."""

    def __init__(self, inner: RunStore, fates: list[str]) -> None:
        super().__init__(inner._store, url=inner.url)
        self._fates = fates

    async def create(self, key: str, data: bytes) -> None:
        fate = self._fates.pop(0) if self._fates else "done"
        if fate != "refused":
            await super().create(key, data)
        if fate != "done":
            raise StoreError(f"create {key}: connection reset")


async def test_a_store_that_refuses_is_asked_again_and_nothing_is_there_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_module, "_RETRY_S", 0.0)
    inner = memory()
    flaky = Flaky(inner, ["refused", "lost", "done", "refused", "refused", "lost"])
    for record in ALL_KINDS[:3]:
        async with await Journal.open(flaky) as journal:
            journal.append(record)
    assert await records_of(inner) == ALL_KINDS[:3]


async def test_a_store_that_refuses_for_good_ends_the_writer_and_keeps_the_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_module, "_RETRY_S", 0.0)
    inner = memory()
    journal = await Journal.open(Flaky(inner, ["refused"] * 6))
    journal.append(ALL_KINDS[0])
    with pytest.raises(StoreError, match="connection reset"):
        await journal.flush()
    await journal.flush()
    assert await records_of(inner) == ALL_KINDS[:1]


async def test_a_folder_that_cannot_be_written_is_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_RETRY_S", 0.0)
    (tmp_path / "journal").write_text("in the way")
    journal = Journal(RunStore.at(str(tmp_path)), next_segment=1)
    journal.append(ALL_KINDS[0])
    with pytest.raises(StoreError, match="create journal"):
        await journal.flush()


def test_an_end_without_an_outcome_is_refused() -> None:
    begun = ALL_KINDS[0]
    assert isinstance(begun, Begun)
    with pytest.raises(ValueError, match="without an outcome"):
        attempt_of(begun, (), Ended(id="g000003.1", num_steps=0, stop_reason="max_turns"))


def test_only_one_outcome_is_written() -> None:
    attempt: Attempt = make_attempt()
    assert (ended(attempt).measured is None) != (ended(attempt).unmeasured is None)
