"""What a person watches while a run goes: a live page in a terminal, or one plain line per thing that ended elsewhere.

The view is a sink. It never asks anybody for anything, and losing it (a closed pipe) does not end the run: the truth
is in `events.jsonl`.
"""

import threading
import time
from collections.abc import Callable, Iterable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from burnish.observe.emit import Event
from burnish.observe.lines import plain_line
from burnish.observe.summary import RunSummary, Tracker, time_left_s
from burnish.observe.text import duration, inert, interval, number, one_line, percent, sparkline

REFRESHES_PER_S = 1  # the model and the sandboxes need the cores more
NARROW_COLUMNS = 72  # below this, details that do not fit are left out
EXCERPT_LINES = 8
PHASES = {
    "load": "loading the model",
    "eval_before": "evaluating before training",
    "train": "training",
    "eval_after": "evaluating after training",
    "report": "writing the report",
}


class LiveView:
    """A sink that draws the run. Plain lines when the console is no terminal or cannot show block characters.

    `history` are the events of a run that is resumed, so that its curves go on; `clock` gives epoch seconds.

    Example:
        >>> with LiveView() as view, attached(view):
        ...     train()
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        history: Iterable[Event] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.console = console or Console()
        self._clock = clock
        self._lock = threading.Lock()  # the events come from the run's thread, the drawing from rich's
        self._tracker = Tracker()
        for event in history:
            self._tracker.apply(event)
        self._past_s = self._tracker.summary.wall_s
        self._started = clock()
        self._gone = False
        can_draw = self.console.is_terminal and not self.console.is_dumb_terminal
        self._live: Live | None = None
        if can_draw and self.console.encoding.startswith("utf"):
            self._live = Live(get_renderable=self.render, console=self.console, refresh_per_second=REFRESHES_PER_S)

    def __call__(self, event: Event) -> None:
        """Takes one event. Never raises for what an event holds."""
        with self._lock:
            self._tracker.apply(event)
        if self._live is None:
            line = plain_line(event, self._tracker.summary)
            if line is not None:
                self._print(line)

    def __enter__(self) -> "LiveView":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def render(self) -> RenderableType:
        """The page as it is now, as wide as the console."""
        with self._lock:
            elapsed_s = self._clock() - self._started
            return page(self._tracker.summary, width=self.console.width, elapsed_s=elapsed_s, past_s=self._past_s)

    def _print(self, line: str) -> None:
        if self._gone:
            return
        out, encoding = self.console.file, self.console.encoding
        try:
            out.write(line.encode(encoding, "replace").decode(encoding) + "\n")
            out.flush()
        except OSError:  # `burnish train | head`: nobody reads on, and the run is worth more than its watcher
            self._gone = True


def page(run: RunSummary, *, width: int, elapsed_s: float, past_s: float = 0.0) -> RenderableType:
    """The live page. `elapsed_s` counts since this process began, `past_s` is what earlier processes took."""
    narrow = width < NARROW_COLUMNS
    facts = Table.grid(padding=(0, 1))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    spark_width = max(6, min(48, width - 34))
    for name, value in (
        ("reward", _curve(run, "reward_mean", spark_width)),
        ("pass rate", _curve(run, "pass_rate", spark_width)),
        ("speed", _speed(run)),
        ("attempts", _attempts(run)),
        ("drops", _drops(run)),
        ("learner", _learner(run, narrow=narrow)),
        ("evals", _evals(run)),
    ):
        if value is not None:
            facts.add_row(name, value)
    parts: list[RenderableType] = [
        _title(run, width),
        _progress(run, width),
        _clock_line(run, elapsed_s, past_s),
        facts,
    ]
    if "best" in run.samples:
        parts += _excerpt(run.samples["best"], width)
    return Group(*parts)


def _title(run: RunSummary, width: int) -> Text:
    title = Text("burnish ", style="bold")
    if run.start is not None:
        title.append(one_line(str(run.start["run"]), 40), style="bold cyan")
        title.append(f" · {one_line(str(run.start['model']), 60)} · seed {run.start['seed']}", style="dim")
    title.truncate(width, overflow="ellipsis")
    return title


def _progress(run: RunSummary, width: int) -> RenderableType:
    """The bar of the evaluation that runs now, or that of the steps."""
    phase = PHASES.get(run.phase or "", run.phase or "starting")
    if run.eval_progress is not None:
        done, total = run.eval_progress["done"], run.eval_progress["total"]
        count = f"{done}/{total} attempts, {run.eval_progress['passed']} passed"
    else:
        done, total = max(run.steps, default=0), run.num_steps_planned or 0
        count = f"step {done}/{total}"
    bar = ProgressBar(total=max(1, total), completed=done, width=max(8, min(60, width - 2)))
    line = Table.grid()
    line.add_row(bar)  # a bar alone does not end its line
    return Group(Text(one_line(f"{phase} · {count}", width), style="bold"), line)


def _clock_line(run: RunSummary, elapsed_s: float, past_s: float) -> Text:
    line = Text(f"{duration(elapsed_s)} passed", style="dim")
    if past_s:
        line.append(f" (and {duration(past_s)} before the resume)")
    left_s = time_left_s(run, elapsed_s=elapsed_s)
    if left_s is not None and run.phase == "train":
        line.append(f" · about {duration(left_s)} of training left")
    return line


def _curve(run: RunSummary, name: str, width: int) -> Text | None:
    value = run.last(name)
    if not run.steps:
        return None
    shown = percent(value) if name == "pass_rate" else number(value)
    bounds = {"low": 0.0, "high": 1.0} if name == "pass_rate" else {}
    line = Text(sparkline(run.series(name), width, **bounds), style="green", no_wrap=True)
    return line.append(f" {shown}", style="bold")


def _speed(run: RunSummary) -> Text | None:
    parts = []
    if run.engine is not None:
        parts.append(f"{number(run.engine['tokens_per_s'])} tokens/s")
        parts.append(f"{run.engine['running']} running, {run.engine['waiting']} waiting")
    elif run.steps:
        parts.append(f"{number(run.last('tokens_per_s'))} tokens/s")
    if run.num_sandboxes:
        parts.append(f"{run.num_sandboxes_live} sandboxes live")
    return Text(" · ".join(parts)) if parts else None


def _attempts(run: RunSummary) -> Text | None:
    tally = run.training
    if not tally.attempted:
        return None
    line = Text(f"{tally.attempted} done, {tally.measured} measured")
    if run.retries.total():
        line.append(f" · retries {run.retries.total()}", style="yellow")
    if run.engine_restarts:
        line.append(f" · engine restarts {len(run.engine_restarts)}", style="yellow")
    return line


def _drops(run: RunSummary) -> Text | None:
    if not run.drops:
        return None
    line = Text(" · ".join(f"{one_line(reason, 24)} {count}" for reason, count in run.drops.most_common()))
    if run.num_starved:
        line.append(f" · starved steps {run.num_starved}", style="bold yellow")
    return line


def _learner(run: RunSummary, *, narrow: bool) -> Text | None:
    if not run.steps:
        return None
    names = {"loss": "loss", "entropy": "entropy", "grad_norm": "grad norm", "logprob_gap_mean": "logprob gap"}
    if not narrow:
        names |= {"clip_fraction": "clipped", "lag_max": "lag"}
    line = Text(" · ".join(f"{shown} {number(run.last(name))}" for name, shown in names.items()))
    last = max(run.steps)
    bad = [name for step, name in run.nonfinite if step == last]
    if bad:
        line.append(f" · not finite: {', '.join(bad)}", style="bold red")
    return line


def _evals(run: RunSummary) -> Text | None:
    lines = [
        f"{one_line(f'{result.suite} {result.label}', 40)}: {percent(result.pass_rate)} ({interval(result.ci95)})"
        f" of {result.measured}/{result.attempted}"
        for result in list(run.evals.values())[-3:]
    ]
    return Text("\n".join(lines)) if lines else None


def _excerpt(sample: Event, width: int) -> list[RenderableType]:
    """The end of the trajectory: the last answer and what came of it say most."""
    lines = [line for line in inert(sample["text"]).splitlines() if line.strip()][-EXCERPT_LINES:]
    heading = f"best of step {sample['step']} · {sample['task_id']} · reward {number(sample['reward'])}"
    body = Text("\n".join(lines), no_wrap=True, overflow="ellipsis", style="dim")
    return [Text(), Text(one_line(heading, width), style="bold"), body]
