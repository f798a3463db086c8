"""Float32 masters under bf16: what is small is not lost, what is not finite never arrives."""

import pytest
import torch
from torch.nn import Parameter

from burnish.config import LearnerConfig
from burnish.learn.optimizer import ADD_BLOCK, MasterOptimizer

CONFIG = LearnerConfig(lr=1e-3, warmup_steps=0, weight_decay=0.1, max_grad_norm=1.0)


def optimizer_on(weight: Parameter, dtype: torch.dtype, config: LearnerConfig = CONFIG) -> MasterOptimizer:
    return MasterOptimizer({"w": weight}, config, working_dtype=dtype)


def give_gradient(weight: Parameter, gradient: torch.Tensor) -> None:
    """As autograd would."""
    (weight * gradient.to(weight.dtype)).sum().backward()  # type: ignore[no-untyped-call]


def test_updates_below_bf16_resolution_add_up() -> None:
    weight = Parameter(torch.ones(4))
    optimizer = optimizer_on(weight, torch.bfloat16)
    for step in range(10):
        give_gradient(weight, torch.ones(4))
        optimizer.step(step)
        optimizer.zero_grad()
    assert weight.dtype == torch.bfloat16
    master = optimizer.master["w"]
    assert master[0].item() == pytest.approx(1 - 10 * 1e-3 * (1 + 0.1), abs=1e-4)  # bf16 alone would still say 1
    assert torch.equal(weight, master.bfloat16())


def test_float32_is_plain_adamw() -> None:
    torch.manual_seed(0)
    start = torch.randn(5)
    reference = Parameter(start.clone())
    plain = torch.optim.AdamW([reference], lr=CONFIG.lr, betas=CONFIG.betas, weight_decay=CONFIG.weight_decay)
    weight = Parameter(start.clone())
    optimizer = optimizer_on(weight, torch.float32)
    for step in range(4):
        gradient = torch.randn(5) * 3
        reference.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_([reference], CONFIG.max_grad_norm)
        plain.step()
        give_gradient(weight, gradient)
        assert optimizer.step(step) == pytest.approx(norm.item())
        optimizer.zero_grad()
    torch.testing.assert_close(weight, reference)


def test_gradients_of_micro_batches_are_summed_in_float32() -> None:
    """A running bf16 sum would stay at 256: 256 + 1 rounds back. Over a block's end too."""
    weight = Parameter(torch.zeros(ADD_BLOCK + 1))
    optimizer = optimizer_on(weight, torch.bfloat16)
    for gradient in (256.0, 1.0, 1.0):
        give_gradient(weight, torch.full_like(weight, gradient))
    grad = optimizer.master["w"].grad
    assert grad is not None
    assert weight.grad is None
    assert torch.equal(grad, torch.full_like(grad, 258.0))


def test_warmup_is_linear_and_ends() -> None:
    optimizer = optimizer_on(Parameter(torch.ones(1)), torch.float32, LearnerConfig(lr=3e-5, warmup_steps=2))
    rates = [optimizer.learning_rate(step) for step in range(4)]
    assert rates == pytest.approx([1e-5, 2e-5, 3e-5, 3e-5])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float) -> None:
    weight = Parameter(torch.ones(2))
    optimizer = optimizer_on(weight, torch.bfloat16)
    give_gradient(weight, torch.tensor([1.0, bad]))
    with pytest.raises(FloatingPointError, match=r"first in w"):
        optimizer.step(0)
    assert (weight.tolist(), optimizer.master["w"].tolist(), optimizer.moments()) == ([1.0, 1.0], [1.0, 1.0], {})


def test_restored_state_continues_alike() -> None:
    first_weight, second_weight = Parameter(torch.ones(3)), Parameter(torch.zeros(3))
    first, second = optimizer_on(first_weight, torch.bfloat16), optimizer_on(second_weight, torch.bfloat16)
    give_gradient(first_weight, torch.tensor([1.0, 2.0, 3.0]))
    first.step(0)
    first.zero_grad()
    second.restore({"w": first.master["w"].detach().clone()}, {k: v.clone() for k, v in first.moments().items()})
    for weight, optimizer in ((first_weight, first), (second_weight, second)):
        give_gradient(weight, torch.tensor([-1.0, 0.5, 0.0]))
        optimizer.step(1)
    assert torch.equal(first.master["w"], second.master["w"])
    assert torch.equal(first_weight, second_weight)


def test_an_incomplete_checkpoint_changes_nothing() -> None:
    weight = Parameter(torch.ones(2))
    optimizer = optimizer_on(weight, torch.bfloat16)
    with pytest.raises(KeyError, match=r"exp_avg\.w"):
        optimizer.restore({"w": torch.zeros(2)}, {"step.w": torch.tensor(1.0)})
    assert weight.tolist() == [1.0, 1.0]
