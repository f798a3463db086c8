"""One attempt of a run: the rollout, then the grading, and what is told about both."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from burnish.flow.admission import CURRENT
from burnish.flow.dispatch import attempt_or_unmeasured
from burnish.flow.group import Ticket
from burnish.observe.emit import emit
from burnish.reward.grade import Grader
from burnish.rollout.loop import RolloutSetup, last_code, run_rollout
from burnish.rollout.progress import Progress
from burnish.rollout.render import Renderer
from burnish.sandbox.audited import trajectory as audited_trajectory
from burnish.types import Attempt, Completion, Measured, PolicyVersion, Sampling, Step, Task, Trajectory, Unmeasured

OnStep = Callable[[str, int, Step], None]
"""Hears of each finished step: the attempt's id, the step's number, the step."""


@dataclass(kw_only=True)
class AttemptRunner:
    """Carries out tickets. Never raises for a failure of the world: that is an `Unmeasured` outcome.

    A try that failed goes on from the last step whose sandbox was saved, and so does an attempt that another process
    began.
    """

    setup: RolloutSetup
    grader: Grader
    max_retries: int
    timeout_s: float
    label: str | None = None  # of the evaluation the attempts belong to; None in training
    on_step: OnStep | None = None
    version: PolicyVersion = 0  # of the engine's weights; see `published`
    _live: dict[str, Progress] = field(default_factory=dict)

    async def __call__(self, ticket: Ticket) -> Attempt:
        on_step = None if self.on_step is None else partial(self.on_step, ticket.id)
        progress = self._live[ticket.id] = Progress(ticket.steps, version=self.version, on_step=on_step)
        try:
            attempt = await attempt_or_unmeasured(
                partial(self._try, progress), ticket, max_retries=self.max_retries, timeout_s=self.timeout_s
            )
        finally:
            del self._live[ticket.id]
        if self.setup.keeper is not None and any(step.snapshot for step in progress.steps):
            await self.setup.keeper.forget(ticket.id)
        _tell(attempt, ticket.task, self.label)
        return attempt

    def published(self, version: PolicyVersion, *, oldest: PolicyVersion | None = None) -> None:
        """The engine has new weights. Turns that were begun before `oldest` are sampled again by them."""
        self.version = version
        for id, progress in self._live.items():
            if progress.published(version, oldest=oldest):
                emit("attempt.recut", id=id, version=version)

    async def _generate(self, prompt_ids: Sequence[int], sampling: Sampling, /) -> Completion:
        """The engine's, with the attempt's place there held around it."""
        permit = CURRENT.get()
        with permit.generating() if permit is not None else nullcontext():
            return await self.setup.generate(prompt_ids, sampling)

    async def _try(self, progress: Progress, ticket: Ticket) -> Attempt:
        audited_trajectory.set(ticket.id)  # of this task only
        trajectory = await run_rollout(
            replace(self.setup, generate=self._generate),
            ticket.task,
            id=ticket.id,
            group_id=ticket.group_id,
            seed=ticket.seed,
            progress=progress,
        )
        started = time.monotonic()
        outcome = await self.grader.grade(ticket.task, last_code(trajectory.steps))
        return Attempt(trajectory=trajectory, outcome=outcome, grade_s=time.monotonic() - started)


def transcript(task: Task, trajectory: Trajectory, renderer: Renderer) -> str:
    """An attempt as a person reads it: instruction, answers, observations."""
    parts = [f"TASK {task.id}\n{task.instruction}"]
    for number, step in enumerate(trajectory.steps, start=1):
        parts.append(f"ANSWER {number}\n{renderer.decode(step.output_ids)}")
        parts.append(f"OBSERVATION {number}\n{step.observation}")
    parts.append(f"END {trajectory.stop_reason}")
    return "\n\n".join(parts)


def _tell(attempt: Attempt, task: Task, label: str | None) -> None:
    trajectory, outcome = attempt.trajectory, attempt.outcome
    measured = outcome if isinstance(outcome, Measured) else None
    unmeasured = outcome if isinstance(outcome, Unmeasured) else None
    emit(
        "attempt.end",
        id=trajectory.id,
        group_id=trajectory.group_id,
        task_id=task.id,
        family=task.family,
        band=task.band,
        stop_reason=trajectory.stop_reason,
        reward=measured.reward if measured else None,
        passed=measured.scores.get("hidden_passed") == 1.0 if measured else None,
        boundary=unmeasured.boundary if unmeasured else None,
        cause=unmeasured.cause if unmeasured else None,
        num_turns=len(trajectory.steps),
        num_tokens=trajectory.num_output_tokens,
        generate_s=round(sum(step.usage.generate_s for step in trajectory.steps), 4),
        act_s=round(sum(step.usage.act_s for step in trajectory.steps), 4),
        grade_s=round(attempt.grade_s, 4),
        wall_s=round(trajectory.wall_s, 4),
        **({"label": label} if label else {}),
    )
