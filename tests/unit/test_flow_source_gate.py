"""The order of groups and the slots they hold."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.flow.gate import LagGate
from burnish.flow.source import TaskSource, group_id, group_index


@given(num=st.integers(1, 40), seed=st.integers(0, 5), epochs=st.integers(1, 3))
def test_an_epoch_visits_every_task_once(num: int, seed: int, epochs: int) -> None:
    source = TaskSource(num, seed=seed)
    visits = Counter(source.task_number(source.next_index()) for _ in range(num * epochs))
    assert visits == Counter(dict.fromkeys(range(num), epochs))


@given(closed=st.sets(st.integers(0, 30)), count=st.integers(1, 30))
def test_a_resumed_source_issues_what_is_open_and_nothing_else(closed: set[int], count: int) -> None:
    """I2: no prompt skipped, none repeated."""
    source = TaskSource(7, seed=1, closed=closed)
    issued = [source.next_index() for _ in range(count)]
    open_indices = [index for index in range(count + len(closed)) if index not in closed]
    assert issued == open_indices[:count]


def test_order_depends_on_the_seed_and_changes_between_epochs() -> None:
    source = TaskSource(50, seed=0)
    first = [source.task_number(i) for i in range(50)]
    assert first == [TaskSource(50, seed=0).task_number(i) for i in range(50)]
    assert first != [source.task_number(i) for i in range(50, 100)]
    assert first != [TaskSource(50, seed=1).task_number(i) for i in range(50)]


def test_no_tasks_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        TaskSource(0, seed=0)


@given(st.integers(0, 10**7))
def test_group_ids_invert(index: int) -> None:
    assert group_index(group_id(index)) == index


async def through(gate: LagGate, group: int) -> None:
    await gate.wait()
    gate.hold(group)


async def test_gate_lets_through_one_step_per_allowed_lag_and_wakes_on_release() -> None:
    gate = LagGate(groups_per_step=2, max_lag=1)
    for group in range(4):
        await through(gate, group)
    waiting = asyncio.create_task(through(gate, 4))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.finished(2)
    gate.release([2])
    await waiting
    assert gate.num_held == 4


async def test_a_group_that_outlives_the_bound_holds_up_nobody_and_waits_for_its_turn_in_the_end() -> None:
    gate = LagGate(groups_per_step=1, max_lag=1)
    await through(gate, 0)
    for version in (1, 2):
        await through(gate, version)
        gate.finished(version)
        gate.release([version])
        gate.published(version)
    assert (gate.num_held, gate.num_overdue) == (0, 1)
    gate.finished(0)
    assert (gate.num_held, gate.num_overdue) == (1, 0)
    gate.release([0])
    assert gate.num_held == 0


async def test_at_lag_0_nothing_is_overdue() -> None:
    gate = LagGate(groups_per_step=2, max_lag=0)
    await through(gate, 0)
    await through(gate, 1)
    gate.published(0)
    assert (gate.num_held, gate.num_overdue) == (2, 0)


async def test_gate_refuses_what_cannot_be() -> None:
    gate = LagGate(groups_per_step=2, max_lag=0)
    await through(gate, 0)
    with pytest.raises(ValueError, match="group 0 was closed, but had not finished"):
        gate.release([0])
    with pytest.raises(ValueError, match="group 0 was dispatched already"):
        gate.hold(0)
    with pytest.raises(ValueError, match="group 1 is not running"):
        gate.finished(1)


async def test_a_gate_that_shrinks_lets_no_more_through() -> None:
    gate = LagGate(groups_per_step=1, max_lag=1)
    await through(gate, 0)
    gate.num_slots = 0
    gate.finished(0)
    gate.release([0])
    waiting = asyncio.create_task(gate.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
