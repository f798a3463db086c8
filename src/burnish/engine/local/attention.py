"""Keys and values of all sequences in one block of memory, and the attention that reads them.

transformers' models call a registered attention function with the queries, keys and values of the tokens of one forward
pass; everything else (rotary embedding, norms, MLP) stays the model's own code. Here a forward pass is one packed row:
first one token for each running sequence (decode), then the new tokens of the sequences that join (prefill). Row `r` of
the cache belongs to running sequence `r`, so that decode reads the rows `0..R-1` as one slice and nothing is gathered.

Shapes: `N` tokens of the pass, `R` decoding sequences, `H` query heads, `K` key/value heads, `G = H / K`, `C` context
capacity of a row, `L` the part of it in use, `D` head size, `W` rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

ATTENTION_NAME = "burnish"
LENGTH_STEP = 32  # decode reads lengths rounded up to this, so that its shapes change rarely


class UnsupportedModel(Exception):
    """The architecture needs something in its attention that this engine does not do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """New tokens of one sequence: they extend what row `row` holds from position `start`.

    Example: Segment(row=2, start=0, length=57)
    """

    row: int
    start: int
    length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerShape:
    """What one layer keeps of a token.

    Example: LayerShape(num_kv_heads=3, key_size=64, value_size=64)
    """

    num_kv_heads: int
    key_size: int
    value_size: int


class Attend(Protocol):
    """Stores the keys and values of a pass and answers its queries."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None, window: int | None) -> Tensor:
        """q [1, H, N, D], k and v [1, K, N, D] -> [1, N, H, D]. `window`: tokens visible to each, None for all."""
        ...


class Pass:
    """The layout of one forward pass: R decoding tokens, then the tokens of the prefill segments."""

    def __init__(self, lengths: Sequence[int], segments: Sequence[Segment], *, capacity: int, device: str) -> None:
        """`lengths[r]` is what row r holds before this pass; its new token goes to that position."""
        self.num_decode = len(lengths)
        self.segments = tuple(segments)
        rows, positions = list(range(len(lengths))), list(lengths)
        for segment in segments:
            rows += [segment.row] * segment.length
            positions += range(segment.start, segment.start + segment.length)
        self.positions_N = torch.tensor(positions, device=device)
        self.cells_N = torch.tensor(rows, device=device) * capacity + self.positions_N  # where each token is stored
        longest = max(lengths, default=0) + 1
        self.read_length = min(capacity, -(-longest // LENGTH_STEP) * LENGTH_STEP)
        self._decode_masks: dict[int | None, Tensor] = {}

    def decode_mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """[R, 1, 1, L]: 0 where row r's new token may look, -inf elsewhere. The same for every layer of a kind."""
        if (mask := self._decode_masks.get(window)) is None:
            last_R1 = self.positions_N[: self.num_decode, None]
            key_L = torch.arange(self.read_length, device=last_R1.device)
            hidden_RL = key_L > last_R1
            if window is not None:
                hidden_RL |= key_L <= last_R1 - window
            mask = torch.zeros(hidden_RL.shape, dtype=dtype, device=last_R1.device)
            mask = mask.masked_fill_(hidden_RL, -torch.inf)[:, None, None, :]
            self._decode_masks[window] = mask
        return mask


class KVCache:
    """Keys and values [layers, W, C, K, D] of W sequences. Memory is touched only where tokens are stored."""

    def __init__(
        self, shapes: Sequence[LayerShape], *, rows: int, capacity: int, dtype: torch.dtype, device: str
    ) -> None:
        first = shapes[0]
        size = (len(shapes), rows, capacity, first.num_kv_heads)
        # Zeros and not empty: a masked score times a NaN left in fresh memory would still be NaN.
        self._keys = torch.zeros((*size, first.key_size), dtype=dtype, device=device)
        self._values = torch.zeros((*size, first.value_size), dtype=dtype, device=device)
        self.capacity = capacity
        self.current: Pass | None = None

    def copy(self, source: int, target: int, length: int) -> None:
        """Makes the first `length` tokens of row `target` those of row `source`."""
        for store in (self._keys, self._values):
            store[:, target, :length] = store[:, source, :length]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None, window: int | None) -> Tensor:
        step = self.current
        assert step is not None
        keys_WCKD, values_WCKD = self._keys[layer], self._values[layer]
        for store, new in ((keys_WCKD, k), (values_WCKD, v)):
            flat = new[0].transpose(0, 1).reshape(new.shape[2], -1)
            store.view(-1, flat.shape[1]).index_copy_(0, step.cells_N, flat)
        num_heads, num_kv_heads = q.shape[1], k.shape[1]
        parts = []
        if rows := step.num_decode:
            q_RKGD = q[0, :, :rows].transpose(0, 1).reshape(rows, num_kv_heads, num_heads // num_kv_heads, -1)
            out_RKGD = scaled_dot_product_attention(
                q_RKGD,
                keys_WCKD[:rows, : step.read_length].transpose(1, 2),
                values_WCKD[:rows, : step.read_length].transpose(1, 2),
                attn_mask=step.decode_mask(window, q.dtype),
                scale=scale,
            )
            parts.append(out_RKGD.reshape(rows, num_heads, -1))
        begin = rows
        for segment in step.segments:
            q_HTD = q[:, :, begin : begin + segment.length]
            end = segment.start + segment.length
            k_KLD = keys_WCKD[segment.row, None, :end].transpose(1, 2)
            v_KLD = values_WCKD[segment.row, None, :end].transpose(1, 2)
            parts.append(_prefill(q_HTD, k_KLD, v_KLD, segment, scale, window))
            begin += segment.length
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[None]


def _prefill(q: Tensor, k: Tensor, v: Tensor, segment: Segment, scale: float | None, window: int | None) -> Tensor:
    """q [1, H, T, D] against everything its sequence holds, k and v [1, K, start + T, D] -> [T, H, D]."""
    mask = None
    if segment.start > 0 or (window is not None and window < segment.length):
        query_T1 = torch.arange(segment.start, segment.start + segment.length, device=q.device)[:, None]
        key_L = torch.arange(k.shape[2], device=q.device)
        mask = key_L <= query_T1
        if window is not None:
            mask &= key_L > query_T1 - window
    grouped = q.shape[1] != k.shape[1]
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped)
    return out[0].transpose(0, 1)


@dataclass(slots=True)
class ShapeProbe:
    """Stands in for the cache once, to learn what the layers of a model keep. Answers zeros."""

    shapes: dict[int, LayerShape] = field(default_factory=dict)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None, window: int | None) -> Tensor:
        self.shapes[layer] = LayerShape(num_kv_heads=k.shape[1], key_size=k.shape[3], value_size=v.shape[3])
        return q.new_zeros((1, q.shape[2], q.shape[1], v.shape[3]))


_active: Attend | None = None  # one forward pass at a time: an engine is single-threaded


@contextmanager
def attending(target: Attend) -> Iterator[None]:
    """Within the block, models whose attention is `ATTENTION_NAME` ask `target`."""
    global _active
    before, _active = _active, target
    try:
        yield
    finally:
        _active = before


def _attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface."""
    for name in ("softcap", "s_aux", "head_mask", "position_bias"):
        if extra.get(name) is not None:
            raise UnsupportedModel(f"its attention uses {name}")
    layer = getattr(module, "layer_idx", None)
    if _active is None or not isinstance(layer, int):
        raise UnsupportedModel("its attention layers do not know their index")
    return _active.attend(layer, query, key, value, scaling, sliding_window), None


AttentionInterface.register(ATTENTION_NAME, _attention_function)
