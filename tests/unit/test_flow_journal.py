"""What is appended is what a resume finds, whatever the crash cut off."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.errors import StoreError
from burnish.flow.journal import Journal, read_journal, replay_journal
from burnish.flow.source import group_id
from burnish.testing import make_attempt
from burnish.types import Attempt, Unmeasured


def attempt_of(index: int, member: int, *, version: int = 0, reward: float = 1.0) -> Attempt:
    return make_attempt(id=f"{group_id(index)}.{member}", versions=(version,), reward=reward)


def test_records_come_back_equal_and_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    broken = make_attempt(outcome=Unmeasured(boundary="engine", cause="died", evidence="signal 9"))
    journal.attempt(attempt_of(3, 1), member=1)
    journal.attempt(broken, member=0)
    journal.step(1, trained={"g000003": ["g000003.1"]}, dropped={"g000004": "no_signal"})
    journal.drop("g000005", reason="stale")
    journal.sync()
    journal.close()
    records = list(read_journal(tmp_path))
    assert [record["kind"] for record in records] == ["attempt", "attempt", "step", "drop"]
    assert records[0]["attempt"] == attempt_of(3, 1)
    assert records[1]["attempt"] == broken
    assert records[2]["trained"] == {"g000003": ["g000003.1"]}


def test_every_life_writes_a_segment_of_its_own(tmp_path: Path) -> None:
    for index in range(3):
        journal = Journal(tmp_path)
        journal.drop(group_id(index), reason="stale")
        journal.close()
    assert [record["group"] for record in read_journal(tmp_path)] == [group_id(i) for i in range(3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001.zst", "000002.zst", "000003.zst"]


@given(cut=st.integers(0, 400))
@settings(max_examples=40)
def test_a_torn_tail_costs_the_last_record_only(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder)
    ends = []
    for index in range(3):
        journal.drop(group_id(index), reason="stale")
        ends.append((folder / "000001.zst").stat().st_size)
    journal.close()
    segment = folder / "000001.zst"
    data = segment.read_bytes()
    segment.write_bytes(data[: min(cut, len(data))])
    assert len(list(read_journal(folder))) == sum(end <= cut for end in ends)


def test_damage_in_the_middle_is_corruption_and_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for index in range(3):
        journal.drop(group_id(index), reason="stale")
    journal.close()
    segment = tmp_path / "000001.zst"
    data = bytearray(segment.read_bytes())
    data[12] ^= 0xFF
    segment.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=r"read 000001\.zst at byte 0"):
        list(read_journal(tmp_path))


def test_a_resume_keeps_finished_attempts_of_open_groups() -> None:
    records = [{"kind": "attempt", "member": m, "attempt": attempt_of(i, m)} for i in range(3) for m in range(2)] + [
        {"kind": "step", "step": 1, "trained": {"g000000": []}, "dropped": {"g000001": "no_signal"}}
    ]
    state = replay_journal(records, committed_step=1, max_lag=1)
    assert state.closed == {0, 1}
    assert {index: sorted(members) for index, members in state.attempts.items()} == {2: [0, 1]}
    assert state.num_void == 0


def test_steps_after_the_commit_are_rolled_back_and_their_attempts_used_again() -> None:
    records = [
        {"kind": "attempt", "member": 0, "attempt": attempt_of(0, 0, version=0)},
        {"kind": "step", "step": 1, "trained": {"g000000": ["g000000.0"]}, "dropped": {}},
        {"kind": "attempt", "member": 0, "attempt": attempt_of(1, 0, version=1)},
    ]
    state = replay_journal(records, committed_step=0, max_lag=0)
    assert state.closed == set()
    assert sorted(state.attempts) == [0], "version 1 was never committed, so what it sampled is void"
    assert state.num_void == 1


def test_a_version_number_of_an_earlier_life_is_not_taken_for_this_one() -> None:
    """Both lives have a version 1; only one of them exists."""
    records = [
        {"kind": "attempt", "member": 0, "attempt": attempt_of(7, 0, version=1)},
        {"kind": "resume", "step": 0},
        {"kind": "step", "step": 1, "trained": {"g000000": []}, "dropped": {}},
    ]
    state = replay_journal(records, committed_step=1, max_lag=1)
    assert state.attempts.get(7, {}) == {}
    assert (state.num_void, state.num_resumes) == (1, 1)


def test_attempts_past_the_lag_bound_and_unmeasured_ones_are_made_anew() -> None:
    broken = make_attempt(id="g000002.1", outcome=Unmeasured(boundary="engine", cause="died"))
    records = [
        {"kind": "attempt", "member": 0, "attempt": attempt_of(2, 0, version=3)},
        {"kind": "attempt", "member": 1, "attempt": broken},
        {"kind": "attempt", "member": 2, "attempt": attempt_of(2, 2, version=5)},
    ]
    state = replay_journal(records, committed_step=5, max_lag=1)
    assert sorted(state.attempts[2]) == [2]
    assert state.num_void == 1


def test_a_full_disk_is_a_store_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    journal._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115, PTH123 (the device that is always full)
    with pytest.raises(StoreError, match="No space left"):
        journal.drop("g000000", reason="stale")
    journal.close()
