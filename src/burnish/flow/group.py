"""One group on its way: its members' attempts, those that take the places of unmeasured ones, and when it is over."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from burnish.flow.ledger import OpenGroup
from burnish.flow.source import group_id
from burnish.observe.emit import emit
from burnish.types import Attempt, Group, Measured, Step, Task, Trajectory, Unmeasured


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
    """An order for one attempt.

    Example: Ticket(index=12, member=3, id="g000012.3", group_id="g000012", task=task, seed=8812)
    """

    index: int  # of the group, from the source
    member: int
    id: str
    group_id: str
    task: Task
    seed: int
    steps: tuple[Step, ...] = ()  # of an earlier life of the run, to go on from
    begun: bool = False  # in an earlier life


AttemptFn = Callable[[Ticket], Awaitable[Attempt]]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRules:
    """What a group is, and what it does about attempts that end badly or late.

    Example: GroupRules(group_size=8, oversample=0, max_refills=2, seed=0)
    """

    group_size: int  # measured attempts that complete it
    oversample: int = 0  # more attempts than it needs; the slowest are cancelled
    max_refills: int = 0  # attempts that take the places of unmeasured ones, in all
    seed: int = 0


@dataclass(kw_only=True, slots=True)
class _Places:
    """Who attempts what: attempts under way by member, and how often each member's place was filled."""

    running: dict["asyncio.Future[Attempt]", Ticket] = field(default_factory=dict)
    num_ids: dict[int, int] = field(default_factory=dict)


class GroupRun:
    """Runs one group until it has its measured attempts, or cannot get them.

    Each attempt has an id that no other has, also across lives of a run: `g000012.3`, and where another one takes the
    place of an attempt, `g000012.3-2`.
    """

    def __init__(
        self,
        index: int,
        task: Task,
        rules: GroupRules,
        attempt: AttemptFn,
        *,
        opened: OpenGroup | None = None,
        on_cancelled: Callable[[Ticket, Attempt], None],
    ) -> None:
        """`attempt` carries out one ticket; `opened` is what an earlier life of the run left of this group;
        `on_cancelled` hears of the attempts that a complete group has no use for."""
        self.index, self.task = index, task
        self._rules, self._attempt, self._on_cancelled = rules, attempt, on_cancelled
        self._opened = opened or OpenGroup()
        self._places = _Places(num_ids=dict(self._opened.num_ids))
        self._refills_left = rules.max_refills
        self.attempts = [attempt for _, attempt in sorted(self._opened.finished.items())]
        self.begun = {ongoing.id for ongoing in self._opened.ongoing.values()}  # who did not only wait for a place

    async def run(self) -> Group:
        """Cancelling it cancels its attempts. An attempt that raises ends the group with that error."""
        rules = self._rules
        for member in range(rules.group_size + rules.oversample):
            if member not in self._opened.finished:
                self._start(member)
        try:
            while self._places.running and self._num_measured < rules.group_size:
                done, _ = await asyncio.wait(self._places.running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda task: self._places.running[task].member):
                    self._take(task)
            for ticket, attempt in await self._cancel_rest():
                self._on_cancelled(ticket, attempt)
        finally:
            await self._cancel_rest()
        return self.group()

    def group(self) -> Group:
        """The group as it is, its attempts in the order of their members. What an earlier life began and this one
        has not come to counts as cancelled."""
        waiting = [cancelled(self._ticket(member)) for member in self._opened.ongoing]
        attempts = sorted([*self.attempts, *waiting], key=lambda attempt: member_of(attempt.trajectory.id))
        return Group(id=group_id(self.index), task_id=self.task.id, family=self.task.family, attempts=tuple(attempts))

    @property
    def _num_measured(self) -> int:
        return sum(isinstance(attempt.outcome, Measured) for attempt in self.attempts)

    def _start(self, member: int) -> None:
        ticket = self._ticket(member)
        if self._opened.ongoing.pop(member, None) is None:
            self._places.num_ids[member] = self._places.num_ids.get(member, 0) + 1
        self._places.running[asyncio.ensure_future(self._attempt(ticket))] = ticket

    def _ticket(self, member: int) -> Ticket:
        """For the attempt that an earlier life began, or else for a new one."""
        ongoing = self._opened.ongoing.get(member)
        number = self._places.num_ids.get(member, 0)
        id = f"{group_id(self.index)}.{member}" + (f"-{number + 1}" if number else "")
        return Ticket(
            index=self.index,
            member=member,
            id=ongoing.id if ongoing else id,
            group_id=group_id(self.index),
            task=self.task,
            seed=ongoing.seed if ongoing else _seed(self._rules.seed, self.index, member, number),
            steps=ongoing.steps if ongoing else (),
            begun=ongoing is not None,
        )

    def _take(self, task: "asyncio.Future[Attempt]") -> None:
        ticket, attempt = self._places.running.pop(task), task.result()
        self.attempts.append(attempt)
        if isinstance(attempt.outcome, Measured):
            return
        could_be = self._num_measured + len(self._places.running)
        if could_be < self._rules.group_size and self._refills_left:
            self._refills_left -= 1
            emit("group.refill", group_id=ticket.group_id, id=ticket.id, cause=attempt.outcome.cause)
            self._start(ticket.member)

    async def _cancel_rest(self) -> list[tuple[Ticket, Attempt]]:
        """Ends the attempts that nobody waits for any more: no reward, no failure. Those that had begun."""
        rest, self._places.running = self._places.running, {}
        for task in rest:
            task.cancel()
        ended = await asyncio.gather(*rest, return_exceptions=True)
        stopped = []
        for ticket, result in zip(rest.values(), ended, strict=True):
            if isinstance(result, Attempt):
                self.attempts.append(result)  # it ended in this very moment, and is in the journal
            elif ticket.id in self.begun:
                stopped.append((ticket, cancelled(ticket)))
        self.attempts += [attempt for _, attempt in stopped]
        return stopped


def cancelled(ticket: Ticket) -> Attempt:
    """An attempt that was stopped because nobody needed it any more."""
    trajectory = Trajectory(
        id=ticket.id,
        group_id=ticket.group_id,
        task_id=ticket.task.id,
        family=ticket.task.family,
        steps=(),
        stop_reason="cancelled",
    )
    return Attempt(trajectory=trajectory, outcome=Unmeasured(boundary="flow", cause="cancelled"))


def member_of(attempt_id: str) -> int:
    """Example: member_of("g000012.3-2") == 3."""
    return int(attempt_id.partition(".")[2].partition("-")[0])


def _seed(seed: int, index: int, member: int, number: int) -> int:
    """Of an attempt's sampling: another one for every attempt of a run, the same in every run with its seed."""
    return ((seed * 1_000_003 + index) * 1_009 + member) + number * 7_368_787
