"""The audit log: its chain holds, and every change to the file shows."""

import asyncio
import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.errors import StoreError, UserError
from burnish.sandbox.audit import GENESIS, AuditLog, verify_audit
from burnish.sandbox.audited import AuditedBackend
from burnish.sandbox.memory import MemoryBackend


def write_log(path: Path, num_lines: int = 5) -> str:
    log = AuditLog(path)
    for number in range(num_lines):
        log.record("exec", sandbox="a", argv=["echo", str(number)], strange='ü\n","digest":"')
    log.close()
    log.close()
    return log.head


def test_a_chain_holds_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.jsonl"
    head = write_log(path)
    report = verify_audit(path)
    assert (report.num_lines, report.head, report.problem) == (5, head, "")
    write_log(path, 2)
    report = verify_audit(path)
    assert (report.num_lines, report.problem) == (7, "")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["number"] for event in events] == list(range(7))
    assert events[0]["previous"] == GENESIS and events[1]["previous"] == events[0]["digest"]


def test_an_empty_log_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 0)
    assert verify_audit(path).problem == ""
    with pytest.raises(UserError, match="no such file"):
        verify_audit(tmp_path / "none")


def test_removed_and_moved_lines_show(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path)
    lines = path.read_text().splitlines(keepends=True)
    for changed in (lines[1:], lines[:2] + lines[3:], [lines[1], lines[0], *lines[2:]], [*lines, lines[-1]]):
        path.write_text("".join(changed))
        assert "missing" in verify_audit(path).problem
    path.write_text("".join(lines[:3]))
    assert verify_audit(path).problem == ""  # a cut end is a shorter log; only a head kept elsewhere tells


@given(position=st.integers(min_value=0), byte=st.integers(min_value=0, max_value=255))
def test_any_altered_byte_shows(tmp_path_factory: pytest.TempPathFactory, position: int, byte: int) -> None:
    path = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    write_log(path, 3)
    data = bytearray(path.read_bytes())
    position %= len(data)
    was = data[position]
    data[position] = byte
    path.write_bytes(data)
    assert (verify_audit(path).problem == "") == (was == byte)


def test_a_torn_line_is_cut_and_said(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 3)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"number":3,"t":1')
    assert "cut off" in verify_audit(path).problem
    write_log(path, 0)
    report = verify_audit(path)
    assert (report.num_lines, report.problem) == (4, "")
    assert json.loads(path.read_text().splitlines()[-1])["event"] == "audit.torn"


def test_a_broken_chain_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write_log(path, 3)
    path.write_text(path.read_text().replace('"echo","1"', '"echo","7"'))
    before = path.read_bytes()
    with pytest.raises(UserError, match="line 2: it was altered"):
        AuditLog(path)
    assert path.read_bytes() == before


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    with pytest.raises(UserError, match="another process writes it"):
        AuditLog(path)
    log.close()
    AuditLog(path).close()


async def test_a_line_that_cannot_be_written_ends_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record("kept")
    await asyncio.sleep(0)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("burnish.sandbox.audit.os.write", full)
        log.record("lost")
        await asyncio.sleep(0)
    with pytest.raises(StoreError, match="No space left on device"):
        log.record("refused")
    log.close()
    assert verify_audit(tmp_path / "audit.jsonl").num_lines == 1


async def test_lines_of_one_turn_are_written_together(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(10):
        log.record("exec", number_of=number)
    head = log.head
    log.close()
    report = verify_audit(tmp_path / "audit.jsonl")
    assert (report.num_lines, report.head, report.problem) == (10, head, "")


async def test_code_is_recorded_like_a_command(tmp_path: Path) -> None:
    backend = AuditedBackend(MemoryBackend(), AuditLog(tmp_path / "audit.jsonl"))
    async with await backend.create() as box:
        await box.commands.run_code("python", "print('ü')" + " " * 10_000, stdin=b"in", cwd="sub")
    await backend.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    (line,) = (line for line in lines if line["event"] == "exec")
    assert (line["language"], line["code_bytes"], line["stdin_bytes"], line["cwd"]) == ("python", 10_011, 2, "sub")
    assert line["code"].startswith("print('ü')  ") and len(line["code"]) < 2001 and line["exit_code"] == 127
