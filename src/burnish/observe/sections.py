"""The sections of the report, in reading order. Each takes the record of a run and returns HTML."""

from collections.abc import Callable

from burnish.observe.charts import Line, interval_chart, percent_axis, plain_axis, stacked_bars
from burnish.observe.compare import Comparison, EvalResult
from burnish.observe.emit import Event
from burnish.observe.markup import bar, card, count_table, esc, grid, step_chart, table, tile
from burnish.observe.record import RunRecord
from burnish.observe.summary import Tally
from burnish.observe.text import ABSENT, duration, interval, moment, number, percent, points

Section = Callable[[RunRecord], str]

STATUS = {
    "completed": ("completed", "good"),
    "time_limit": ("ended at its time limit", "good"),
    "interrupted": ("interrupted", "warn"),
    "failed": ("failed", "bad"),
    "open": ("no end recorded", "warn"),
}


def header(record: RunRecord) -> str:
    """Name, state and the facts that identify the run; what went wrong with it as a whole."""
    run = record.run
    shown, kind = STATUS.get(run.status, (run.status, "warn"))
    facts = [f"{name} {record.fact(name)}" for name in ("model", "seed") if record.fact(name) is not None]
    facts.append(f"burnish {record.fact('version')}" if record.fact("version") else "")
    facts.append(f"configuration {str(record.fact('digest'))[:12]}" if record.fact("digest") else "")
    facts.append(f"started {moment(run.start['t'])}" if run.start else "")
    facts.append(f"took {duration(run.wall_s)}" if run.wall_s else "")
    facts.append(f"resumes {run.num_resumes}" if run.num_resumes else "")
    line = " · ".join(fact for fact in facts if fact)
    title = esc(record.fact("run") or record.path.name)
    alerts = "".join(f'<div class="card alert {kind}">{esc(text)}</div>' for text, kind in _alerts(record))
    chip = f'<span class="chip {kind}">{esc(shown)}</span>'
    return f"<header><h1>{title}</h1>{chip}<p>{esc(line)}</p></header>{alerts}"


def _alerts(record: RunRecord) -> list[tuple[str, str]]:
    run = record.run
    alerts = []
    if run.end is not None and run.end["cause"]:
        alerts.append((f"The run ended because: {run.end['cause']}", "" if run.status == "failed" else "warn"))
    if run.status == "open":
        text = "The log has no end: the run is still going, or it was killed. This page shows what it holds so far."
        alerts.append((text, "warn"))
    if run.nonfinite:
        places = ", ".join(f"{name} at step {step}" for step, name in run.nonfinite[:5])
        alerts.append((f"Values that are not finite: {len(run.nonfinite)} ({places})", ""))
    if run.num_starved:
        alerts.append((f"Starved steps: {run.num_starved}. Every group of such a step held no signal.", "warn"))
    if run.num_skipped:
        alerts.append(
            (f"Events left out, because they lack a field that this version needs: {run.num_skipped}.", "warn")
        )
    return alerts


def headline(record: RunRecord) -> str:
    """Before and after, with intervals and an honest sentence; then the run in a few numbers."""
    comparisons = record.comparisons
    blocks = "".join(_comparison(comparison) for comparison in comparisons)
    if not comparisons:
        blocks = '<div class="card headline"><p class="none">No evaluation before training has ended.</p></div>'
    return blocks + _eval_table(record) + _tiles(record)


def _comparison(comparison: Comparison) -> str:
    before, after = comparison.before, comparison.after
    kind = {1: "up", -1: "down", 0: ""}[comparison.direction]
    big = percent(comparison.rate_before) + (f" → {percent(comparison.rate_after)}" if after else "")
    diff = "" if comparison.diff is None else f' <small class="{kind}">{points(comparison.diff)} points</small>'
    words = f'<div class="big">{big}{diff}</div><p class="verdict">{esc(comparison.verdict)}</p>'
    rows = [
        (side.label, side.pass_rate, side.ci95, color)
        for side, color in ((before, 5), (after, 1))
        if side is not None and side.pass_rate is not None
    ]
    plot = interval_chart(rows, title=f"{comparison.suite} with 95 % intervals") if rows else ""
    title = f"<h3>{esc(comparison.suite)}: pass rate before and after training</h3>"
    return f'<div class="card headline"><div>{title}{words}</div><div>{plot}</div></div>'


