"""The report in short, as a page for the terminal."""

from collections import Counter
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from burnish.observe.emit import Event
from burnish.observe.record import RunRecord, read_run
from burnish.observe.summary import RunSummary
from burnish.observe.text import duration, inert, interval, number, one_line, percent, sparkline

SPARK_COLUMNS = 40
EXCERPT_LINES = 14
CURVES = {
    "reward_mean": "reward",
    "pass_rate": "pass rate",
    "length_mean": "tokens per attempt",
    "entropy": "entropy",
    "logprob_gap_mean": "logprob gap",
    "grad_norm": "gradient norm",
    "tokens_per_s": "tokens per second",
}


def render_terminal(run_dir: Path) -> RenderableType:
    """The page. Print it with a rich console of any width.

    Raises:
        UserError: `run_dir` is no run directory.
        StoreError: a file of the run is damaged.
    """
    record = read_run(run_dir)
    run = record.run
    parts: list[RenderableType] = [_title(record)]
    for comparison in record.comparisons:
        parts += [Text(), Text(one_line(comparison.suite, 80), style="bold"), Text(comparison.verdict)]
    if run.evals:
        parts += [Text(), _evals(run)]
    parts += [Text(), _curves(run), Text(), _totals(run)]
    parts += [Padding(_excerpt(sample), (1, 0, 0, 0)) for kind, sample in sorted(run.samples.items())]
    return Group(*parts)


def _title(record: RunRecord) -> Text:
    run = record.run
    title = Text(one_line(str(record.fact("run") or record.path.name), 60), style="bold cyan")
    state = "no end recorded: still going, or killed" if run.status == "open" else run.status
    facts = [state, f"{len(run.steps)} of {run.num_steps_planned or '?'} steps", duration(run.wall_s)]
    facts += [f"{name} {record.fact(name)}" for name in ("model", "seed") if record.fact(name) is not None]
    title.append(one_line(" · " + " · ".join(facts), 200), style="not bold default")
    if run.end is not None and run.end["cause"]:
        title.append(f"\ncause: {inert(str(run.end['cause']))}", style="bold red")
    return title


def _evals(run: RunSummary) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("suite")
    table.add_column("when")
    for name in ("passed", "measured", "attempted", "of measured", "95 % interval"):
        table.add_column(name, justify="right")
    for result in run.evals.values():
        counts = (str(result.passed), str(result.measured), str(result.attempted))
        cells = (one_line(result.suite, 40), result.label, *counts, percent(result.pass_rate), interval(result.ci95))
        table.add_row(*map(Text, cells))
    return table


def _curves(run: RunSummary) -> RenderableType:
    if not run.steps:
        return Text("No step has ended yet.", style="dim")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("by step", no_wrap=True)
    table.add_column("first", justify="right")
    table.add_column("last", justify="right")
    table.add_column("", no_wrap=True, overflow="crop")
    for name, label in CURVES.items():
        values = run.series(name)
        line = sparkline(values, SPARK_COLUMNS)
        table.add_row(label, number(values[0]), number(values[-1]), Text(line, style="green"))
    return table


def _totals(run: RunSummary) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    tally = run.training
    table.add_row("attempts", Text(f"{tally.attempted} made, {tally.measured} measured, {tally.passed} passed"))
    table.add_row("stopped by", Text(_counts(run.stop_reasons)))
    table.add_row("dropped", Text(_counts(run.drops)))
    failures = Counter({f"{wall}: {cause}": count for (wall, cause), count in run.unmeasured.items()})
    table.add_row("unmeasured", Text(_counts(failures)))
    table.add_row("retries", Text(str(run.retries.total())))
    seconds = {part: run.total(f"{part}_s") for part in ("rollout", "learn", "publish", "wait")}
    table.add_row("time", Text(" · ".join(f"{part} {duration(value)}" for part, value in seconds.items())))
    return table


def _counts(counts: "Counter[str]") -> str:
    return " · ".join(f"{one_line(name, 100)} {count}" for name, count in counts.most_common()) or "none"


def _excerpt(sample: Event) -> RenderableType:
    heading = f"{sample['kind']} of step {sample['step']} · {sample['task_id']} · reward {number(sample['reward'])}"
    lines = inert(sample["text"]).strip("\n").splitlines()
    shown = lines[:EXCERPT_LINES] + ([f"… {len(lines) - EXCERPT_LINES} more lines"] * (len(lines) > EXCERPT_LINES))
    return Group(Text(one_line(heading, 120), style="bold"), Text("\n".join(shown), style="dim"))
