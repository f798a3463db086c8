"""Batches and metrics as JSON values, for the wire between conductor and learner. No torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from burnish.types import Batch, PackedRow

_ROW_FIELDS = tuple(field.name for field in fields(PackedRow))


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMetrics:
    """What one committed optimizer step did. Means are over loss tokens.

    Example: StepMetrics(version=5, loss=0.01, grad_norm=0.8, learning_rate=2e-5, entropy=0.6, logprob_gap_mean=0.01,
        logprob_gap_max=0.2, ratio_mean=1.0, ratio_max=1.2, clip_fraction=0.0, num_loss_tokens=3000,
        num_newest_tokens=3000, num_row_tokens=4100, wall_s=6.0)
    """

    version: int  # after the step
    loss: float  # near 0 on fresh data by construction; its gradient matters
    grad_norm: float  # global, before clipping
    learning_rate: float
    entropy: float  # nats, of the distribution at the batch's temperature
    logprob_gap_mean: float  # |learner - engine| in nats over the newest version's tokens (I4); at lag 0 all are its
    logprob_gap_max: float
    ratio_mean: float  # learner probability / behaviour probability
    ratio_max: float
    clip_fraction: float  # loss tokens whose gradient the clip removed
    num_loss_tokens: int
    num_newest_tokens: int  # sampled by the newest version in the batch; the logprob gap is over these
    num_row_tokens: int  # computed, shared prompts once
    wall_s: float


def batch_to_json(batch: Batch) -> dict[str, Any]:
    """Plain values under the field names; about 10 bytes a number as JSON text."""
    return {
        "step": batch.step,
        "rows": [{name: getattr(row, name) for name in _ROW_FIELDS} for row in batch.rows],
        "temperature": batch.temperature,
        "trajectory_ids": batch.trajectory_ids,
        "group_ids": batch.group_ids,
    }


def batch_from_json(value: Mapping[str, Any]) -> Batch:
    """The inverse of `batch_to_json`, also after a trip through JSON text (lists become tuples again)."""
    return Batch(
        step=value["step"],
        rows=tuple(PackedRow(**{name: tuple(row[name]) for name in _ROW_FIELDS}) for row in value["rows"]),
        temperature=value["temperature"],
        trajectory_ids=tuple(value["trajectory_ids"]),
        group_ids=tuple(value["group_ids"]),
    )


def metrics_to_json(metrics: StepMetrics) -> dict[str, Any]:
    """Plain values under the field names."""
    return asdict(metrics)


def metrics_from_json(value: Mapping[str, Any]) -> StepMetrics:
    """The inverse of `metrics_to_json`."""
    return StepMetrics(**value)
