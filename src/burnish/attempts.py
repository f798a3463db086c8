"""One attempt of a run: the rollout, then the grading, and what is told about both."""

import time
from dataclasses import dataclass

from burnish.flow.dispatch import Ticket, attempt_or_unmeasured
from burnish.observe.emit import emit
from burnish.reward.grade import Grader
from burnish.rollout.loop import RolloutSetup, last_code, run_rollout
from burnish.rollout.render import Renderer
from burnish.sandbox.audited import trajectory as audited_trajectory
from burnish.types import Attempt, Measured, Task, Trajectory, Unmeasured


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRunner:
    """Carries out tickets. Never raises for a failure of the world: that is an `Unmeasured` outcome."""

    setup: RolloutSetup
    grader: Grader
    max_retries: int
    timeout_s: float
    label: str | None = None  # of the evaluation the attempts belong to; None in training

    async def __call__(self, ticket: Ticket) -> Attempt:
        attempt = await attempt_or_unmeasured(self._try, ticket, max_retries=self.max_retries, timeout_s=self.timeout_s)
        _tell(attempt, ticket.task, self.label)
        return attempt

    async def _try(self, ticket: Ticket) -> Attempt:
        audited_trajectory.set(ticket.id)  # of this task only
        trajectory = await run_rollout(
            self.setup, ticket.task, id=ticket.id, group_id=ticket.group_id, seed=ticket.seed
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
