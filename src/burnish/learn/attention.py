"""Attention over a forest of segments, registered with transformers under the name `burnish_forest`.

Legend: `L` tokens of the forest, `H` query heads, `K` key/value heads, `G = H / K` query heads per key/value head,
`D` head size, `M` sibling segments, `T` tokens of a segment, `P` tokens of the shared prefix, `C = P + T` keys.

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
    parts = [_attend(query_LHD, key_LKD, value_LKD, family, scaling) for family in forest.siblings]
    out_LHD = torch.cat(parts).index_select(0, forest.gather_L)
    return out_LHD.unsqueeze(0), None


def _attend(query_LHD: Tensor, key_LKD: Tensor, value_LKD: Tensor, family: Siblings, scaling: float) -> Tensor:
    """One set of siblings; `[M * T, H, D]`. Query heads of one key head are folded into the query length."""
    (M, T), P = family.query_MT.shape, family.prefix_P.shape[0]
    (_, H, D), K = query_LHD.shape, key_LKD.shape[1]
    G = H // K
    tokens = family.query_MT.flatten()
    keys = torch.cat([family.prefix_P.expand(M, P), family.query_MT], dim=1).flatten()
    query_MKRD = query_LHD[tokens].view(M, T, K, G, D).permute(0, 2, 3, 1, 4).reshape(M, K, G * T, D)
    key_MKDC = key_LKD[keys].view(M, P + T, K, D).permute(0, 2, 3, 1)
    value_MKCD = value_LKD[keys].view(M, P + T, K, D).transpose(1, 2)
    score_MKGTC = (query_MKRD @ key_MKDC).view(M, K, G, T, P + T).float() * scaling
    score_MKGTC = score_MKGTC + causal_bias(T, P, device=query_LHD.device)
    weight_MKRC = score_MKGTC.softmax(-1).to(query_LHD.dtype).view(M, K, G * T, P + T)
    out_MKGTD = (weight_MKRC @ value_MKCD).view(M, K, G, T, D)
    return out_MKGTD.permute(0, 3, 1, 2, 4).reshape(M * T, H, D)


def causal_bias(T: int, P: int, *, device: torch.device) -> Tensor:
    """`[T, P + T]`: 0 where query t may see key c, -inf where c lies after it. Padding lies after every real query."""
    return torch.full((T, P + T), float("-inf"), device=device).triu_(P + 1)


AttentionInterface.register(NAME, forest_attention)
