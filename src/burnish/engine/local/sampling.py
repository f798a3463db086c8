"""Drawing tokens: one uniform number for each token, by inverse CDF, with the logprob of what was drawn.

Everything is computed in fp32 on rows of logits [B, V]. A request's draws depend on its own seed and logits only,
never on who shares its batch.
"""

import random
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from burnish.types import Sampling

BLOCK = 256  # the CDF is summed in blocks of this many tokens first, so that no cumulative sum runs over the vocabulary


class Sampler:
    """The sampling parameters of one request and its stream of uniform numbers."""

    def __init__(self, sampling: Sampling) -> None:
        self.greedy = sampling.temperature == 0
        self.inverse_temperature = 1.0 if self.greedy else 1.0 / sampling.temperature
        self.top_p = sampling.top_p
        self.top_k = sampling.top_k
        self._random = random.Random(sampling.seed)  # None: seeded by the operating system

    @property
    def truncated(self) -> bool:
        """Whether some tokens are excluded before drawing."""
        return not self.greedy and (self.top_p < 1 or self.top_k > 0)

    def uniform(self) -> float:
        """In [0, 1); the next one of the stream."""
        return self._random.random()


def sample(logits_BV: Tensor, samplers: Sequence[Sampler]) -> tuple[list[int], list[float]]:
    """One token for each row: token ids [B] and logprobs [B] under the distribution that was sampled.

    A greedy row takes the argmax; its logprob is that of temperature 1.
    """
    device = logits_BV.device
    logits_BV = logits_BV.contiguous()  # fast projections leave the transpose; reductions over it are ten times slower
    scale_B = torch.tensor([sampler.inverse_temperature for sampler in samplers], device=device)
    top_B = logits_BV.amax(dim=-1).float()
    shifted_BV = logits_BV - top_B[:, None]  # fp32, since `top_B` is
    if any(sampler.inverse_temperature != 1 for sampler in samplers):
        shifted_BV *= scale_B[:, None]
    for row, sampler in enumerate(samplers):
        if sampler.truncated:
            _truncate(shifted_BV[row], sampler)
    uniforms = [0.0 if sampler.greedy else sampler.uniform() for sampler in samplers]
    token_B, total_B = _draw(shifted_BV, torch.tensor(uniforms, dtype=torch.float64, device=device))
    greedy = [row for row, sampler in enumerate(samplers) if sampler.greedy]
    if greedy:
        token_B[greedy] = logits_BV[greedy].argmax(dim=-1)
    chosen_B = (logits_BV.gather(1, token_B[:, None])[:, 0] - top_B) * scale_B
    logp_B = chosen_B.double() - total_B.log()
    return token_B.tolist(), logp_B.tolist()


def _draw(shifted_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens [B] by inverse CDF of softmax(shifted), and the sum of exp(shifted) [B] in fp64. Overwrites its input."""
    weights_BV = shifted_BV.exp_()
    rows, vocabulary = weights_BV.shape
    if remainder := vocabulary % BLOCK:
        weights_BV = pad(weights_BV, (0, BLOCK - remainder))
    blocks_BMK = weights_BV.view(rows, -1, BLOCK)
    cdf_BM = blocks_BMK.sum(dim=-1).double().cumsum_(dim=-1)
    total_B = cdf_BM[:, -1]
    target_B = uniform_B * total_B
    block_B = _first_above(cdf_BM, target_B)
    inner_BK = blocks_BMK[torch.arange(rows, device=block_B.device), block_B].double().cumsum_(dim=-1)
    before_B = cdf_BM.gather(1, block_B[:, None])[:, 0] - inner_BK[:, -1]
    within_B = _first_above(inner_BK, target_B - before_B)
    return block_B * BLOCK + within_B, total_B


def _first_above(cdf_BM: Tensor, target_B: Tensor) -> Tensor:
    """The first index whose cumulative sum exceeds the target; rounding never selects one of zero weight."""
    below_end_B = cdf_BM[:, -1] * (1 - 2**-40)
    target_B = target_B.clamp(min=0.0).minimum(below_end_B)
    return torch.searchsorted(cdf_BM, target_B[:, None], right=True)[:, 0]


def _truncate(scaled_V: Tensor, sampler: Sampler) -> None:
    """Sets excluded tokens to -inf in place: all but the top_k, then all beyond the smallest set of mass top_p."""
    if sampler.top_k > 0:
        kth = scaled_V.topk(min(sampler.top_k, scaled_V.numel())).values[-1]
        scaled_V.masked_fill_(scaled_V < kth, -torch.inf)
    if sampler.top_p < 1:
        ordered_V, index_V = scaled_V.softmax(dim=-1).sort(descending=True)
        mass_before_V = ordered_V.double().cumsum(dim=-1) - ordered_V
        excluded_V = mass_before_V >= sampler.top_p  # the most likely token has no mass before it and stays
        excluded_V[0] = False  # also at top_p 0
        scaled_V[index_V[excluded_V]] = -torch.inf
