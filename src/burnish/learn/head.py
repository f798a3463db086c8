"""Logprobs of chosen tokens from hidden states, without keeping logits.

Legend: `N` tokens, `E` hidden size, `V` vocabulary.
"""

from typing import Any

import torch
from torch import Tensor


class _TokenLogprobs(torch.autograd.Function):
    """Keeps the probabilities in the model's dtype for the backward pass and nothing else of size `[N, V]`."""

    @staticmethod
    def forward(
        ctx: Any, hidden_NE: Tensor, weight_VE: Tensor, target_N: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        logits_NV = (hidden_NE @ weight_VE.T).float()
        if temperature != 1.0:
            logits_NV /= temperature
        logprob_NV = torch.log_softmax(logits_NV, dim=-1)
        prob_NV = torch.exp(logprob_NV, out=logits_NV)
        entropy_N = -torch.linalg.vecdot(prob_NV, logprob_NV)
        logp_N = logprob_NV.gather(1, target_N[:, None]).squeeze(1)
        ctx.temperature = temperature
        ctx.save_for_backward(hidden_NE, weight_VE, target_N, logp_N, prob_NV.to(hidden_NE.dtype))
        ctx.mark_non_differentiable(entropy_N)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """d logp_t / d logits = (onehot(t) - p) / temperature."""
        hidden_NE, weight_VE, target_N, logp_N, prob_NV = ctx.saved_tensors
        scale_N = grads[0] / ctx.temperature
        grad_NV = prob_NV * -scale_N[:, None].to(prob_NV.dtype)
        # 1 - p of a confident token would vanish in bf16, so the target's own entry is set from float32.
        at_target_N = -torch.expm1(logp_N) * scale_N
        grad_NV.scatter_(1, target_N[:, None], at_target_N[:, None].to(grad_NV.dtype))
        return grad_NV @ weight_VE, grad_NV.T @ hidden_NE, None, None


def token_logprobs(
    hidden_NE: Tensor, weight_VE: Tensor, target_N: Tensor, *, temperature: float
) -> tuple[Tensor, Tensor]:
    """Natural-log probabilities of the targets, and the entropies of the distributions they were drawn from.

    Both are float32 `[N]` and under `softmax(hidden @ weight.T / temperature)`; only the logprobs carry a gradient.
    Needs two buffers of `N * V` float32 while it runs: callers choose `N` (see `step.HEAD_CHUNK`).
    """
    logp_N, entropy_N = _TokenLogprobs.apply(hidden_NE, weight_VE, target_N, temperature)  # type: ignore[no-untyped-call]
    return logp_N, entropy_N
