"""Logprobs of chosen tokens from hidden states, without keeping logits.

Legend: `N` tokens, `E` hidden size, `V` vocabulary, `B` tokens of a block.
"""

from typing import Any

import torch
from torch import Tensor

BLOCK_TOKENS = 16  # float32 rows of a vocabulary of 50 thousand that fit a core's cache together


class _TokenLogprobs(torch.autograd.Function):
    """Turns logits into their own gradient in place, so one `[N, V]` buffer in the model's dtype is all there is.

    With D = onehot(target) - p, the gradient of the logprob by the logits is D / temperature. An incoming gradient g
    scales rows of D, which commutes with both products of the backward pass, so `[N, E]` is scaled and not `[N, V]`.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_NE: Tensor, weight_VE: Tensor, target_N: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        logits_NV = hidden_NE @ weight_VE.T
        logp_N = torch.empty(len(target_N), dtype=torch.float32, device=hidden_NE.device)
        entropy_N = torch.empty_like(logp_N)
        buffers = torch.empty(2, BLOCK_TOKENS, logits_NV.shape[1], dtype=torch.float32, device=hidden_NE.device)
        for start in range(0, len(target_N), BLOCK_TOKENS):
            block = slice(start, start + BLOCK_TOKENS)
            logits_BV, target_B1 = logits_NV[block], target_N[block, None]
            a_BV, b_BV = buffers[:, : len(logits_BV)]
            a_BV.copy_(logits_BV)
            if temperature != 1.0:
                a_BV /= temperature
            logprob_BV = torch.log_softmax(a_BV, dim=-1, out=b_BV)
            prob_BV = torch.exp(logprob_BV, out=a_BV)
            logp_B1 = logprob_BV.gather(1, target_B1)
            logp_N[block] = logp_B1.squeeze(1)
            logits_BV.copy_(prob_BV).neg_()
            # 1 - p of a confident token would vanish in bf16, so the target's own entry is set from float32.
            logits_BV.scatter_(1, target_B1, -torch.expm1(logp_B1).to(logits_BV.dtype))
            entropy_N[block] = -prob_BV.mul_(logprob_BV).sum(-1)
        ctx.temperature = temperature
        ctx.save_for_backward(hidden_NE, weight_VE, logits_NV)
        ctx.mark_non_differentiable(entropy_N)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        hidden_NE, weight_VE, d_NV = ctx.saved_tensors
        scale_N1 = (grads[0] / ctx.temperature)[:, None]
        grad_hidden_NE = (d_NV @ weight_VE) * scale_N1
        grad_weight_VE = d_NV.T @ (hidden_NE * scale_N1).to(hidden_NE.dtype)
        return grad_hidden_NE.to(hidden_NE.dtype), grad_weight_VE, None, None


def token_logprobs(
    hidden_NE: Tensor, weight_VE: Tensor, target_N: Tensor, *, temperature: float
) -> tuple[Tensor, Tensor]:
    """Natural-log probabilities of the targets, and the entropies of the distributions they were drawn from.

    Both are float32 `[N]` and under `softmax(hidden @ weight.T / temperature)`; only the logprobs carry a gradient.
    Needs one buffer of `N * V` in the dtype of `hidden` until the backward pass: callers choose `N`.
    """
    logp_N, entropy_N = _TokenLogprobs.apply(hidden_NE, weight_VE, target_N, temperature)  # type: ignore[no-untyped-call]
    return logp_N, entropy_N
