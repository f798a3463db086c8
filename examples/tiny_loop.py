"""The whole algorithm in one file: synchronous reinforcement learning on verified programs.

This is what burnish does with every part made plain: no batching engine, no packing, no lag, no journal, one process.
Where the product and this file disagree about a number, one of them is wrong. Read it top to bottom:

    tasks -> rollout (generate, act, observe, again) -> grade in a fresh sandbox -> advantages -> loss -> step

Run: .venv/bin/python examples/tiny_loop.py --steps 3
"""

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from burnish.sandbox import make_backend
from burnish.sandbox.base import SandboxBackend
from burnish.sandbox.evaluate import evaluate_cases
from burnish.tasks.load import load_tasks
from burnish.types import Action, Attempt, Group, Hidden, Measured, Step, Task, Trajectory
from burnish.weights.model_files import resolve_model

CLIP_LOW, CLIP_HIGH = 0.2, 0.28  # asymmetric clipping, DAPO (arXiv:2503.14476)


@dataclass
class Policy:
    """A model, its tokenizer, and how many optimizer steps it has seen."""

    model: Any
    tokenizer: Any
    version: int = 0

    def sample(self, prompt_ids: Sequence[int], max_new_tokens: int) -> tuple[int, ...]:
        """Draws one continuation at temperature 1; the end token is its last token when it was reached."""
        ids = torch.tensor([list(prompt_ids)])
        with torch.no_grad():
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=max_new_tokens,
                pad_token_id=self.tokenizer.eos_token_id,
            )
        return tuple(out[0, len(prompt_ids) :].tolist())

    def logprobs(self, ids: Sequence[int]) -> torch.Tensor:
        """log p(ids[i] | ids[:i]) for i = 1 .. len - 1, in fp32. Shape [len(ids) - 1]."""
        tokens = torch.tensor([list(ids)])
        logits_TV = self.model(input_ids=tokens).logits[0, :-1].float()
        return torch.log_softmax(logits_TV, dim=-1).gather(1, tokens[0, 1:, None])[:, 0]


# --- one attempt -------------------------------------------------------------------------------------------------


def first_prompt(policy: Policy, task: Task) -> tuple[int, ...]:
    """The chat prompt: instruction, visible examples, and what kind of answer is wanted."""
    examples = "\n".join(f"{case.expr} == {case.expected}" for case in task.examples)
    content = f"{task.instruction}\n\nExamples:\n{examples}\n\nAnswer with one Python code block only."
    text = policy.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    return tuple(policy.tokenizer.encode(text, add_special_tokens=False))


def next_prompt(policy: Policy, observation: str, *, ended: bool) -> tuple[int, ...]:
    """The tokens between two answers of a ChatML conversation. Only these are new: nothing is tokenised again."""
    close = "" if ended else "<|im_end|>"
    text = f"{close}\n<|im_start|>user\n{observation}<|im_end|>\n<|im_start|>assistant\n"
    return tuple(policy.tokenizer.encode(text, add_special_tokens=False))


def parse(text: str) -> Action:
    """The first fenced block of the answer, closed or not."""
    _, fence, rest = text.partition("```python\n")
    code = rest.partition("```")[0]
    return Action(kind="code", text=code) if fence and code.strip() else Action(kind="none", text="")


async def rollout(
    policy: Policy, backend: SandboxBackend, task: Task, *, id: str, group_id: str, max_turns: int, max_new_tokens: int
) -> Trajectory:
    """Generate, act, observe; again until the visible examples pass or the turns are used up."""
    steps: list[Step] = []
    delta, context = first_prompt(policy, task), ()
    async with await backend.create(limits=task.limits) as box:
        for _ in range(max_turns):
            context += delta
            output = policy.sample(context, max_new_tokens)
            with torch.no_grad():  # what the sampler believed; the learner compares itself with this
                logprobs = policy.logprobs(context + output)[len(context) - 1 :].tolist()
            action = parse(policy.tokenizer.decode(output, skip_special_tokens=True))
            answers = await evaluate_cases(box, action.text, [case.expr for case in task.examples])
            failed = [
                f"{case.expr} gave {answer.value or answer.error}, expected {case.expected}"
                for case, answer in zip(task.examples, answers, strict=True)
                if not answer.equals(case.expected)
            ]
            observation = "\n".join(failed)
            ended = output[-1] == policy.tokenizer.eos_token_id
            steps.append(
                Step(
                    prompt_ids=delta,
                    output_ids=output,
                    logprobs=tuple(logprobs),
                    versions=(policy.version,) * len(output),
                    finish="stop" if ended else "length",
                    action=action,
                    observation=observation,
                )
            )
            if not failed:
                break
            context += output
            delta = next_prompt(policy, observation, ended=ended)
    stop = "max_turns" if failed else "passed_visible"
    return Trajectory(
        id=id, group_id=group_id, task_id=task.id, family=task.family, steps=tuple(steps), stop_reason=stop
    )


