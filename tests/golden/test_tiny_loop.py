"""The executable spec and the product take the same step."""

import importlib.util
import math
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import AutoModelForCausalLM

from burnish.config import LearnerConfig
from burnish.flow.buffer import judge
from burnish.flow.packing import make_batch
from burnish.learn.policy import load_policy
from burnish.learn.step import Trainer
from burnish.reward.advantage import advantages
from burnish.types import Action, Attempt, Group, Measured, Step, Trajectory
from tests.tiny_models import save_tiny_model

VOCAB = 300


@pytest.fixture(scope="module")
def spec() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "tiny_loop.py"
    found = importlib.util.spec_from_file_location("tiny_loop", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["tiny_loop"] = module  # dataclasses look their module up
    found.loader.exec_module(module)
    return module


def group_of(policy: object, index: int, rewards: list[float]) -> Group:
    """Two-turn attempts of random tokens with the policy's own logprobs."""
    generator = torch.Generator().manual_seed(index)
    attempts = []
    for member, reward in enumerate(rewards):
        context: tuple[int, ...] = ()
        steps = []
        for turn in range(1 + member % 2):
            prompt = (5, 6, 7 + index) if turn == 0 else (9, 10)
            output = tuple(torch.randint(0, VOCAB, (3 + member,), generator=generator).tolist())
            context += prompt
            with torch.no_grad():
                logprobs = policy.logprobs(context + output)[len(context) - 1 :].tolist()  # type: ignore[attr-defined]
            context += output
            steps.append(
                Step(
                    prompt_ids=prompt, output_ids=output, logprobs=tuple(logprobs), versions=(0,) * len(output),
                    finish="stop", action=Action(kind="code", text=""), observation=None,
                )
            )  # fmt: skip
        trajectory = Trajectory(
            id=f"g{index}.{member}", group_id=f"g{index}", task_id="t", family="t", steps=tuple(steps),
            stop_reason="max_turns",
        )  # fmt: skip
        attempts.append(Attempt(trajectory=trajectory, outcome=Measured(scores={}, reward=reward)))
    return Group(id=f"g{index}", task_id="t", family="t", attempts=tuple(attempts))


def test_one_step_of_the_spec_is_one_step_of_the_learner(spec: ModuleType, tmp_path: Path) -> None:
    """Packing, shared prompts, chunked logprobs and the optimizer change the cost and nothing else."""
    folder = save_tiny_model("llama", tmp_path)
    plain = spec.Policy(model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), tokenizer=None)
    groups = [group_of(plain, 0, [1.0, 0.0, 0.0, 1.0]), group_of(plain, 1, [0.0, 0.0, 1.0])]
    optimizer = torch.optim.SGD(plain.model.parameters(), lr=0.0)  # the gradient is what is compared

    trainer = Trainer(load_policy(folder), LearnerConfig(max_grad_norm=1e9), dtype=torch.float32, max_lag=0)
    judged = [judge(group, partial(advantages, estimator="grpo")) for group in groups]
    grads: dict[str, torch.Tensor] = {}
    take_step = trainer.optimizer.step

    def keep_grads(num_done: int) -> float:
        grads.update({name: p.grad.clone() for name, p in trainer.optimizer.master.items() if p.grad is not None})
        return take_step(num_done)

    trainer.optimizer.step = keep_grads  # type: ignore[method-assign]
    metrics = trainer.step(make_batch(judged, step=0, temperature=1.0))

    spec_loss = plain_loss_and_grads(spec, plain, optimizer, groups)
    assert metrics.loss == pytest.approx(spec_loss, abs=1e-5)
    assert metrics.logprob_gap_max is not None and metrics.logprob_gap_max < 1e-4
    for name, parameter in plain.model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(grads[name], parameter.grad, atol=2e-5, rtol=2e-3)


def plain_loss_and_grads(
    spec: ModuleType, policy: object, optimizer: torch.optim.Optimizer, groups: list[Group]
) -> float:
    """The spec's step, with its gradient clipping undone by leaving it no reason to clip."""
    clip = torch.nn.utils.clip_grad_norm_
    torch.nn.utils.clip_grad_norm_ = lambda *args: torch.tensor(0.0)
    try:
        loss: float = spec.learn(policy, optimizer, groups)
    finally:
        torch.nn.utils.clip_grad_norm_ = clip
    assert math.isfinite(loss)
    return loss
