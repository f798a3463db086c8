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


async def test_gate_lets_through_one_step_per_allowed_lag_and_wakes_on_release() -> None:
    gate = LagGate(groups_per_step=2, max_lag=1)
    for _ in range(4):
        await gate.acquire()
    waiting = asyncio.create_task(gate.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.release(1)
    await waiting
    assert gate.num_held == 4


async def test_gate_refuses_slots_nobody_holds() -> None:
    gate = LagGate(groups_per_step=2, max_lag=0)
    await gate.acquire()
    with pytest.raises(ValueError, match="2 slots given back, 1 held"):
        gate.release(2)


async def test_a_gate_that_shrinks_lets_no_more_through() -> None:
    gate = LagGate(groups_per_step=1, max_lag=1)
    await gate.acquire()
    gate.num_slots = 0
    gate.release(1)
    waiting = asyncio.create_task(gate.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
