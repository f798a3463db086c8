"""Tickets, retries, groups and their rules."""

import asyncio

import pytest

from burnish.errors import EngineError, SandboxError
from burnish.flow.admission import Admission, ConcurrencyController
from burnish.flow.dispatch import Dispatcher, attempt_or_unmeasured
from burnish.flow.gate import LagGate
from burnish.flow.group import AttemptFn, GroupRules, Ticket, member_of
from burnish.flow.ledger import Ongoing, OpenGroup
from burnish.flow.source import TaskSource
from burnish.observe.emit import Event, attached
from burnish.testing import make_attempt, make_task_set
from burnish.types import Attempt, Group, Measured, Unmeasured

TASKS = make_task_set(3).tasks
TICKET = Ticket(index=0, member=0, id="g000000.0", group_id="g000000", task=TASKS[0], seed=1)


def failing(times: int, error: Exception) -> AttemptFn:
    left = [times]

    async def attempt(ticket: Ticket) -> Attempt:
        if left[0]:
            left[0] -= 1
            raise error
        return make_attempt(id=ticket.id)

    return attempt


async def test_a_failure_of_the_world_is_tried_again_and_told() -> None:
    events: list[Event] = []
    with attached(events.append):
        attempt = await attempt_or_unmeasured(failing(2, SandboxError("host died")), TICKET, max_retries=2, timeout_s=5)
    assert isinstance(attempt.outcome, Measured)
    assert [(e["event"], e["boundary"], e["retry"]) for e in events] == [
        ("attempt.retry", "sandbox", 1),
        ("attempt.retry", "sandbox", 2),
    ]


async def test_failures_past_the_retries_are_unmeasured_with_their_address() -> None:
    """I1: no step, no observation, no number."""
    error = EngineError("worker process died: killed by signal 9", evidence="last log line")
    attempt = await attempt_or_unmeasured(failing(9, error), TICKET, max_retries=1, timeout_s=5)
    assert attempt.outcome == Unmeasured(
        boundary="engine", cause="worker process died: killed by signal 9", evidence="last log line"
    )
    assert (attempt.trajectory.steps, attempt.trajectory.stop_reason) == ((), "failed")


async def test_an_attempt_that_never_ends_is_ended() -> None:
    async def hang(ticket: Ticket) -> Attempt:
        await asyncio.sleep(3600)
        raise AssertionError(ticket)

    attempt = await attempt_or_unmeasured(hang, TICKET, max_retries=0, timeout_s=0.01)
    assert isinstance(attempt.outcome, Unmeasured)
    assert (attempt.outcome.boundary, attempt.outcome.cause) == ("attempt", "attempt: deadline exceeded")


async def always_room() -> None:
    pass


def dispatcher(
    attempt: AttemptFn,
    groups: list[Group],
    *,
    gate: LagGate | None = None,
    opened: dict[int, OpenGroup] | None = None,
    rules: GroupRules = GroupRules(group_size=3, seed=5),
    max_concurrent: int = 4,
    begun: list[str] | None = None,
    told: list[str] | None = None,
) -> Dispatcher:
    return Dispatcher(
        source=TaskSource(len(TASKS), seed=0),
        tasks=TASKS,
        gate=gate or LagGate(groups_per_step=2, max_lag=0),
        rules=rules,
        admission=Admission(
            ConcurrencyController(start=max_concurrent, highest=max_concurrent), max_live=max_concurrent
        ),
        attempt=attempt,
        on_begin=lambda ticket: (begun if begun is not None else []).append(ticket.id),
        on_attempt=lambda ticket, _: (told if told is not None else []).append(ticket.id),
        on_group=groups.append,
        opened=opened or {},
        room=always_room,
    )


async def run_until_idle(running: Dispatcher, num_groups: int, groups: list[Group]) -> None:
    task = asyncio.create_task(running.run())
    async with asyncio.timeout(5):
        while len(groups) < num_groups and not task.done():  # noqa: ASYNC110 (groups is a plain list)
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_groups_have_their_members_in_order_and_no_more_groups_than_slots() -> None:
    groups: list[Group] = []
    await run_until_idle(dispatcher(failing(0, EngineError("")), groups), 2, groups)
    assert [[a.trajectory.id for a in group.attempts] for group in groups] == [
        [f"g{index:06d}.{member}" for member in range(3)] for index in range(2)
    ]


