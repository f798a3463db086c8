"""Tickets, retries, groups; and random histories of the whole flow."""

import asyncio
from collections import Counter
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.errors import EngineError, SandboxError
from burnish.flow.buffer import GroupBuffer, Judged
from burnish.flow.dispatch import AttemptFn, Dispatcher, Ticket, attempt_or_unmeasured
from burnish.flow.gate import LagGate
from burnish.flow.source import TaskSource
from burnish.observe.emit import Event, attached
from burnish.reward.advantage import advantages
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


def dispatcher(
    attempt: AttemptFn,
    groups: list[Group],
    *,
    gate: LagGate | None = None,
    finished: dict[int, dict[int, Attempt]] | None = None,
    life: int = 0,
    max_concurrent: int = 4,
    told: list[str] | None = None,
) -> Dispatcher:
    return Dispatcher(
        source=TaskSource(len(TASKS), seed=0),
        tasks=TASKS,
        gate=gate or LagGate(groups_per_step=2, max_lag=0),
        group_size=3,
        max_concurrent=max_concurrent,
        seed=5,
        life=life,
        attempt=attempt,
        on_attempt=lambda ticket, _: (told if told is not None else []).append(ticket.id),
        on_group=groups.append,
        finished=finished or {},
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


async def test_a_resumed_group_runs_only_what_is_missing_under_ids_of_the_new_life() -> None:
    groups: list[Group] = []
    told: list[str] = []
    finished = {0: {0: make_attempt(id="g000000.0"), 2: make_attempt(id="g000000.2")}}
    again = dispatcher(failing(0, EngineError("")), groups, finished=finished, life=1, told=told)
    await run_until_idle(again, 2, groups)
    first = next(group for group in groups if group.id == "g000000")
    assert [a.trajectory.id for a in first.attempts] == ["g000000.0", "g000000.1r1", "g000000.2"]
    assert "g000000.0" not in told


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


async def history(seed: int, *, max_lag: int, groups_per_step: int, num_steps: int) -> tuple[list[str], list[Judged]]:
    """A random run: attempts of random length while the version moves, failing now and then. Checks I3 on the way."""
    rng = Random(seed)
    version = 0

    async def attempt(ticket: Ticket) -> Attempt:
        began = version
        for _ in range(rng.randint(0, 6)):
            await asyncio.sleep(0)
        if rng.random() < 0.15:
            raise SandboxError("host died")
        return make_attempt(
            id=ticket.id, answers=((1,), (2,)), versions=(began, version), reward=float(rng.random() < 0.5)
        )

    closed: list[Judged] = []
    trained: list[str] = []
    gate = LagGate(groups_per_step=groups_per_step, max_lag=max_lag)

    def on_closed(judged: Judged) -> None:
        closed.append(judged)
        gate.release(1)

    buffer = GroupBuffer(
        groups_per_step=groups_per_step,
        max_lag=max_lag,
        advantage_fn=partial(advantages, estimator="grpo"),
        on_closed=on_closed,
    )
    retried = partial(attempt_or_unmeasured, attempt, max_retries=1, timeout_s=5)
    running = Dispatcher(
        source=TaskSource(len(TASKS), seed=seed),
        tasks=TASKS,
        gate=gate,
        group_size=3,
        max_concurrent=rng.randint(1, 9),
        seed=seed,
        life=0,
        attempt=retried,
        on_attempt=lambda ticket, attempt: None,
        on_group=buffer.put,
        finished={},
    )
    task = asyncio.create_task(running.run())
    while version < num_steps:
        step = await buffer.take(version=version, timeout_s=5)
        assert step.num_groups == groups_per_step
        assert step.trained
        for judged in step.trained:
            assert all(
                isinstance(a.outcome, Measured) for a in judged.group.attempts if a.trajectory in judged.trajectories
            )
            assert all(v >= version - max_lag for t in judged.trajectories for s in t.steps for v in s.versions)
        trained += [t.id for judged in step.trained for t in judged.trajectories]
        closed += step.dropped
        version += 1
        gate.release(step.num_groups)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return trained, closed


@given(
    seed=st.integers(0, 10**6),
    max_lag=st.integers(0, 3),
    groups_per_step=st.integers(1, 4),
    num_steps=st.integers(1, 6),
)
@settings(max_examples=150)
def test_random_histories_train_once_or_drop_once_with_a_reason(
    seed: int, max_lag: int, groups_per_step: int, num_steps: int
) -> None:
    """I1, I2, I3 and I8 over the whole flow."""
    trained, closed = asyncio.run(history(seed, max_lag=max_lag, groups_per_step=groups_per_step, num_steps=num_steps))
    assert max(Counter(trained).values()) == 1
    dropped = Counter(judged.group.id for judged in closed)
    assert max(dropped.values(), default=1) == 1
    assert {judged.drop for judged in closed} <= {"no_signal", "too_few_measured", "stale"}
    assert not {id.partition(".")[0] for id in trained} & dropped.keys()
    if max_lag == 0:
        assert "stale" not in {judged.drop for judged in closed}, "lag 0 is synchronous: nothing can be stale"
