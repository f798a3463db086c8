"""Keys and values of all sequences in one block of memory, and the attention that reads them.

transformers' models call a registered attention function with the queries, keys and values of the tokens of one forward
pass; everything else (rotary embedding, norms, MLP) stays the model's own code. Here a forward pass is one packed row:
first one token for each running sequence (decode), then the new tokens of the sequences that join (prefill). Row `r` of
the cache belongs to running sequence `r`, so that decode reads the rows `0..R-1` as one slice and nothing is gathered.

Shapes: `N` tokens of the pass, `R` decoding sequences, `H` query heads, `K` key/value heads, `G = H / K`, `C` context
capacity of a row, `L` the part of it that is read, `D` head size, `W` rows, `T` tokens of a segment.
"""

import math
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

ATTENTION_NAME = "burnish"
CHUNK_ROWS = 8  # decoding rows are read in chunks, each up to its own longest row; smaller chunks cost more calls
LENGTH_STEP = 16  # tokens; those lengths are rounded up to this


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
    """What a layer keeps of a token.

    Example: LayerShape(num_kv_heads=3, key_size=64, value_size=64)
    """

    num_kv_heads: int
    key_size: int
    value_size: int

    @property
    def width(self) -> int:
        """E: numbers kept for a token."""
        return self.num_kv_heads * (self.key_size + self.value_size)


