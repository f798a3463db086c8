"""Attention over a forest of segments, registered with transformers under the name `burnish_forest`.

Legend: `L` tokens of the forest, `H` query heads, `K` key/value heads, `G = H / K` query heads per key/value head,
`D` head size, `M` sibling segments, `T` tokens of a segment, `P` tokens of the shared prefix, `C = P + T` keys,
`R = G * T` folded queries.

Every causal language model of transformers that takes its attention from the `AttentionInterface` registry and hands
keyword arguments through (Llama, Qwen, Mistral, ... do) can run on it; `policy.load_policy` proves it for the model at
hand by comparing with the model's own attention.
"""

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from burnish.learn.forest import Forest, Siblings

NAME = "burnish_forest"


def forest_attention(
    module: nn.Module,
    query_1HLD: Tensor,
    key_1KLD: Tensor,
    value_1KLD: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    forest: Forest,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attends token i to j <= i in ancestor segments and its own. Returns `[1, L, H, D]` and no weights.

    Raises ValueError for features that this attention does not have: a sliding window that would cut, soft caps.
    """
    assert attention_mask is None  # transformers builds masks only for implementations that it knows
    if softcap is not None:
        raise ValueError(f"the learner's attention has no soft cap, but the model asks for {softcap}")
    if sliding_window is not None and sliding_window <= int(forest.positions_L.max()):
        raise ValueError(f"a sequence is longer than the model's sliding window of {sliding_window} tokens")
    query_LHD, key_LKD, value_LKD = (x.squeeze(0).transpose(0, 1) for x in (query_1HLD, key_1KLD, value_1KLD))
    num_queries = [family.num_queries for family in forest.siblings]
    num_keys = [family.num_keys for family in forest.siblings]
    # One selection for all sets of siblings: the gradient of each would be a tensor over the whole forest.
    queries = query_LHD.index_select(0, forest.query_Q).split(num_queries)  # type: ignore[no-untyped-call]
    keys = key_LKD.index_select(0, forest.key_X).split(num_keys)  # type: ignore[no-untyped-call]
    values = value_LKD.index_select(0, forest.key_X).split(num_keys)  # type: ignore[no-untyped-call]
    parts = [
        _attend(query, key, value, family, scaling)
        for query, key, value, family in zip(queries, keys, values, forest.siblings, strict=True)
    ]
    out_LHD = torch.cat(parts).index_select(0, forest.gather_L)
    return out_LHD.unsqueeze(0), None


def _attend(query: Tensor, key: Tensor, value: Tensor, family: Siblings, scaling: float) -> Tensor:
    """One set of siblings: `[M * T, H, D]` queries, `[M * C, K, D]` keys and values; returns `[M * T, H, D]`.

    Query heads that share a key head are folded into the query length.
    """
    M, T, P = family.num_segments, family.num_tokens, family.num_prefix
    H, K, D = query.shape[1], key.shape[1], query.shape[2]
    G, C = H // K, P + T
    query_MKRD = (query * scaling).view(M, T, K, G, D).permute(0, 2, 3, 1, 4).reshape(M, K, G * T, D)
    key_MKDC = key.view(M, C, K, D).permute(0, 2, 3, 1)
    value_MKCD = value.view(M, C, K, D).transpose(1, 2)
    score_MKGTC = (query_MKRD @ key_MKDC).view(M, K, G, T, C)
    score_MKGTC += causal_bias(T, P, like=query)
    weight_MKRC = score_MKGTC.softmax(-1).view(M, K, G * T, C)  # sums in float32 whatever the dtype
    out_MKGTD = (weight_MKRC @ value_MKCD).view(M, K, G, T, D)
    return out_MKGTD.permute(0, 3, 1, 2, 4).reshape(M * T, H, D)


def causal_bias(T: int, P: int, *, like: Tensor) -> Tensor:
    """`[T, P + T]`: 0 where query t may see key c, -inf where c lies after it. Padding lies after every real query."""
    return torch.full((T, P + T), float("-inf"), dtype=like.dtype, device=like.device).triu_(P + 1)


AttentionInterface.register(NAME, forest_attention)
