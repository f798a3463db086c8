"""What the learner refuses before it computes anything. No torch: a check is plain arithmetic on the batch."""

import math

from burnish.types import Batch, PackedRow


def check_batch(batch: Batch, *, version: int, max_lag: int, vocab_size: int) -> None:
    """Lets a batch pass only if one optimizer step may be taken on it.

    Checked: the batch is for this step; it trains something; every loss token was sampled by a version in
    `[version - max_lag, version]` (I3, per token); every row is a well-formed tree whose
    segments stand after their parents; behaviour logprobs and advantages are finite.

    Raises ValueError naming the row and the token.
    """
    if batch.step != version:
        raise ValueError(f"batch for step {batch.step}, but the learner is at version {version}")
    if batch.num_loss_tokens == 0:
        raise ValueError(f"batch for step {batch.step} has no loss token")
    if not batch.temperature > 0:
        raise ValueError(f"temperature must be above 0, not {batch.temperature}")
    for index, row in enumerate(batch.rows):
        where = f"row {index}"
        _check_shape(row, where)
        _check_tokens(row, where, vocab_size)
        _check_lag(row, where, version=version, max_lag=max_lag)


def _check_shape(row: PackedRow, where: str) -> None:
    """Segments are contiguous and in order, and each stands after its parent: a token sees all of its ancestors."""
    length = len(row.ids)
    per_token = (
        row.positions,
        row.segments,
        row.predecessors,
        row.loss_mask,
        row.logprobs,
        row.versions,
        row.advantages,
    )
    if any(len(column) != length for column in per_token):
        raise ValueError(f"{where}: columns differ in length: {[length, *map(len, per_token)]}")
    parents = row.segment_parents
    if any(not -1 <= parent < segment for segment, parent in enumerate(parents)):
        raise ValueError(f"{where}: a segment stands before its parent: {parents}")
    last = [-1] * len(parents)  # per segment: the last token of its path so far
    previous = -1
    for i, segment in enumerate(row.segments):
        if not previous <= segment < len(parents) or segment < 0:
            raise ValueError(f"{where}, token {i}: segment {segment} after {previous}, of {len(parents)}: not in order")
        for opened in range(previous + 1, segment + 1):  # empty segments pass their parent's end on
            last[opened] = last[parents[opened]] if parents[opened] >= 0 else -1
        predecessor, previous = last[segment], segment
        if row.predecessors[i] != predecessor:
            raise ValueError(f"{where}, token {i}: predecessor {row.predecessors[i]}, expected {predecessor}")
        depth = row.positions[predecessor] + 1 if predecessor >= 0 else 0
        if row.positions[i] != depth:
            raise ValueError(f"{where}, token {i}: position {row.positions[i]}, expected {depth}")
        last[segment] = i


def _check_tokens(row: PackedRow, where: str, vocab_size: int) -> None:
    for i, token_id in enumerate(row.ids):
        if not 0 <= token_id < vocab_size:
            raise ValueError(f"{where}, token {i}: id {token_id} is outside the vocabulary of {vocab_size}")
        if not row.loss_mask[i]:
            continue
        if row.predecessors[i] < 0:
            raise ValueError(f"{where}, token {i}: the first token of a sequence cannot be trained")
        if not math.isfinite(row.logprobs[i]):
            raise ValueError(f"{where}, token {i}: behaviour logprob is {row.logprobs[i]}")
        if not math.isfinite(row.advantages[i]):
            raise ValueError(f"{where}, token {i}: advantage is {row.advantages[i]}")


def _check_lag(row: PackedRow, where: str, *, version: int, max_lag: int) -> None:
    for i, (trained, sampled_by) in enumerate(zip(row.loss_mask, row.versions, strict=True)):
        if trained and not version - max_lag <= sampled_by <= version:
            raise ValueError(
                f"{where}, token {i}: sampled by version {sampled_by}, "
                f"but step {version} with max_lag {max_lag} takes {version - max_lag}..{version}"
            )
