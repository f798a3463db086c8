"""The events of a run: their names and fields, as data. docs/events.md says what each field means and its unit.

A test keeps that page and this table equal, so that neither can grow alone.
"""

from burnish.observe.emit import Event


def _fields(names: str) -> frozenset[str]:
    return frozenset(names.split())


EVENTS: dict[str, frozenset[str]] = {
    "run.start": _fields("run seed digest num_steps time_limit_s version model"),
    "run.resume": _fields("step num_dropped"),
    "run.end": _fields("reason cause step wall_s"),
    "phase": _fields("name"),
    "eval.progress": _fields("label suite done total passed measured"),
    "eval.end": _fields("label suite attempted measured passed pass_rate ci95"),
    "attempt.end": _fields(
        "id group_id task_id family stop_reason reward boundary cause num_turns num_tokens"
        " generate_s act_s grade_s wall_s passed"
    ),
    "attempt.retry": _fields("id task_id boundary cause retry"),
    "attempt.recut": _fields("id version"),
    "group.refill": _fields("group_id id cause"),
    "journal.cut": _fields("segment"),
    "task.quarantine": _fields("task_id num boundary cause"),
    "drop": _fields("reason num group_id"),
    "starved": _fields("num_groups version"),
    "step.end": _fields(
        "step version num_groups num_trajectories num_tokens reward_mean reward_std pass_rate length_mean turns_mean"
        " loss grad_norm entropy logprob_gap_mean logprob_gap_max ratio_max clip_fraction lag_max"
        " rollout_s learn_s publish_s wait_s wall_s tokens_per_s lr"
    ),
    "sample": _fields("step kind task_id reward text"),
    "engine.stats": _fields("running waiting num_generated_tokens tokens_per_s queue_s kv_use"),
    "sandbox.create": _fields("id"),
    "sandbox.retry": _fields("cause retry"),
    "sandbox.expire": _fields("id clock limit_s"),
    "sandbox.kill": _fields("id"),
    "sandbox.unlisted": _fields("cause"),
    "sandbox.squash": _fields("num_layers cause"),
    "engine.restart": _fields("cause version"),
    "run.life": _fields("boundary cause step"),
    "watchdog": _fields("watched cause action"),
    "checkpoint": _fields("step path wall_s"),
    "publish": _fields("version wall_s"),
    "model.convert": _fields("model path state wall_s"),
}
"""Event name -> the fields it always has, beside `event` and `t`."""

OPTIONAL: dict[str, frozenset[str]] = {
    # `label`: the attempt belongs to that evaluation and not to training; without it the phase decides.
    "attempt.end": _fields("band label"),
    # Only where it was not reclaimed because its work was done.
    "sandbox.kill": _fields("cause"),
}
"""Event name -> the fields it may have."""

COMMON = _fields("event t nonfinite")
"""`nonfinite` is written by the log alone: the names of the fields that were NaN or infinite."""


def missing_fields(event: Event) -> list[str]:
    """The required fields that a known event lacks, sorted; empty for a name that this version does not know."""
    return sorted(EVENTS.get(event["event"], frozenset()) - event.keys())


def validate(event: Event) -> None:
    """Raises ValueError for an unknown event name, a missing field or a field that the table does not list."""
    name = event.get("event")
    if name not in EVENTS:
        raise ValueError(f"unknown event {name!r}; known: {', '.join(sorted(EVENTS))}")
    missing = missing_fields(event)
    if missing:
        raise ValueError(f"{name}: missing fields: {', '.join(missing)}")
    unknown = sorted(event.keys() - EVENTS[name] - OPTIONAL.get(name, frozenset()) - COMMON)
    if unknown:
        raise ValueError(f"{name}: unknown fields: {', '.join(unknown)}")
