"""The policy-gradient loss: pure functions of tensors.

Legend of the shape suffixes: `N` loss tokens (sampled and trained).

One optimizer step is taken per batch, so the policy that is updated *is* the policy at the start of the step; there is
no separate "old policy" to compare it with. What differs is the policy that sampled: an earlier version when the run is
asynchronous, and even at lag 0 the engine's arithmetic, which is not bit-equal to the learner's. So the ratio is taken
against the *behaviour* logprobs that the engine returned, and one formula covers both kinds of gap:

    r = exp(logp - behaviour)
    surrogate = min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)     where A >= 0
    surrogate = max(min(r A, clip(...) A), importance_cap A)         where A <  0

This is the dual-clip objective (Ye et al. 2020, https://arxiv.org/abs/1912.09729, eq. 5) on PPO's clip (Schulman et al.
2017, https://arxiv.org/abs/1707.06347, eq. 7) with DAPO's wider upper side (Yu et al. 2025,
https://arxiv.org/abs/2503.14476, eq. 10). Plain PPO leaves one side open: with A < 0 the ratio may grow without bound,
and a single stale token can then own the gradient. `importance_cap` closes that side. On fresh data r is 1 up to
rounding and the gradient is that of REINFORCE.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from burnish.types import PackedRow

# exp() of more overflows to inf in the branch that is not selected, and 0 * inf is a NaN gradient. A ratio of e^20 lies
# far outside every clip range, where the gradient is 0 on both sides of the bound, so clamping changes nothing else.
MAX_LOG_RATIO = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Clip:
    """How far a token's probability may move before it stops to count.

    Example: Clip(low=0.2, high=0.28, cap=2.0)
    """

    low: float
    high: float
    cap: float  # of the ratio where the advantage is negative; above 1


def importance_ratio(logp_N: Tensor, behaviour_N: Tensor) -> Tensor:
    """`[N]` probability under the learner over probability under the policy that sampled."""
    return torch.exp((logp_N - behaviour_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))


def clipped_policy_loss(
    logp_N: Tensor, behaviour_N: Tensor, advantage_N: Tensor, weight_N: Tensor, clip: Clip
) -> tuple[Tensor, Tensor]:
    """The dual-clip loss of the module docstring.

    Args:
        logp_N: learner's natural-log probabilities of the sampled tokens; carries the gradient.
        behaviour_N: those of the policy that sampled them, under the same temperature.
        advantage_N: per-token advantages.
        weight_N: share of each token in the batch's loss; see `token_weights`. They sum to 1 over a batch, so the
            losses of its micro-batches simply add up.

    Returns:
        The scalar loss `-sum(weight * surrogate)`, and `[N]` bool: tokens whose gradient the clip removed.
    """
    ratio_N = importance_ratio(logp_N, behaviour_N)
    clamped_N = ratio_N.clamp(1.0 - clip.low, 1.0 + clip.high)
    surrogate_N = torch.minimum(ratio_N * advantage_N, clamped_N * advantage_N)
    negative_N = advantage_N < 0
    surrogate_N = torch.where(negative_N, torch.maximum(surrogate_N, clip.cap * advantage_N), surrogate_N)
    too_high_N = (advantage_N > 0) & (ratio_N > 1.0 + clip.high)
    too_low_N = negative_N & ((ratio_N < 1.0 - clip.low) | (ratio_N > clip.cap))
    return -(weight_N * surrogate_N).sum(), too_high_N | too_low_N


def token_weights(rows: Sequence[PackedRow], norm: Literal["token", "sequence"]) -> list[list[float]]:
    """The share of every token in the loss of the whole batch; per row `[L]`, 0.0 where the token is not trained.

    "token": every loss token of the batch counts the same (DAPO, https://arxiv.org/abs/2503.14476, section 3.3).
    "sequence": every sequence counts the same and its loss tokens share that equally (GRPO as first published,
    https://arxiv.org/abs/2402.03300, eq. 3). A sequence is a path from a root to a leaf. A trained segment that
    several leaves share gets the sum of what it would have got in each copy, so packing does not change the loss.

    Raises ValueError when no token is trained: there is nothing to divide by.
    """
    num_loss_tokens = sum(sum(row.loss_mask) for row in rows)
    if num_loss_tokens == 0:
        raise ValueError("the batch has no loss token")
    if norm == "token":
        return [[float(trained) / num_loss_tokens for trained in row.loss_mask] for row in rows]
    shares = [_segment_shares(row) for row in rows]
    num_sequences = sum(num for _, num in shares)
    return [
        [share[s] / num_sequences if trained else 0.0 for s, trained in zip(row.segments, row.loss_mask, strict=True)]
        for row, (share, _) in zip(rows, shares, strict=True)
    ]


def _segment_shares(row: PackedRow) -> tuple[list[float], int]:
    """Per segment the sum over its leaves of 1 / (loss tokens on the leaf's path); and how many leaves count."""
    parents = row.segment_parents
    tokens = [0] * len(parents)
    for segment, trained in zip(row.segments, row.loss_mask, strict=True):
        tokens[segment] += trained
    share = [0.0] * len(parents)
    num_sequences = 0
    for leaf in set(range(len(parents))) - set(parents):
        path = [leaf]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        on_path = sum(tokens[segment] for segment in path)
        if on_path == 0:
            continue  # a leaf that trains nothing is no sequence of this loss
        num_sequences += 1
        for segment in path:
            share[segment] += 1.0 / on_path
    return share, num_sequences