def _eval_table(record: RunRecord) -> str:
    if not record.run.evals:
        return ""
    head = ("suite", "when", ">passed", ">measured", ">attempted", ">of measured", ">95 % interval", ">of attempted")
    body = table(head, [_eval_row(result) for result in record.run.evals.values()], none="")
    return f'<div class="card">{body}</div>'


def _eval_row(result: EvalResult) -> tuple[str, ...]:
    counts = (f"{result.passed:,}", f"{result.measured:,}", f"{result.attempted:,}")
    rates = (percent(result.pass_rate), interval(result.ci95), percent(result.attempted_rate))
    return (esc(result.suite), esc(result.label), *counts, *rates)


def _tiles(record: RunRecord) -> str:
    run = record.run
    planned = "" if run.num_steps_planned is None else f" of {run.num_steps_planned}"
    speeds = sorted(value for value in run.series("tokens_per_s") if value is not None)
    tiles = (
        tile(f"{len(run.steps)}{planned}", "optimizer steps"),
        tile(f"{run.training.measured:,}/{run.training.attempted:,}", "training attempts measured"),
        tile(f"{run.total('num_tokens'):,.0f}", "tokens trained"),
        tile(number(speeds[len(speeds) // 2] if speeds else None), "tokens per second, median step"),
        tile(f"{run.drops.total():,}", "attempts dropped, each with a reason"),
        tile(f"{run.retries.total():,}", "retries after infrastructure failures"),
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def learning(record: RunRecord) -> str:
    """Did it learn, and what."""
    run = record.run
    charts = (
        card("Reward", step_chart(run, "reward_mean", "mean of the step's attempts")),
        card(
            "Pass rate in training",
            step_chart(run, "pass_rate", "of measured attempts", form=percent, axis=percent_axis, low=0.0, high=1.0),
        ),
    )
    tables = [
        card(f"Pass rate by {name}", _halves(groups, name), note=_HALVES_NOTE)
        for name, groups in (("family", run.halves(0)), ("band", run.halves(1)))
        if groups
    ]
    return "<h2>Learning</h2>" + grid(*charts, *tables)


_HALVES_NOTE = "Training attempts of the run's first half (grey) and of its second half (blue); passed of measured."


def _halves(groups: dict[str, tuple[Tally, Tally]], heading: str) -> str:
    def change(tallies: tuple[Tally, Tally]) -> float:
        early, late = (tally.pass_rate for tally in tallies)
        return -2.0 if early is None or late is None else late - early

    ordered = sorted(groups.items(), key=lambda item: (-change(item[1]), item[0]))
    rows = [
        (
            esc(name),
            *(f"{tally.passed}/{tally.measured}" for tally in (early, late)),
            points(change((early, late))) if change((early, late)) > -2 else ABSENT,
            bar((early.pass_rate, 5), (late.pass_rate, 1)),
        )
        for name, (early, late) in ordered
    ]
    return table((heading, ">first half", ">second half", ">points", ""), rows, none="")


def completions(record: RunRecord) -> str:
    """What the answers look like."""
    run = record.run
    if not run.outcomes:
        return ""
    stops = count_table(run.stop_reasons, heading="stop reason", color=1, none="No training attempt has ended.")
    return "<h2>Attempts</h2>" + grid(
        card("Length", step_chart(run, "length_mean", "tokens per attempt", low=0.0)),
        card("Turns", step_chart(run, "turns_mean", "turns per attempt", low=0.0)),
        card("How attempts ended", stops),
        card(
            "Lag",
            step_chart(run, "lag_max", "oldest trained token", smooth=False, low=0.0, form=plain_axis),
            note="Policy versions between the sampling of a token and the step that trains it; the bound is max_lag.",
        ),
    )


def optimisation(record: RunRecord) -> str:
    """What the optimizer saw."""
    run = record.run
    if not run.steps:
        return ""
    rate = step_chart(run, "clip_fraction", "share of trained tokens", form=percent, axis=percent_axis, low=0.0)
    return "<h2>Optimisation</h2>" + grid(
        card(
            "Entropy",
            step_chart(run, "entropy", "of the sampled tokens, nats", low=0.0),
            note="A fall to near 0 means that the model no longer explores.",
        ),
        card("Loss", step_chart(run, "loss", "policy-gradient loss"), note="Its level says little; a jump says a lot."),
        card(
            "Gap between engine and learner, mean",
            step_chart(run, "logprob_gap_mean", "of all trained tokens", low=0.0),
            note="Absolute difference of the two logprobs of one sampled token. Growth means that the two disagree.",
        ),
        card(
            "Gap between engine and learner, largest",
            step_chart(run, "logprob_gap_max", "of any trained token", low=0.0),
            note="One far token is rounding at a steep place; a rising trend is a fault.",
        ),
        card("Gradient norm", step_chart(run, "grad_norm", "before clipping", low=0.0)),
        card("Learning rate", step_chart(run, "lr", "learning rate", smooth=False, low=0.0)),
        card("Clipped tokens", rate),
        card("Largest ratio", step_chart(run, "ratio_max", "policy now over policy then", low=0.0)),
    )


def timing(record: RunRecord) -> str:
    """Where the time went."""
    run = record.run
    if not run.steps:
        return ""
    names = {"rollout_s": "rollout", "learn_s": "learn", "publish_s": "publish", "wait_s": "wait"}
    parts = [Line(label=label, values=run.series(name), color=i + 1) for i, (name, label) in enumerate(names.items())]
    rows = [
        (esc(label), duration(run.total(name)), _share(run.total(name), run.total("wall_s")))
        for name, label in names.items()
    ]
    split = stacked_bars(list(run.steps), parts, title="seconds per step", form=duration)
    return "<h2>Time</h2>" + grid(
        card("Seconds per step", split + table(("part", ">all steps", ">of wall time"), rows, none="")),
        card("Tokens per second", step_chart(run, "tokens_per_s", "of the step", low=0.0)),
    )


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ABSENT


def validity(record: RunRecord) -> str:
    """What was left out of the numbers above, and why."""
    run = record.run
    unmeasured = [(f"training: {b}", cause, n) for (b, cause), n in run.unmeasured.most_common()]
    unmeasured += [(f"evaluation: {b}", cause, n) for (b, cause), n in run.eval_unmeasured.most_common()]
    retries = [(f"retried: {b}", cause, n) for (b, cause), n in run.retries.most_common()]
    rows = [(esc(where), esc(cause), f"{count:,}") for where, cause, count in unmeasured + retries]
    rows += [("engine restarted", esc(event["cause"]), "1") for event in run.engine_restarts]
    drops = count_table(run.drops, heading="reason", color=2, none="Nothing was dropped.")
    failures = table(("where", "cause", ">count"), rows, none="No infrastructure failure.")
    return "<h2>Validity</h2>" + grid(
        card("Dropped attempts", drops, note="An attempt is trained once, or dropped once with its reason."),
        card("Infrastructure failures", failures, note="None of these became a reward, an observation or a baseline."),
    )


def trajectories(record: RunRecord) -> str:
    """The best and the worst attempt of the last step, as they were."""
    samples = record.run.samples
    cards = [_sample(kind, samples[kind]) for kind in ("best", "worst") if kind in samples]
    body = grid(*cards) if cards else '<div class="card"><p class="none">No trajectory is recorded.</p></div>'
    return f"<h2>Trajectories of the last step</h2>{body}"


def _sample(kind: str, sample: Event) -> str:
    note = f"step {sample['step']} · {sample['task_id']} · reward {number(sample['reward'])}"
    return card(kind.capitalize(), f"<pre>{esc(sample['text'])}</pre>", note=note)


def configuration(record: RunRecord) -> str:
    """The resolved configuration and its digest."""
    digest = esc(record.fact("digest") or "not recorded")
    text = f"<pre>{esc(record.config)}</pre>" if record.config else '<p class="none">config.yaml is not there.</p>'
    body = f"<details><summary>config.yaml, as resolved</summary>{text}</details>"
    return (
        f'<h2>Configuration</h2><div class="card"><p class="note">digest {digest}</p>{body}</div>'
        f"<footer>{esc(record.path)} · made from events.jsonl by burnish</footer>"
    )


SECTIONS: tuple[Section, ...] = (
    header, headline, learning, completions, optimisation, timing, validity, trajectories, configuration,
)  # fmt: skip
