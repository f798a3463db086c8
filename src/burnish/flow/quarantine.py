"""Tasks that keep breaking what carries them out are left out, with the evidence, instead of being tried for ever."""

from collections.abc import Mapping

from burnish.observe.emit import emit
from burnish.types import Attempt, Measured, Unmeasured

CHARGED = ("sandbox", "grader", "agent", "attempt")
"""Boundaries whose failures may be the task's doing. An engine or a store that fails says nothing about a task."""


class Quarantine:
    """Counts each task's failures in a row; one measured attempt clears it.

    Example: Quarantine(threshold=16).hear(attempt)
    """

    def __init__(self, *, threshold: int, tasks: Mapping[str, str] | None = None) -> None:
        """`threshold`: so many unmeasured attempts in a row are no bad luck. `tasks`: who is in it, and why."""
        if threshold < 1:
            raise ValueError(f"threshold must be at least 1, got {threshold}")
        self._threshold = threshold
        self._in_a_row: dict[str, int] = {}
        self.tasks = dict(tasks or {})  # task id -> evidence

    def __contains__(self, task_id: object) -> bool:
        return task_id in self.tasks

    def hear(self, attempt: Attempt) -> None:
        """An attempt has ended. A task that goes to quarantine by it is a `task.quarantine` event."""
        task_id, outcome = attempt.trajectory.task_id, attempt.outcome
        if isinstance(outcome, Measured):
            self._in_a_row.pop(task_id, None)
            return
        if outcome.boundary not in CHARGED or task_id in self.tasks:
            return
        num = self._in_a_row[task_id] = self._in_a_row.get(task_id, 0) + 1
        if num >= self._threshold:
            del self._in_a_row[task_id]
            self.tasks[task_id] = _evidence(outcome, num)
            emit("task.quarantine", task_id=task_id, num=num, boundary=outcome.boundary, cause=outcome.cause)


def _evidence(outcome: Unmeasured, num: int) -> str:
    evidence = f"{num} attempts in a row could not be measured; the last: {outcome.boundary}: {outcome.cause}"
    return f"{evidence}\n{outcome.evidence}" if outcome.evidence else evidence
