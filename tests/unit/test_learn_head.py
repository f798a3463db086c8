"""Logprobs without logits: equal to the plain computation, forward and backward."""

import pytest
import torch

from burnish.learn.head import BLOCK_TOKENS, token_logprobs


def plain(
    hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logprob = (hidden.float() @ weight.float().T / temperature).log_softmax(-1)
    return logprob.gather(1, target[:, None]).squeeze(1), -(logprob.exp() * logprob).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("num_tokens", [1, BLOCK_TOKENS, 2 * BLOCK_TOKENS + 3])
def test_equals_the_plain_computation(num_tokens: int, temperature: float) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(num_tokens, 8, requires_grad=True)
    weight = torch.randn(50, 8, requires_grad=True)
    target = torch.randint(0, 50, (num_tokens,))
    incoming = torch.randn(num_tokens)
    expected_logp, expected_entropy = plain(hidden, weight, target, temperature)
    expected = torch.autograd.grad(expected_logp, (hidden, weight), incoming)
    logp, entropy = token_logprobs(hidden, weight, target, temperature=temperature)
    actual = torch.autograd.grad(logp, (hidden, weight), incoming)
    assert not entropy.requires_grad
    torch.testing.assert_close(logp, expected_logp)
    torch.testing.assert_close(entropy, expected_entropy)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_confident_token_still_has_a_gradient_in_bf16() -> None:
    """p = 0.9995 rounds to 1 in bf16; the gradient 1 - p must not."""
    weight = torch.tensor([[7.6], [0.0]], dtype=torch.bfloat16, requires_grad=True)
    hidden = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    logp, _ = token_logprobs(hidden, weight, torch.tensor([0]), temperature=1.0)
    (grad,) = torch.autograd.grad(logp.sum(), (weight,))
    left_over = 1 - torch.tensor(7.59375).sigmoid()
    assert grad[0].item() == pytest.approx(left_over.item(), rel=0.01)
