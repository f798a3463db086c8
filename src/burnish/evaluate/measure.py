"""A suite attempted by the rollout that trains, with a frozen policy."""

from burnish.attempts import AttemptRunner
from burnish.evaluate.result import EvalResult
from burnish.evaluate.suite import evaluate
from burnish.flow.group import Ticket
from burnish.types import Attempt, Task, TaskSet


async def measure(
    tasks: TaskSet, runner: AttemptRunner, *, label: str, samples_per_task: int, max_concurrent: int, seed: int
) -> EvalResult:
    """Attempts every task of the set `samples_per_task` times.

    A task's n-th sample has the same seed whatever policy is measured, so that two evaluations compare like with like.
    """
    numbers = {task.id: number for number, task in enumerate(tasks.tasks)}

    async def sample(task: Task, member: int) -> Attempt:
        index = numbers[task.id]
        group = f"{label}.{task.id}"
        seed_here = (seed * 1_000_003 + index) * 1_009 + member
        return await runner(
            Ticket(index=index, member=member, id=f"{group}.{member}", group_id=group, task=task, seed=seed_here)
        )

    return await evaluate(
        tasks.tasks,
        sample,
        suite=tasks.name,
        label=label,
        sampling=runner.setup.sampling,
        samples_per_task=samples_per_task,
        max_concurrent=max_concurrent,
        max_turns=runner.setup.max_turns,
    )
