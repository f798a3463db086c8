"""One attempt, from the task to a trajectory."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from burnish.engine.base import GenerateFn
from burnish.errors import EngineError, PolicyError, boundary
from burnish.rollout.agent import Agent
from burnish.rollout.poison import poison_of
from burnish.rollout.progress import Progress, SandboxKeeper, Saves
from burnish.rollout.render import Renderer
from burnish.sandbox.base import SandboxBackend, SandboxBox
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
    keeper: SandboxKeeper | None = None  # None: a failed try begins anew


async def run_rollout(
    setup: RolloutSetup, task: Task, *, id: str, group_id: str, seed: int, progress: Progress | None = None
) -> Trajectory:
    """Render, generate, parse, act, observe; again until a named stop reason.

    `progress` has what an earlier try came to. The attempt goes on after the last step whose sandbox was saved.

    Raises:
        EngineError, SandboxError, PolicyError: the attempt could not be carried out. It is not the policy's doing (I1).
    """
    started = time.monotonic()
    progress = progress or Progress()
    saves = Saves(setup.keeper, id)
    last = progress.fall_back()
    with boundary(PolicyError, during="open"):
        delta = setup.renderer.start(setup.agent.open(task))
    network = policy_for(task.network, "act")
    async with saves.opened(last, task.limits) as snapshot:
        box = await setup.backend.create(limits=task.limits, network=network, snapshot=snapshot)
    async with box:
        stop = await _turns(setup, task, box, seed, progress, saves, delta)
    if stop == "max_turns" and all(step.action.kind == "none" for step in progress.steps):
        stop = "no_action"
    return Trajectory(
        id=id,
        group_id=group_id,
        task_id=task.id,
        family=task.family,
        steps=tuple(progress.steps),
        stop_reason=stop,
        wall_s=time.monotonic() - started,
    )


async def _turns(
    setup: RolloutSetup,
    task: Task,
    box: SandboxBox,
    seed: int,
    progress: Progress,
    saves: Saves,
    opening: Sequence[int],
) -> StopReason:
    """Takes the turns that are left; why the attempt is over."""
    context, delta = _context(setup.renderer, opening, progress.steps)
    for turn in range(len(progress.steps), setup.max_turns):
        context += delta
        if len(context) + setup.sampling.max_new_tokens > setup.max_context_tokens:
            return "context_full"
        step, passed = await _turn(setup, task, box, context, delta, _for_turn(setup.sampling, seed, turn), progress)
        is_over = passed or turn + 1 == setup.max_turns
        saved = None if is_over else await saves.save(box)
        progress.add(replace(step, snapshot=saved) if saved else step)
        if passed:
            return "passed_visible"
        context += step.output_ids
        delta = _follow_up(setup.renderer, step)
    return "max_turns"


async def _turn(
    setup: RolloutSetup,
    task: Task,
    box: SandboxBox,
    context: Sequence[int],
    delta: Sequence[int],
    sampling: Sampling,
    progress: Progress,
) -> tuple[Step, bool]:
    """One step, and whether it passed the visible examples."""
    clock = time.monotonic()
    completion = await progress.generate(lambda: setup.generate(context, sampling))
    poison = poison_of(completion, max_new_tokens=sampling.max_new_tokens)
    if poison is not None:
        progress.forget_turn()
        raise EngineError(f"poisoned answer: {poison}")
    generated = time.monotonic()
    with boundary(PolicyError, during="parse"):
        action = setup.agent.parse(setup.renderer.decode(completion.token_ids))
    with boundary(PolicyError, during="act"):
        observed = await setup.agent.act(box, task, action)
    step = Step(
        prompt_ids=tuple(delta),
        output_ids=completion.token_ids,
        logprobs=completion.logprobs,
        versions=completion.versions,
        finish=completion.finish,
        action=action,
        observation=observed.text,
        usage=Usage(generate_s=generated - clock, act_s=time.monotonic() - generated),
    )
    return step, observed.passed_visible


def _context(renderer: Renderer, opening: Sequence[int], steps: Sequence[Step]) -> tuple[list[int], Sequence[int]]:
    """The tokens before the next turn's delta, and that delta. What was seen and sampled is taken as it was (I4)."""
    if not steps:
        return [], opening
    context = [token for step in steps for token in (*step.prompt_ids, *step.output_ids)]
    return context, _follow_up(renderer, steps[-1])


def _follow_up(renderer: Renderer, step: Step) -> Sequence[int]:
    ended = step.output_ids[-1:] != () and step.output_ids[-1] in renderer.stop_ids
    return renderer.follow_up(step.observation or "", ended=ended)


def last_code(steps: Sequence[Step]) -> str | None:
    """The solution an attempt hands in: the last code it ran; None when it never wrote any."""
    return next((step.action.text for step in reversed(steps) if step.action.kind == "code"), None)


def _for_turn(sampling: Sampling, seed: int, turn: int) -> Sampling:
    return replace(sampling, seed=(seed * 1_000_003 + turn) % (1 << 63))
