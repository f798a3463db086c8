"""One attempt, from the task to a trajectory."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from burnish.engine.base import GenerateFn
from burnish.errors import PolicyError, boundary
from burnish.rollout.agent import Agent
from burnish.rollout.render import Renderer
from burnish.sandbox.base import SandboxBackend
from burnish.sandbox.network import policy_for
from burnish.types import Sampling, Step, StopReason, Task, Trajectory, Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSetup:
    """What all attempts of a run share."""

    generate: GenerateFn
    backend: SandboxBackend
    renderer: Renderer
    agent: Agent
    sampling: Sampling  # its seed is replaced per turn
    max_turns: int
    max_context_tokens: int


async def run_rollout(setup: RolloutSetup, task: Task, *, id: str, group_id: str, seed: int) -> Trajectory:
    """Render, generate, parse, act, observe; again until a named stop reason.

    Raises:
        EngineError, SandboxError, PolicyError: the attempt could not be carried out. It is not the policy's doing, and
            what was generated so far is worth nothing (I1).
    """
    started = time.monotonic()
    steps: list[Step] = []
    with boundary(PolicyError, during="open"):
        delta = setup.renderer.start(setup.agent.open(task))
    context: list[int] = []
    stop: StopReason = "max_turns"
    network = policy_for(task.network, "act")
    async with await setup.backend.create(limits=task.limits, network=network) as box:
        for turn in range(setup.max_turns):
            context += delta
            if len(context) + setup.sampling.max_new_tokens > setup.max_context_tokens:
                stop = "context_full"
                break
            clock = time.monotonic()
            completion = await setup.generate(context, _for_turn(setup.sampling, seed, turn))
            generated = time.monotonic()
            with boundary(PolicyError, during="parse"):
                action = setup.agent.parse(setup.renderer.decode(completion.token_ids))
            with boundary(PolicyError, during="act"):
                observed = await setup.agent.act(box, task, action)
            steps.append(
                Step(
                    prompt_ids=tuple(delta),
                    output_ids=completion.token_ids,
                    logprobs=completion.logprobs,
                    versions=completion.versions,
                    finish=completion.finish,
                    action=action,
                    observation=observed.text,
                    usage=Usage(generate_s=generated - clock, act_s=time.monotonic() - generated),
                )
            )
            if observed.passed_visible:
                stop = "passed_visible"
                break
            context += completion.token_ids
            ended = completion.token_ids[-1:] != () and completion.token_ids[-1] in setup.renderer.stop_ids
            delta = setup.renderer.follow_up(observed.text, ended=ended)
    if stop == "max_turns" and all(step.action.kind == "none" for step in steps):
        stop = "no_action"
    return Trajectory(
        id=id,
        group_id=group_id,
        task_id=task.id,
        family=task.family,
        steps=tuple(steps),
        stop_reason=stop,
        wall_s=time.monotonic() - started,
    )


def last_code(steps: Sequence[Step]) -> str | None:
    """The solution an attempt hands in: the last code it ran; None when it never wrote any."""
    return next((step.action.text for step in reversed(steps) if step.action.kind == "code"), None)


def _for_turn(sampling: Sampling, seed: int, turn: int) -> Sampling:
    return replace(sampling, seed=(seed * 1_000_003 + turn) % (1 << 63))
