"""One plain line per phase, step, evaluation and incident, for logs and pipes."""

from burnish.observe.emit import Event
from burnish.observe.summary import RunSummary
from burnish.observe.text import duration, interval, number, one_line, percent

LINE_CHARS = 400  # a cause may be as long as a traceback; the log file has all of it


def plain_line(event: Event, run: RunSummary) -> str | None:
    """The line for an event, without its end and without control characters; None for events that get none.

    `run` is the summary with the event already in it.
    """
    make = _LINES.get(event["event"])
    if make is None:
        return None
    try:
        return one_line(make(event, run), LINE_CHARS)
    except KeyError:  # a field is missing; the tracker counted the event as skipped
        return None


def _start(event: Event, run: RunSummary) -> str:
    limit = event["time_limit_s"]
    within = "" if limit is None else f" within {duration(limit)}"
    return f"run {event['run']}: {event['model']}, seed {event['seed']}, {event['num_steps']} steps{within}"


def _resume(event: Event, run: RunSummary) -> str:
    return f"resumed after step {event['step']}; {event['num_dropped']} unfinished attempts dropped"


def _end(event: Event, run: RunSummary) -> str:
    cause = f": {event['cause']}" if event["cause"] else ""
    return f"run {event['reason']} after step {event['step']} and {duration(event['wall_s'])}{cause}"


def _phase(event: Event, run: RunSummary) -> str:
    return f"phase {event['name']}"


def _eval(event: Event, run: RunSummary) -> str:
    rate, span = percent(event["pass_rate"]), interval(event["ci95"])
    of = f"{event['passed']} passed, {event['measured']} measured, {event['attempted']} attempted"
    return f"eval {event['suite']} {event['label']}: {rate} (95 % interval {span}); {of}"


def _step(event: Event, run: RunSummary) -> str:
    dropped = f", dropped {run.drops.total()} so far" if run.drops else ""
    return (
        f"step {event['step']}/{run.num_steps_planned or '?'}: reward {number(event['reward_mean'])},"
        f" pass {percent(event['pass_rate'])}, loss {number(event['loss'])}, entropy {number(event['entropy'])},"
        f" grad {number(event['grad_norm'])}, gap {number(event['logprob_gap_mean'])},"
        f" {number(event['tokens_per_s'])} tokens/s, {duration(event['wall_s'])}{dropped}"
    )


def _restart(event: Event, run: RunSummary) -> str:
    return f"engine restarted with version {event['version']}: {event['cause']}"


def _starved(event: Event, run: RunSummary) -> str:
    return f"starved: {event['num_groups']} groups in a row held no signal; a step waits for the next ones"


def _convert(event: Event, run: RunSummary) -> str:
    taken = "" if event["wall_s"] is None else f" after {duration(event['wall_s'])}"
    return f"model {event['model']}: one-time conversion {event['state']}{taken}"


def _checkpoint(event: Event, run: RunSummary) -> str:
    return f"checkpoint of step {event['step']}: {event['path']}"


_LINES = {
    "run.start": _start,
    "run.resume": _resume,
    "run.end": _end,
    "phase": _phase,
    "eval.end": _eval,
    "step.end": _step,
    "engine.restart": _restart,
    "starved": _starved,
    "model.convert": _convert,
    "checkpoint": _checkpoint,
}
