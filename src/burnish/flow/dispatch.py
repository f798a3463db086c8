"""The dispatch loop: which groups are under way, with a bound on how many and how far behind."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from burnish.errors import AttemptError, BoundaryError, boundary
from burnish.flow.gate import LagGate
from burnish.flow.source import TaskSource, group_id
from burnish.observe.emit import emit
from burnish.types import Attempt, Group, Task, Trajectory, Unmeasured


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
    """An order for one attempt.

    Example: Ticket(index=12, member=3, id="g000012.3", group_id="g000012", task=task, seed=8812)
    """

    index: int  # of the group, from the source
    member: int  # in [0, group_size)
    id: str
    group_id: str
    task: Task
    seed: int


AttemptFn = Callable[[Ticket], Awaitable[Attempt]]


async def attempt_or_unmeasured(attempt: AttemptFn, ticket: Ticket, *, max_retries: int, timeout_s: float) -> Attempt:
    """Carries out a ticket. The one place where a failure of the world becomes an `Unmeasured` outcome (I1).

    A failed try is repeated from the start up to `max_retries` times; each repetition is an `attempt.retry` event.
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
    """Takes groups from the source while the lag gate lets it, and runs their attempts.

    Components it talks to are given as callables: `attempt` carries out one ticket (with its retries), `on_attempt`
    hears of each finished attempt (the journal), `on_group` of each finished group (the buffer).
    """

    def __init__(
        self,
        *,
        source: TaskSource,
        tasks: tuple[Task, ...],
        gate: LagGate,
        group_size: int,
        max_concurrent: int,
        seed: int,
        life: int,
        attempt: AttemptFn,
        on_attempt: Callable[[Ticket, Attempt], None],
        on_group: Callable[[Group], None],
        finished: Mapping[int, Mapping[int, Attempt]],
    ) -> None:
        """`finished`: what an earlier life of the run left, by group index and member. `life` counts from 0."""
        self._source, self._tasks, self._gate = source, tasks, gate
        self._group_size, self._seed, self._life = group_size, seed, life
        self._slots = asyncio.Semaphore(max_concurrent)
        self._attempt, self._on_attempt, self._on_group = attempt, on_attempt, on_group
        self._finished = finished

    async def run(self) -> None:
        """Runs until cancelled. Waits for a lag slot; woken by the publisher. A group that raises ends the run."""
        async with asyncio.TaskGroup() as groups:
            while True:
                await self._gate.acquire()
                index = self._source.next_index()
                groups.create_task(self._run_group(index), name=f"group:{index}")

    async def _run_group(self, index: int) -> None:
        task = self._tasks[self._source.task_number(index)]
        done = dict(self._finished.get(index, {}))
        async with asyncio.TaskGroup() as members:
            running = {
                member: members.create_task(self._run_member(self._ticket(index, member, task)))
                for member in range(self._group_size)
                if member not in done
            }
        done |= {member: attempt.result() for member, attempt in running.items()}
        attempts = tuple(done[member] for member in range(self._group_size))
        self._on_group(Group(id=group_id(index), task_id=task.id, family=task.family, attempts=attempts))

    async def _run_member(self, ticket: Ticket) -> Attempt:
        async with self._slots:
            attempt = await self._attempt(ticket)
        self._on_attempt(ticket, attempt)
        return attempt

    def _ticket(self, index: int, member: int, task: Task) -> Ticket:
        life = f"r{self._life}" if self._life else ""  # an id names one attempt for ever, also across a resume
        return Ticket(
            index=index,
            member=member,
            id=f"{group_id(index)}.{member}{life}",
            group_id=group_id(index),
            task=task,
            seed=(self._seed * 1_000_003 + index) * 1_009 + member,
        )
