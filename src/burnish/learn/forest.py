# ruff: noqa: N815 (fields carry shape suffixes)
"""Packed rows as one forest of token segments, ready for one forward pass.

Legend: `L` tokens of the forest, `N` loss tokens, `Q` padded queries, `X` padded keys of all segments.

Rows are laid one after the other as separate trees. Attention is planned per set of siblings: segments with one parent
see the same prefix, so their queries and keys form dense rectangles and nothing is computed for pairs of tokens that
may not see each other.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.types import PackedRow

PAD_TOKENS = 64  # matrix products over an odd number of tokens take up to twice as long


@dataclass(frozen=True, kw_only=True, slots=True)
class Siblings:
    """Segments with the same ancestors, padded to one length: a dense rectangle of queries and keys per segment.

    Example: prompt (0, 1) with children (2, 3) and (4,): Siblings(num_segments=2, num_tokens=2, num_prefix=2)
    """

    num_segments: int  # M
    num_tokens: int  # T, of the longest
    num_prefix: int  # P, tokens of all ancestors

    @property
    def num_queries(self) -> int:
        return self.num_segments * self.num_tokens

    @property
    def num_keys(self) -> int:
        return self.num_segments * (self.num_prefix + self.num_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Forest:
    """One micro-batch. All tensors are on the model's device."""

    ids_L: Tensor  # int64; padded to a multiple of PAD_TOKENS by tokens that nobody attends to
    positions_L: Tensor  # int64, depth on the path from the root
    siblings: tuple[Siblings, ...]
    query_Q: Tensor  # int64: tokens that ask, all siblings one after the other; padding repeats token 0
    key_X: Tensor  # int64: tokens that they may see, per segment the prefix and then the segment itself, padded alike
    gather_L: Tensor  # int64: where token i stands in `query_Q`
    predecessor_N: Tensor  # int64: the hidden state that predicts the loss token
    target_N: Tensor  # int64, token ids
    behaviour_N: Tensor  # float32
    advantage_N: Tensor  # float32
    weight_N: Tensor  # float32, shares of the whole batch's loss
    newest_N: Tensor  # bool: sampled by the newest version that the batch holds
    places: tuple[tuple[int, int], ...]  # [N] (row, token) in the batch, for error messages


def micro_batches(rows: Sequence[PackedRow], max_tokens: int) -> list[list[int]]:
    """Row numbers in runs of at most `max_tokens` tokens, in order; a longer row is a run of its own."""
    runs: list[list[int]] = []
    size = 0
    for number, row in enumerate(rows):
        if not runs or size + len(row.ids) > max_tokens:
            runs.append([])
            size = 0
        runs[-1].append(number)
        size += len(row.ids)
    return runs


def plant(
    rows: Sequence[PackedRow],
    weights: Sequence[Sequence[float]],
    numbers: Sequence[int],
    *,
    newest: int,
    device: torch.device | str = "cpu",
) -> Forest:
    """The forest of the rows `numbers`; `weights` as `token_weights` gives them for all `rows`."""

    def ints(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    def floats(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    ids, positions, places, predecessors, spans, parents = _lay_out(rows, numbers)
    padding = [0] * (-len(ids) % PAD_TOKENS)
    siblings, queries, keys, gather = _plan_attention(spans, parents, len(ids))
    return Forest(
        ids_L=ints(ids + padding),
        positions_L=ints(positions + padding),
        siblings=tuple(siblings),
        query_Q=ints(queries),
        key_X=ints(keys),
        gather_L=ints(gather + padding),
        predecessor_N=ints(predecessors),
        target_N=ints([rows[r].ids[i] for r, i in places]),
        behaviour_N=floats([rows[r].logprobs[i] for r, i in places]),
        advantage_N=floats([rows[r].advantages[i] for r, i in places]),
        weight_N=floats([weights[r][i] for r, i in places]),
        newest_N=torch.tensor([rows[r].versions[i] == newest for r, i in places], device=device),
        places=tuple(places),
    )


Span = tuple[int, int]  # first token of a segment in the forest, and one past its last


def _lay_out(
    rows: Sequence[PackedRow], numbers: Sequence[int]
) -> tuple[list[int], list[int], list[tuple[int, int]], list[int], list[Span], list[int]]:
    """Concatenates rows: ids, positions, (row, token) and predecessor per loss token, spans and parents per segment."""
    ids: list[int] = []
    positions: list[int] = []
    places: list[tuple[int, int]] = []
    predecessors: list[int] = []
    spans: list[Span] = []
    parents: list[int] = []
    for number in numbers:
        row, offset, first_segment = rows[number], len(ids), len(parents)
        ends = [bisect_right(row.segments, segment) for segment in range(len(row.segment_parents))]
        spans += [(offset + start, offset + end) for start, end in zip([0, *ends], ends, strict=False)]
        parents += [parent + first_segment if parent >= 0 else -1 for parent in row.segment_parents]
        loss_tokens = [i for i, trained in enumerate(row.loss_mask) if trained]
        places += [(number, i) for i in loss_tokens]
        predecessors += [offset + row.predecessors[i] for i in loss_tokens]
        ids += row.ids
        positions += row.positions
    return ids, positions, places, predecessors, spans, parents


def _plan_attention(
    spans: Sequence[Span], parents: Sequence[int], num_tokens: int
) -> tuple[list[Siblings], list[int], list[int], list[int]]:
    """Sibling sets, `query_Q`, `key_X` and `gather_L`. Lengths in one set differ by less than a factor of two."""
    families: dict[tuple[int, int], list[int]] = defaultdict(list)
    for segment, (start, end) in enumerate(spans):
        if end > start:  # an attempt that sampled nothing leaves an empty segment
            families[parents[segment], (end - start).bit_length()].append(segment)
    siblings, queries, keys = [], list[int](), list[int]()
    gather = [0] * num_tokens
    for (parent, _), members in families.items():
        longest = max(spans[segment][1] - spans[segment][0] for segment in members)
        prefix = _path(parent, spans, parents)
        siblings.append(Siblings(num_segments=len(members), num_tokens=longest, num_prefix=len(prefix)))
        for start, end in (spans[segment] for segment in members):
            gather[start:end] = range(len(queries), len(queries) + end - start)
            padded = [*range(start, end), *[0] * (longest - (end - start))]
            queries += padded
            keys += prefix + padded
    return siblings, queries, keys, gather


def _path(segment: int, spans: Sequence[Span], parents: Sequence[int]) -> list[int]:
    """Tokens from the root to the end of `segment`; none for -1."""
    chain = []
    while segment >= 0:
        chain.append(segment)
        segment = parents[segment]
    return [token for ancestor in reversed(chain) for token in range(*spans[ancestor])]