async def grade(backend: SandboxBackend, task: Task, hidden: Hidden, trajectory: Trajectory) -> Measured:
    """The last code, in a fresh sandbox. It answers expressions; what they should be stays out here."""
    code = next((step.action.text for step in reversed(trajectory.steps) if step.action.kind == "code"), None)
    if code is None:
        return Measured(scores={"hidden_passed": 0.0}, reward=0.0)
    cases = (*hidden.cases, *task.examples)
    async with await backend.create(limits=task.limits) as box:
        answers = await evaluate_cases(box, code, [case.expr for case in cases])
    passed = all(answer.equals(case.expected) for answer, case in zip(answers, cases, strict=True))
    return Measured(scores={"hidden_passed": float(passed)}, reward=float(passed))


# --- one optimizer step ------------------------------------------------------------------------------------------


def advantages(group: Group) -> list[float]:
    """GRPO (arXiv:2402.03300): how far each reward is from its group's mean, in standard deviations."""
    rewards = [attempt.outcome.reward for attempt in group.attempts if isinstance(attempt.outcome, Measured)]
    spread = statistics.pstdev(rewards)
    return [(reward - statistics.fmean(rewards)) / (spread + 1e-6) for reward in rewards]


def flatten(trajectory: Trajectory) -> tuple[tuple[int, ...], list[bool], list[float]]:
    """A trajectory as one sequence: ids [L], which of them were sampled [L], and their logprobs then [L]."""
    ids: tuple[int, ...] = ()
    sampled: list[bool] = []
    logprobs: list[float] = []
    for step in trajectory.steps:
        ids += step.prompt_ids + step.output_ids
        sampled += [False] * len(step.prompt_ids) + [True] * len(step.output_ids)
        logprobs += [0.0] * len(step.prompt_ids) + list(step.logprobs)
    return ids, sampled, logprobs


def loss_of(policy: Policy, trajectory: Trajectory, advantage: float, num_tokens: int) -> torch.Tensor:
    """Clipped policy gradient over the sampled tokens, averaged over all tokens of the step (DAPO)."""
    ids, sampled, logprobs = flatten(trajectory)
    mask_T = torch.tensor(sampled[1:])
    behaviour_T = torch.tensor(logprobs[1:])[mask_T]
    ratio_T = (policy.logprobs(ids)[mask_T] - behaviour_T).exp()
    clipped_T = ratio_T.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    return -torch.minimum(ratio_T * advantage, clipped_T * advantage).sum() / num_tokens


def learn(policy: Policy, optimizer: torch.optim.Optimizer, groups: Sequence[Group]) -> float | None:
    """One step on the groups whose attempts differ in reward; None when there is none."""
    pairs = [
        (attempt.trajectory, advantage)
        for group in groups
        for attempt, advantage in zip(group.attempts, advantages(group), strict=True)
        if abs(advantage) > 1e-9
    ]
    if not pairs:
        return None
    num_tokens = sum(trajectory.num_output_tokens for trajectory, _ in pairs)
    optimizer.zero_grad()
    total = 0.0
    for trajectory, advantage in pairs:
        loss = loss_of(policy, trajectory, advantage, num_tokens)
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
    optimizer.step()
    policy.version += 1
    return total


# --- the loop ----------------------------------------------------------------------------------------------------


async def run(
    policy: Policy, *, num_steps: int, num_groups: int, group_size: int, max_new_tokens: int, lr: float
) -> None:
    """Synchronous: every token of a step was sampled by the weights that the step updates."""
    train = load_tasks("builtin:train", bands=("easy",))
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    backend = make_backend("process")
    try:
        for number in range(num_steps):
            groups = []
            for index in range(number * num_groups, (number + 1) * num_groups):
                task = train.tasks[index % len(train.tasks)]
                attempts = []
                for member in range(group_size):
                    trajectory = await rollout(
                        policy, backend, task, id=f"g{index}.{member}", group_id=f"g{index}", max_turns=2,
                        max_new_tokens=max_new_tokens,
                    )  # fmt: skip
                    outcome = await grade(backend, task, train.vault.open_hidden(task.id), trajectory)
                    attempts.append(Attempt(trajectory=trajectory, outcome=outcome))
                groups.append(Group(id=f"g{index}", task_id=task.id, family=task.family, attempts=tuple(attempts)))
            rewards = [a.outcome.reward for g in groups for a in g.attempts if isinstance(a.outcome, Measured)]
            loss = learn(policy, optimizer, groups)
            print(f"step {number + 1}: reward {statistics.fmean(rewards):.3f}, loss {loss}, version {policy.version}")
    finally:
        await backend.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Synchronous RL on verified programs, in one file.")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=72)
    parser.add_argument("--lr", type=float, default=1e-5)
    args = parser.parse_args()
    model_dir = resolve_model(args.model)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    policy = Policy(model=model, tokenizer=AutoTokenizer.from_pretrained(model_dir))
    asyncio.run(
        run(policy, num_steps=args.steps, num_groups=args.groups, group_size=args.group_size,
            max_new_tokens=args.max_new_tokens, lr=args.lr)
    )  # fmt: skip


if __name__ == "__main__":
    main()
