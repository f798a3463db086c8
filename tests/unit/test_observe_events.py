"""The event log, its reader, and the table of events."""

import json
import re
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.errors import StoreError
from burnish.observe.emit import attached, emit
from burnish.observe.events import EventLog, effective, read_events
from burnish.observe.schema import EVENTS, OPTIONAL, validate
from tests.unit._synthetic_run import finished_run

ROOT = Path(__file__).parents[2]


def event(kind: str = "phase", /, **fields: Any) -> dict[str, Any]:
    return {"event": kind, "t": 1.0, **fields}


def test_what_is_emitted_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log, attached(log):
        emit("phase", name="load")
        emit("drop", reason="no_signal", num=8, group_id=None)
    first, second = read_events(path)
    assert first["name"] == "load"
    assert second["event"] == "drop"
    assert second["group_id"] is None
    assert first["t"] <= second["t"]


def test_an_event_is_in_the_file_before_the_log_is_closed(tmp_path: Path) -> None:
    with EventLog(tmp_path / "e") as log:
        log(event(name="load"))
        assert read_events(tmp_path / "e") == [event(name="load")]


@given(st.text(st.characters(codec=None)))
def test_any_text_stays_one_line_and_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("log") / "e"
    with EventLog(path) as log:
        log(event("sample", text=text))
        log(event(name="load"))
    assert path.read_bytes().isascii()
    assert [read.get("text") for read in read_events(path)] == [text, None]


def test_what_is_no_number_is_null_and_named(tmp_path: Path) -> None:
    with EventLog(tmp_path / "e") as log:
        log(event("step.end", loss=float("nan"), grad_norm=float("inf"), entropy=0.5))
    (read,) = read_events(tmp_path / "e")
    assert read["loss"] is None
    assert read["nonfinite"] == ["grad_norm", "loss"]
    assert read["entropy"] == 0.5


@pytest.mark.parametrize("torn", [b'{"event":"dro', b"{", b'{"event":"drop","t":1.0,"reason":"\xc3'])
def test_a_torn_last_line_is_left_out_and_cut_off_on_reopening(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "e"
    with EventLog(path) as log:
        log(event(name="load"))
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert read_events(path) == [event(name="load")]
    with EventLog(path) as log:
        assert path.read_bytes() == whole
        log(event(name="train"))
    assert [read["name"] for read in read_events(path)] == ["load", "train"]


def test_a_last_line_that_only_lost_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_text(json.dumps(event(name="load")))
    assert len(read_events(path)) == 1
    with EventLog(path) as log:
        log(event(name="train"))
    assert [read["name"] for read in read_events(path)] == ["load", "train"]


def test_the_tail_of_a_log_longer_than_a_block_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "e"
    with EventLog(path) as log:
        log(event("sample", text="x" * 200_000))
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"event":"' + b"y" * 150_000)
    EventLog(path).close()
    assert path.stat().st_size == size


@pytest.mark.parametrize("damage", [b'{"event":"dro\n', b"\n", b"[1]\n", b'{"t":1.0}\n', b"\x00\x00\n"])
def test_damage_before_the_end_names_its_line(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "e"
    line = json.dumps(event(name="load")).encode() + b"\n"
    path.write_bytes(line + damage + line)
    with pytest.raises(StoreError, match="line 2 is not an event"):
        read_events(path)


def test_a_full_disk_ends_the_log_for_good_and_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "e"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = EventLog(path)
    log(event(name="load"))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))  # room for half a line
        with pytest.raises(StoreError, match="append to"):
            log(event(name="train"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(StoreError, match="append to"):
        log(event(name="report"))
    log.close()
    assert path.read_bytes() == json.dumps(event(name="load"), separators=(",", ":")).encode() + b"\n"


def test_a_log_that_cannot_be_opened_or_read_says_where(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no/e"):
        EventLog(tmp_path / "no" / "e")
    with pytest.raises(StoreError, match="no/e"):
        read_events(tmp_path / "no" / "e")


def test_a_resume_voids_later_steps_and_samples_before_it() -> None:
    def step(number: int, mark: str) -> list[dict[str, Any]]:
        return [event("step.end", step=number, mark=mark), event("sample", step=number, mark=mark)]

    events = [*step(1, "a"), *step(2, "a"), event("drop", num=1), event("run.resume", step=1), *step(2, "b")]
    kept = [(old["event"], old.get("step"), old.get("mark")) for old in effective(events)]
    assert kept == [
        ("step.end", 1, "a"), ("sample", 1, "a"), ("drop", None, None), ("run.resume", 1, None),
        ("step.end", 2, "b"), ("sample", 2, "b"),
    ]  # fmt: skip


def test_a_synthetic_run_keeps_the_schema_and_has_every_event() -> None:
    events = finished_run(num_steps=17).events
    for one in events:
        validate(one)
    assert {one["event"] for one in events} == EVENTS.keys() - {"run.resume"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (event("nope"), "unknown event 'nope'"),
        (event("phase"), "phase: missing fields: name"),
        (event("phase", name="load", colour=1), "phase: unknown fields: colour"),
    ],
)
def test_validate_says_what_is_wrong(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validate(wrong)


def test_the_page_about_events_lists_the_table() -> None:
    listed: dict[str, set[str]] = {}
    name = ""
    for line in (ROOT / "docs/events.md").read_text().splitlines():
        row = re.match(r"\| (?:`([a-z.]+)`)? ?\| `(\w+)` \| ", line)
        if row:
            name = row.group(1) or name
            listed.setdefault(name, set()).add(row.group(2))
    assert listed == {known: {*fields, *OPTIONAL.get(known, ())} for known, fields in EVENTS.items()}
