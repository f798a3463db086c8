"""The live view: on a recorded terminal, and as plain lines."""

import io
import re

import pytest
from rich.console import Console

from burnish.observe.emit import Event, attached, emit
from burnish.observe.live import LiveView
from tests.unit._synthetic_run import HOSTILE, T0, SyntheticRun, finished_run

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def screen(events: list[Event], width: int) -> str:
    """What the page shows after these events, styles included."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system="standard", record=True)
    view = LiveView(console, clock=lambda: T0)
    for event in events:
        view(event)
    console.print(view.render())
    return console.export_text(styles=True)


def lines(events: list[Event], *, encoding: str = "utf-8") -> list[str]:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with LiveView(Console(file=out, force_terminal=False)) as view:
        for event in events:
            view(event)
    out.seek(0)
    return out.read().splitlines()


def middle_of_a_run(num_steps: int = 22) -> list[Event]:
    run = SyntheticRun(num_steps=40)
    run.start()
    run.evaluate("before", 19, ci95=(0.097, 0.223))
    run.add("phase", name="train")
    for step in range(1, num_steps + 1):
        run.step(step)
    return run.events


def test_the_page_shows_what_a_person_asks_for() -> None:
    text = STYLE.sub("", screen(middle_of_a_run(), 100))
    for fact in (
        "quickstart-7", "smollm2-135m-instruct", "training · step 22/40", "of training left", "410 tokens/s",
        " sandboxes live", "1056 done", "no_signal", "too_few_measured 8", "entropy", "grad norm", "logprob gap",
        "15.1 % (9.7 to 22.3) of 126/128", "best of step 22", "return sum(1 for n in numbers if n % 2 == 0)",
        "starved steps 1", "engine restarts 1",
    ):  # fmt: skip
        assert fact in text, fact
    assert re.search(r"reward +[▁▂▃▄▅▆▇█]{22} ", text)


def test_the_page_follows_an_evaluation() -> None:
    events = [event for event in middle_of_a_run(0) if event["event"] not in ("eval.end", "phase")]
    events.insert(1, {"event": "phase", "t": T0, "name": "eval_before"})
    assert "evaluating before training · 128/128 attempts, 19 passed" in screen(events, 100)


@pytest.mark.parametrize("width", [1, 7, 20, 40, 72, 200])
@pytest.mark.parametrize("num_steps", [0, 1, 30])
def test_no_width_breaks_the_page(width: int, num_steps: int) -> None:
    text = STYLE.sub("", screen(middle_of_a_run(num_steps), width))
    assert all(len(line) <= width for line in text.splitlines())


def test_the_page_before_the_first_event() -> None:
    assert "starting" in screen([], 40)


def test_hostile_text_is_inert_on_the_page() -> None:
    run = SyntheticRun()
    run.start()
    run.events[0] |= {"run": HOSTILE, "model": HOSTILE}
    run.step(1)
    run.add("drop", reason=HOSTILE, num=1, group_id=None)
    run.add("sample", step=1, kind="best", task_id=HOSTILE, reward=1.0, text=HOSTILE)
    text = STYLE.sub("", screen(run.events, 200))
    assert not CONTROL.search(text)
    assert r"\x1b[31mred\x1b]0;title\x07 [bold]markup[/bold]" in text


def test_elsewhere_there_is_one_plain_line_per_thing() -> None:
    run = finished_run(num_steps=17)
    run.events[-1] |= {"reason": "failed", "cause": "engine: " + HOSTILE + "\nsecond line"}
    shown = lines(run.events)
    assert not any(CONTROL.search(line) for line in shown)
    assert sum(line.startswith("step ") for line in shown) == 17
    assert sum(line.startswith("phase ") for line in shown) == 5
    assert sum(line.startswith("eval builtin:heldout") for line in shown) == 2
    assert shown[0] == "run quickstart-7: smollm2-135m-instruct, seed 7, 17 steps within 11 min 00 s"
    assert "eval builtin:heldout before: 15.1 % (95 % interval 9.7 to 22.3); 19 passed, 126 measured" in "\n".join(
        shown
    )
    assert shown[-1].startswith("run failed after step 17")
    assert shown[-1].endswith("second line")


def test_plain_lines_fit_any_encoding() -> None:
    run = SyntheticRun()
    run.start()
    run.events[0]["model"] = "modèle→"
    assert lines(run.events, encoding="ascii")[0].startswith("run quickstart-7: mod?le?")


def test_a_terminal_that_cannot_show_blocks_gets_lines() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    with LiveView(Console(file=out, force_terminal=True)) as view:
        view({"event": "phase", "t": T0, "name": "load"})
    out.seek(0)
    assert out.read() == "phase load\n"


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_watcher_that_goes_away_does_not_end_the_run() -> None:
    with LiveView(Console(file=ClosedPipe(), force_terminal=False)) as view, attached(view):
        emit("phase", name="load")
        emit("phase", name="train")


def test_events_that_lack_fields_do_not_end_the_run() -> None:
    assert lines([{"event": "step.end", "t": T0, "step": 1}, {"event": "phase", "t": T0, "name": "load"}]) == [
        "phase load"
    ]


def test_a_live_page_draws_itself_and_stops() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with LiveView(console) as view, attached(view):
        emit("phase", name="load")
    assert "loading the model" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_resumed_run_goes_on_with_its_curves() -> None:
    history = middle_of_a_run(5)
    console = Console(file=io.StringIO(), force_terminal=True, width=100, record=True)
    view = LiveView(console, history=history, clock=lambda: T0)
    view({"event": "run.resume", "t": T0 + 9999, "step": 3, "num_dropped": 2})
    console.print(view.render())
    text = console.export_text()
    assert "step 3/40" in text
    assert "before the resume" in text
