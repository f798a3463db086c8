"""`write_report` and `render_terminal` over whole and broken run directories, read as a browser would read them."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from burnish.errors import StoreError, UserError
from burnish.observe.events import read_events
from burnish.observe.report import render_terminal, write_report
from tests.unit._synthetic_run import FINAL, HOSTILE, SyntheticRun, finished_run, write_run_directory


class Page(HTMLParser):
    """Collects tags, attributes and text; checks that tags nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(run_dir: Path) -> Page:
    page = Page(write_report(run_dir).read_text("utf-8"))
    assert page.open == []
    return page


def terminal_of(run_dir: Path, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(render_terminal(run_dir))
    return console.export_text()


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_run_directory(tmp_path / "run", finished_run(), final=FINAL)


def test_the_page_tells_the_whole_run(whole: Path) -> None:
    page = page_of(whole)
    for fact in (
        "The pass rate rose from 15.1 % to 52.4 % (+37.3 points, 95 % interval +27.0 to +47.0).",
        "Reward", "Pass rate by family", "Pass rate by band", "fix_off_by_one", "hard", "Length", "Entropy",
        "Gap between engine and learner", "Seconds per step", "Tokens per second", "no_signal",
        "No space left on device", "passed_visible", "Lag", "Best", "Worst",
        "def count_even(numbers):", "lr: 2.0e-05", "5f" * 32,
    ):  # fmt: skip
        assert fact in page.text, fact
    assert sum(tag == "svg" for tag, _ in page.tags) == 16


def test_the_page_asks_nobody_for_anything(whole: Path) -> None:
    page = page_of(whole)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "base", "form", "a"}
    assert not any({"src", "href", "srcset"} & attrs.keys() for _, attrs in page.tags)
    assert "url(" not in write_report(whole).read_text()
    policy = next(attrs["content"] for tag, attrs in page.tags if "http-equiv" in attrs)
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_hostile_text_is_text_wherever_it_stands(tmp_path: Path) -> None:
    run = finished_run(num_steps=13)
    for event in run.events:
        for name in ("run", "model", "family", "band", "task_id", "suite", "reason", "cause", "stop_reason", "text"):
            if isinstance(event.get(name), str) and event["event"] != "run.end":
                event[name] = f'{HOSTILE}"><img src=x onerror=alert(1)>'
    run.events[-1] |= {"reason": HOSTILE, "cause": HOSTILE}
    run_dir = write_run_directory(tmp_path / "run", run)
    (run_dir / "config.yaml").write_text(HOSTILE)
    page = page_of(run_dir)
    assert not {tag for tag, _ in page.tags} & {"script", "img", "bold"}
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert "<script>alert(1)</script>" in page.text  # shown, not run
    shown = terminal_of(run_dir, 300)
    assert not set(page.text + shown) & set("\x1b\x07\u202e")
    assert "[bold]markup[/bold]" in shown


def test_a_run_that_was_cut_off(tmp_path: Path) -> None:
    run = SyntheticRun()
    run.start()
    run.evaluate("before", 19)
    run.add("phase", name="train")
    run.step(1)
    run_dir = write_run_directory(tmp_path / "run", run)
    with (run_dir / "events.jsonl").open("a") as file:
        file.write('{"event":"step.e')
    page = page_of(run_dir)
    assert "the run is still going, or it was killed" in page.text
    assert "There is no evaluation after it, so nothing is claimed." in page.text
    assert "1 of 40" in page.text
    assert "no end recorded" in terminal_of(run_dir)


def test_a_run_that_had_no_time_for_anything(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "run.json").write_text(json.dumps({"name": "early", "seed": 3, "digest": "ab"}))
    assert "No step has ended yet." in page_of(run_dir).text
    assert "No step has ended yet." in terminal_of(run_dir)


def test_a_run_that_failed_says_why(tmp_path: Path) -> None:
    run = SyntheticRun()
    run.start()
    run.end("failed", "engine: worker process died: killed by signal 9")
    run_dir = write_run_directory(tmp_path / "run", run)
    assert "The run ended because: engine: worker process died: killed by signal 9" in page_of(run_dir).text
    assert "cause: engine: worker process died" in terminal_of(run_dir)


def test_numbers_that_are_none_are_named(tmp_path: Path) -> None:
    run = finished_run(num_steps=4)
    next(event for event in run.events if event["event"] == "step.end" and event["step"] == 3)["loss"] = float("nan")
    page = page_of(write_run_directory(tmp_path / "run", run))
    assert "Values that are not finite: 1 (loss at step 3)" in page.text


def test_what_is_no_run_directory_is_answered_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such run directory"):
        write_report(tmp_path / "missing")
    with pytest.raises(UserError, match="not a run directory"):
        write_report(tmp_path)
    write_run_directory(tmp_path / "seven", finished_run(num_steps=1))
    with pytest.raises(UserError, match="holds runs but is not one") as caught:
        render_terminal(tmp_path)
    assert str(tmp_path / "seven") in str(caught.value)


@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_a_damaged_file_is_named(whole: Path, name: str) -> None:
    (whole / name).write_text("{")
    with pytest.raises(StoreError, match=name):
        write_report(whole)
    assert not (whole / "report.html").exists()


def test_a_report_that_cannot_be_written_leaves_the_old_one(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report(whole).write_text("old")
    before = sorted(path.name for path in whole.iterdir())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"report\.html: OSError: .*No space left"):
        write_report(whole)
    assert (whole / "report.html").read_text() == "old"
    assert sorted(path.name for path in whole.iterdir()) == before


@pytest.mark.parametrize("width", [20, 40, 160])
def test_the_terminal_page_fits_its_terminal(whole: Path, width: int) -> None:
    assert all(len(line) <= width for line in terminal_of(whole, width).splitlines())


WRITER = """
import itertools, sys
from pathlib import Path
from burnish.observe.emit import attached, emit
from burnish.observe.events import EventLog
with EventLog(Path(sys.argv[1])) as log, attached(log):
    for number in itertools.count():
        emit("publish", version=number, wall_s=0.0)
        if number == 500:
            print("written", flush=True)
"""


def test_what_was_emitted_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        writer.send_signal(signal.SIGKILL)
    events = read_events(path)
    assert len(events) > 500
    assert [event["version"] for event in events] == list(range(len(events)))