async def test_a_resumed_group_keeps_what_is_finished_goes_on_with_the_rest_and_reuses_no_id() -> None:
    groups: list[Group] = []
    told: list[str] = []
    begun: list[str] = []
    steps = make_attempt().trajectory.steps
    seen: dict[str, Ticket] = {}

    async def attempt(ticket: Ticket) -> Attempt:
        seen[ticket.id] = ticket
        return make_attempt(id=ticket.id)

    opened = OpenGroup(
        finished={0: make_attempt(id="g000000.0")},
        ongoing={2: Ongoing(id="g000000.2", seed=77, steps=steps)},
        num_ids={0: 1, 1: 1, 2: 1},  # member 1 had an attempt, which is void
    )
    await run_until_idle(dispatcher(attempt, groups, opened={0: opened}, told=told, begun=begun), 2, groups)
    first = next(group for group in groups if group.id == "g000000")
    assert [a.trajectory.id for a in first.attempts] == ["g000000.0", "g000000.1-2", "g000000.2"]
    assert "g000000.0" not in told
    assert "g000000.2" not in begun, "it began in another life"
    assert (seen["g000000.2"].steps, seen["g000000.2"].seed) == (steps, 77)
    assert seen["g000000.1-2"].seed != seen["g000000.2"].seed


async def test_unmeasured_attempts_are_replaced_while_there_are_refills() -> None:
    groups: list[Group] = []
    broken = {"g000000.1", "g000000.1-2", "g000000.2"}

    async def attempt(ticket: Ticket) -> Attempt:
        outcome = Unmeasured(boundary="sandbox", cause="host died") if ticket.id in broken else None
        return make_attempt(id=ticket.id, outcome=outcome)

    rules = GroupRules(group_size=3, max_refills=2, seed=5)
    await run_until_idle(dispatcher(attempt, groups, rules=rules), 2, groups)
    first = next(group for group in groups if group.id == "g000000")
    ids = [a.trajectory.id for a in first.attempts]
    assert ids == ["g000000.0", "g000000.1", "g000000.1-2", "g000000.2", "g000000.2-2"]
    assert sum(isinstance(a.outcome, Measured) for a in first.attempts) == 2, "the two refills are used up"


async def test_the_slowest_of_an_oversampled_group_are_cancelled_and_told() -> None:
    groups: list[Group] = []
    told: list[str] = []
    stopped: list[str] = []

    async def attempt(ticket: Ticket) -> Attempt:
        try:
            await asyncio.sleep(0 if ticket.member < 3 else 3600)
        except asyncio.CancelledError:
            stopped.append(ticket.id)
            raise
        return make_attempt(id=ticket.id)

    rules = GroupRules(group_size=3, oversample=2, seed=5)
    await run_until_idle(dispatcher(attempt, groups, rules=rules, told=told, max_concurrent=99), 1, groups)
    assert [a.trajectory.stop_reason for a in groups[0].attempts] == ["max_turns"] * 3 + ["cancelled"] * 2
    assert sorted(stopped[:2]) == ["g000000.3", "g000000.4"]
    assert {"g000000.3", "g000000.4"} <= set(told)


async def test_a_cancelled_dispatcher_says_how_far_its_groups_had_come() -> None:
    async def attempt(ticket: Ticket) -> Attempt:
        if ticket.member:
            await asyncio.sleep(3600)
        return make_attempt(id=ticket.id)

    groups: list[Group] = []
    running = dispatcher(attempt, groups, max_concurrent=99)
    task = asyncio.create_task(running.run())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [[a.trajectory.stop_reason for a in group.attempts] for group in running.open_groups()] == [
        ["max_turns", "cancelled", "cancelled"]
    ] * 2


@pytest.mark.parametrize(("id", "member"), [("g000012.3", 3), ("g000012.11-2", 11)])
def test_an_id_names_its_member(id: str, member: int) -> None:
    assert member_of(id) == member


async def test_concurrency_is_bounded() -> None:
    live, peak = 0, 0

    async def attempt(ticket: Ticket) -> Attempt:
        nonlocal live, peak
        live += 1
        peak = max(peak, live)
        await asyncio.sleep(0.001)
        live -= 1
        return make_attempt(id=ticket.id)

    groups: list[Group] = []
    gate = LagGate(groups_per_step=5, max_lag=0)
    await run_until_idle(dispatcher(attempt, groups, gate=gate, max_concurrent=4), 5, groups)
    assert peak == 4


async def test_a_bug_in_an_attempt_ends_the_dispatcher_with_that_bug() -> None:
    groups: list[Group] = []
    with pytest.raises(ExceptionGroup) as caught:
        await dispatcher(failing(99, ZeroDivisionError("ours")), groups).run()
    assert caught.group_contains(ZeroDivisionError, match="ours")
