"""The dispatch loop: which groups are under way, with a bound on how many and how far behind."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Mapping

from burnish.errors import AttemptError, BoundaryError, boundary
from burnish.flow.admission import CURRENT, Admission
from burnish.flow.durations import DurationEstimates
from burnish.flow.gate import LagGate
from burnish.flow.group import AttemptFn, GroupRules, GroupRun, Ticket
from burnish.flow.ledger import OpenGroup
from burnish.flow.source import TaskSource, group_id
from burnish.observe.emit import emit
from burnish.types import Attempt, Group, Task, Trajectory, Unmeasured


async def attempt_or_unmeasured(attempt: AttemptFn, ticket: Ticket, *, max_retries: int, timeout_s: float) -> Attempt:
    """Carries out a ticket. The one place where a failure of the world becomes an `Unmeasured` outcome (I1).

    A failed try is repeated up to `max_retries` times; each repetition is an `attempt.retry` event.
    """
    retry = 0
    while True:
        try:
            with boundary(AttemptError, during="attempt"):
                async with asyncio.timeout(timeout_s):
                    return await attempt(ticket)
        except BoundaryError as error:
            if retry >= max_retries:
                return _unmeasured(ticket, error)
            retry += 1
            emit(
                "attempt.retry",
                id=ticket.id,
                task_id=ticket.task.id,
                boundary=error.boundary,
                cause=error.cause,
                retry=retry,
            )


def _unmeasured(ticket: Ticket, error: BoundaryError) -> Attempt:
    trajectory = Trajectory(
        id=ticket.id,
        group_id=ticket.group_id,
        task_id=ticket.task.id,
        family=ticket.task.family,
        steps=(),
        stop_reason="failed",
    )
    outcome = Unmeasured(boundary=error.boundary, cause=error.cause, evidence=error.evidence)
    return Attempt(trajectory=trajectory, outcome=outcome)


class Dispatcher:
    """Takes groups from the source while the lag gate lets it, and runs them.

    Components it talks to are given as callables: `attempt` carries out one ticket (with its retries), `on_begin`
    hears of each ticket and `on_attempt` of each attempt that ended (the journal), `on_group` of each finished group
    (the buffer). `room` is waited for before each attempt: a journal that cannot keep up slows down who fills it.
    """

    def __init__(
        self,
        *,
        source: TaskSource,
        tasks: tuple[Task, ...],
        gate: LagGate,
        rules: GroupRules,
        admission: Admission,
        attempt: AttemptFn,
        on_begin: Callable[[Ticket], None],
        on_attempt: Callable[[Ticket, Attempt], None],
        on_group: Callable[[Group], None],
        opened: Mapping[int, OpenGroup],
        room: Callable[[], Awaitable[None]],
        quarantine: Container[str] = (),
    ) -> None:
        """`opened`: what an earlier life of the run left, by group index. `quarantine`: tasks that are left out."""
        self._source, self._tasks, self._gate, self._rules = source, tasks, gate, rules
        self._admission, self._durations = admission, DurationEstimates()
        self._attempt, self._on_begin, self._on_attempt, self._on_group = attempt, on_begin, on_attempt, on_group
        self._opened, self._room, self._quarantine = dict(opened), room, quarantine
        self._running: dict[int, GroupRun] = {}

    async def run(self) -> None:
        """Runs until cancelled. Waits for a lag slot; woken by the publisher. A group that raises ends the run.

        Raises AttemptError when every task is in quarantine.
        """
        async with asyncio.TaskGroup() as groups:
            while True:
                await self._gate.wait()
                await asyncio.sleep(0)  # groups of tasks in quarantine give their slots back at once
                if all(task.id in self._quarantine for task in self._tasks):
                    raise AttemptError("every task is in quarantine")
                index = self._source.next_index()
                self._gate.hold(index)
                groups.create_task(self._run_group(index), name=f"group:{index}")

    def open_groups(self) -> list[Group]:
        """The groups that were under way when `run` was cancelled, or are left of an earlier life, as far as they had
        come."""
        left = [self._group_run(index) for index in sorted(self._opened)]
        return [running.group() for running in (*self._running.values(), *left)]

    async def _run_group(self, index: int) -> None:
        task = self._tasks[self._source.task_number(index)]
        if task.id in self._quarantine and index not in self._opened:
            self._gate.finished(index)
            self._on_group(Group(id=group_id(index), task_id=task.id, family=task.family, attempts=()))
            return
        self._running[index] = running = self._group_run(index)
        group = await running.run()
        del self._running[index]
        self._gate.finished(index)
        self._on_group(group)

    def _group_run(self, index: int) -> GroupRun:
        running = GroupRun(
            index,
            self._tasks[self._source.task_number(index)],
            self._rules,
            lambda ticket: self._run_attempt(ticket, running.begun),
            opened=self._opened.pop(index, None),
            on_cancelled=self._on_attempt,
        )
        return running

    async def _run_attempt(self, ticket: Ticket, begun: set[str]) -> Attempt:
        family = ticket.task.family
        async with self._admission.admit(family, expected_s=self._durations.expected_s(family)) as permit:
            CURRENT.set(permit)  # of this attempt's task only
            await self._room()
            begun.add(ticket.id)
            if not ticket.begun:
                self._on_begin(ticket)
            began = time.monotonic()
            attempt = await self._attempt(ticket)
            self._durations.hear(family, time.monotonic() - began)
            permit.charge(attempt.trajectory.num_output_tokens)
        self._on_attempt(ticket, attempt)
        return attempt