class Attend(Protocol):
    """Stores the keys and values of a pass and answers its queries."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None, window: int | None) -> Tensor:
        """q [1, H, N, D], k and v [1, K, N, D] -> [1, N, H, D]. `window`: tokens visible to each, None for all."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Neighbouring decoding rows that are attended in one call.

    Example: Chunk(begin=8, end=16, read_length=176)
    """

    begin: int
    end: int
    read_length: int  # what the longest of the rows holds, rounded up


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
        self._chunks = [
            Chunk(
                begin=begin,
                end=min(begin + CHUNK_ROWS, self.num_decode),
                read_length=min(capacity, _rounded_up(max(lengths[begin : begin + CHUNK_ROWS]) + 1)),
            )
            for begin in range(0, self.num_decode, CHUNK_ROWS)
        ]
        self._masked_chunks: dict[int | None, list[tuple[Chunk, Tensor]]] = {}

    def masked_chunks(self, window: int | None, dtype: torch.dtype) -> list[tuple[Chunk, Tensor]]:
        """Each chunk and its mask [rows, 1, 1, L]: 0 where a row's new token may look, -inf elsewhere.

        The same for all layers of one window, so they are made once.
        """
        if (made := self._masked_chunks.get(window)) is None:
            made = [(chunk, self._mask(chunk, window, dtype)) for chunk in self._chunks]
            self._masked_chunks[window] = made
        return made

    def _mask(self, chunk: Chunk, window: int | None, dtype: torch.dtype) -> Tensor:
        last_R1 = self.positions_N[chunk.begin : chunk.end, None]
        key_L = torch.arange(chunk.read_length, device=last_R1.device)
        hidden_RL = key_L > last_R1
        if window is not None:
            hidden_RL |= key_L <= last_R1 - window
        mask_RL = torch.zeros(hidden_RL.shape, dtype=dtype, device=last_R1.device)
        return mask_RL.masked_fill_(hidden_RL, -torch.inf)[:, None, None, :]


class KVCache:
    """Keys and values of W sequences, [layers, W, C, E]: a token's keys of all heads, then its values.

    Memory is touched only where tokens are stored.
    """

    def __init__(
        self, shape: LayerShape, *, num_layers: int, rows: int, capacity: int, dtype: torch.dtype, device: str
    ) -> None:
        self.shape = shape
        self.capacity = capacity
        self.current: Pass | None = None
        self._store = _zeros((num_layers, rows, capacity, shape.width), dtype, device)
        self._flat = [layer.view(rows * capacity, -1) for layer in self._store]
        split = shape.num_kv_heads * shape.key_size
        keys, values = self._store[..., :split], self._store[..., split:]
        self._keys = list(_split_heads(keys, shape.num_kv_heads).transpose(2, 3))  # each [W, K, C, D]
        self._values = list(_split_heads(values, shape.num_kv_heads).transpose(2, 3))

    def copy(self, source: int, target: int, length: int) -> None:
        """Makes the first `length` tokens of row `target` those of row `source`."""
        self._store[:, target, :length] = self._store[:, source, :length]

    def store(self, layer: int, kv_NE: Tensor) -> None:
        """Puts the pass's tokens where the pass says."""
        assert self.current is not None
        self._flat[layer].index_copy_(0, self.current.cells_N, kv_NE)

    def read(self, layer: int, q_NHD: Tensor, scale: float | None, window: int | None) -> Tensor:
        """The attention of the pass's queries [N, H, D] over what their sequences hold, [N, H, D] (D of the values)."""
        step = self.current
        assert step is not None
        keys_WKCD, values_WKCD = self._keys[layer], self._values[layer]
        num_kv_heads = self.shape.num_kv_heads
        out_NHD = q_NHD.new_empty((*q_NHD.shape[:2], self.shape.value_size))
        # Heads that share a key/value head become queries of one sequence: nothing is repeated in memory.
        q_NKGD = _group_heads(q_NHD, num_kv_heads)
        out_NKGD = _group_heads(out_NHD, num_kv_heads)
        for chunk, mask in step.masked_chunks(window, q_NHD.dtype):
            rows, length = slice(chunk.begin, chunk.end), chunk.read_length
            k_RKLD, v_RKLD = keys_WKCD[rows, :, :length], values_WKCD[rows, :, :length]
            out_NKGD[rows] = scaled_dot_product_attention(q_NKGD[rows], k_RKLD, v_RKLD, attn_mask=mask, scale=scale)
        begin = step.num_decode
        for segment in step.segments:
            end, length = begin + segment.length, segment.start + segment.length
            k_KLD, v_KLD = keys_WKCD[segment.row, None, :, :length], values_WKCD[segment.row, None, :, :length]
            out_NHD[begin:end] = _prefill(q_NHD[None, begin:end].transpose(1, 2), k_KLD, v_KLD, segment, scale, window)
            begin = end
        return out_NHD

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None, window: int | None) -> Tensor:
        """`Attend` for transformers' modules."""
        self.store(layer, torch.cat([part[0].transpose(0, 1).flatten(1) for part in (k, v)], dim=1))
        return self.read(layer, q[0].transpose(0, 1), scale, window)[None]


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Zeros, since a masked score times a NaN left in fresh memory would still be NaN. CPU pages come when written."""
    if device != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    pages = mmap.mmap(-1, math.prod(size) * dtype.itemsize)  # torch.zeros would write, and so use, all of them
    return torch.frombuffer(pages, dtype=dtype).view(size)


def _split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[..., heads * D] -> [..., heads, D], a view."""
    return x.view(*x.shape[:-1], num_heads, x.shape[-1] // num_heads)


def _group_heads(x_NHD: Tensor, num_kv_heads: int) -> Tensor:
    """[N, H, D] -> [N, K, G, D], a view."""
    return x_NHD.view(x_NHD.shape[0], num_kv_heads, x_NHD.shape[1] // num_kv_heads, x_NHD.shape[2])


def _rounded_up(length: int) -> int:
    return -(-length // LENGTH_STEP) * LENGTH_STEP


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


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCall:
    """How a layer's module calls attention.

    Example: LayerCall(shape=shape, scale=0.125, window=None)
    """

    shape: LayerShape
    scale: float | None  # None: 1 / sqrt(key_size)
    window: int | None


@dataclass(slots=True)
class Probe:
    """Stands in for the cache once, to learn how the layers of a model call attention. Answers zeros."""

    calls: dict[int, LayerCall] = field(default_factory=dict)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None, window: int | None) -> Tensor:
        shape = LayerShape(num_kv_heads=k.shape[1], key_size=k.shape[3], value_size=v.shape[3])
        self.calls[layer] = LayerCall(shape=shape, scale=scale, window=window)
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
