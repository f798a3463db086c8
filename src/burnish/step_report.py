"""What one optimizer step was about, in numbers: the `step.end` event and the trajectories worth reading."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from burnish.attempts import transcript
from burnish.flow.buffer import StepGroups
from burnish.learn.codec import StepMetrics
from burnish.observe.emit import emit
from burnish.rollout.render import Renderer
from burnish.types import Attempt, Measured, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """Seconds of wall time. `wait_s` is what the learner spent without a batch; `wall_s` covers the whole step.

    Example: StepTimes(wait_s=5.1, learn_s=6.0, publish_s=0.4, wall_s=11.6)
    """

    wait_s: float
    learn_s: float
    publish_s: float
    wall_s: float


def tell_step(step: int, groups: StepGroups, learned: StepMetrics, times: StepTimes) -> None:
    """Emits `step.end`. `learned` are the learner's own figures."""
    attempts = _measured(groups)
    trajectories = [attempt.trajectory for attempt, _ in attempts]
    rewards = [outcome.reward for _, outcome in attempts]
    num_tokens = sum(trajectory.num_output_tokens for trajectory in trajectories)
    oldest = [t.oldest_version for t in trajectories if t.oldest_version is not None]
    emit(
        "step.end",
        step=step,
        version=step,
        num_groups=groups.num_groups,
        num_trajectories=len(trajectories),
        num_tokens=num_tokens,
        reward_mean=statistics.fmean(rewards) if rewards else None,
        reward_std=statistics.pstdev(rewards) if rewards else None,
        pass_rate=statistics.fmean(o.scores.get("hidden_passed", o.reward) for _, o in attempts) if attempts else None,
        length_mean=num_tokens / len(trajectories) if trajectories else None,
        turns_mean=statistics.fmean(len(t.steps) for t in trajectories) if trajectories else None,
        lag_max=step - 1 - min(oldest) if oldest else None,
        rollout_s=times.wait_s,
        learn_s=times.learn_s,
        publish_s=times.publish_s,
        wait_s=max(0.0, times.wall_s - times.wait_s - times.learn_s - times.publish_s),
        wall_s=times.wall_s,
        tokens_per_s=num_tokens / times.wall_s,
        loss=learned.loss,
        grad_norm=learned.grad_norm,
        entropy=learned.entropy,
        logprob_gap_mean=learned.logprob_gap_mean,
        logprob_gap_max=learned.logprob_gap_max,
        ratio_max=learned.ratio_max,
        clip_fraction=learned.clip_fraction,
        lr=learned.learning_rate,
    )


def tell_samples(step: int, groups: StepGroups, tasks: Mapping[str, Task], renderer: Renderer) -> None:
    """Emits the best and the worst attempt of a step as readable text; ties go to the shorter one."""
    attempts = sorted(_measured(groups), key=lambda pair: (pair[1].reward, -pair[0].trajectory.num_output_tokens))
    for kind, (attempt, outcome) in zip(("worst", "best"), (attempts[0], attempts[-1]), strict=True):
        trajectory = attempt.trajectory
        emit(
            "sample",
            step=step,
            kind=kind,
            task_id=trajectory.task_id,
            reward=outcome.reward,
            text=transcript(tasks[trajectory.task_id], trajectory, renderer),
        )


def _measured(groups: StepGroups) -> Sequence[tuple[Attempt, Measured]]:
    return [
        (attempt, attempt.outcome)
        for judged in (*groups.trained, *groups.dropped)
        for attempt in judged.group.attempts
        if isinstance(attempt.outcome, Measured)
    ]
