"""Groups become batches or are dropped, once, with a reason."""

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.errors import AttemptError
from burnish.flow.buffer import GroupBuffer, Judged, judge
from burnish.flow.packing import make_batch
from burnish.observe.emit import Event, attached
from burnish.reward.advantage import advantages
from burnish.testing import make_attempt, make_group
from burnish.types import Group, Unmeasured

GRPO = partial(advantages, estimator="grpo")
BROKEN = Unmeasured(boundary="sandbox", cause="create: host died")


def buffer_of(size: int, *, max_lag: int = 0) -> tuple[GroupBuffer, list[Judged]]:
    closed: list[Judged] = []
    buffer = GroupBuffer(groups_per_step=size, max_lag=max_lag, advantage_fn=GRPO, on_closed=closed.append)
    return buffer, closed


@given(st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=8))
def test_an_unmeasured_attempt_is_in_no_baseline_and_has_no_advantage(rewards: list[float | None]) -> None:
    """I1: judged as if the broken attempts had never been there."""
    attempts = tuple(
        make_attempt(id=f"g000000.{i}", reward=0.0 if r is None else r, outcome=BROKEN if r is None else None)
        for i, r in enumerate(rewards)
    )
    measured = [r for r in rewards if r is not None]
    judged = judge(Group(id="g000000", task_id="t/0", family="t", attempts=attempts), GRPO)
    expected = GRPO(measured) if len(measured) >= 2 else None
    assert judged.advantages == (expected or ())
    assert [t.id for t in judged.trajectories] == (
        [f"g000000.{i}" for i, r in enumerate(rewards) if r is not None] if expected else []
    )
    assert judged.drop == (None if expected else "no_signal" if len(measured) >= 2 else "too_few_measured")


def test_an_attempt_that_sampled_nothing_counts_in_the_baseline_only() -> None:
    silent = make_attempt(id="g000000.0", answers=(), reward=0.0)
    group = Group(id="g000000", task_id="t/0", family="t", attempts=(silent, make_attempt(id="g000000.1", reward=1.0)))
    judged = judge(group, GRPO)
    assert [t.id for t in judged.trajectories] == ["g000000.1"]
    assert judged.advantages == pytest.approx((1.0,), abs=1e-4)


async def test_a_step_closes_over_finished_groups_and_trains_those_with_signal() -> None:
    buffer, closed = buffer_of(3)
    for index, rewards in enumerate([[0, 1], [1, 1], [0, 1], [0, 1]]):
        buffer.put(make_group(rewards, id=f"g{index:06d}"))
    step = await buffer.take(version=0, timeout_s=1)
    assert [judged.group.id for judged in step.trained] == ["g000000", "g000002"]
    assert [(judged.group.id, judged.drop) for judged in step.dropped] == [("g000001", "no_signal")]
    assert (len(buffer), closed) == (1, [])


async def test_a_step_without_any_signal_is_dropped_loudly_and_waited_past() -> None:
    buffer, closed = buffer_of(2)
    events: list[Event] = []
    with attached(events.append):
        for index, rewards in enumerate([[1, 1], [0, 0], [0, 1], [1, 1]]):
            buffer.put(make_group(rewards, id=f"g{index:06d}"))
        step = await buffer.take(version=0, timeout_s=1)
    assert [judged.group.id for judged in step.trained] == ["g000002"]
    assert [judged.group.id for judged in closed] == ["g000000", "g000001"]
    assert [event["event"] for event in events] == ["starved"]


@pytest.mark.parametrize(("max_lag", "kept"), [(0, [3]), (1, [2, 3]), (3, [0, 1, 2, 3])])
async def test_a_group_past_the_lag_bound_is_dropped(max_lag: int, kept: list[int]) -> None:
    """I3: strict, per token."""
    buffer, closed = buffer_of(len(kept), max_lag=max_lag)
    for version in range(4):
        buffer.put(make_group([0, 1], id=f"g{version:06d}", version=version))
    step = await buffer.take(version=3, timeout_s=1)
    assert [judged.group.id for judged in step.trained] == [f"g{v:06d}" for v in kept]
    assert {judged.drop for judged in closed} <= {"stale"}
    assert len(closed) == 4 - len(kept)


async def test_a_group_with_fresh_tokens_stays_whole_and_trains_only_those() -> None:
    """I3, per token: what is too old is context, and its reward still counts in the baseline."""
    buffer, closed = buffer_of(1, max_lag=1)
    attempts = (
        make_attempt(id="g000000.0", answers=((4, 5), (6,)), versions=(0, 2), reward=1.0),
        make_attempt(id="g000000.1", answers=((7,),), versions=(0,), reward=0.0),
    )
    buffer.put(Group(id="g000000", task_id="t/0", family="t", attempts=attempts))
    step = await buffer.take(version=3, timeout_s=1)
    assert closed == []
    assert step.trained[0].advantages == pytest.approx((1.0, -1.0), abs=1e-3)
    batch = make_batch(step.trained, step=3, temperature=1.0, oldest=2)
    assert batch.trajectory_ids == ("g000000.0",)
    (row,) = batch.rows
    trained = [(id, v) for id, v, mask in zip(row.ids, row.versions, row.loss_mask, strict=True) if mask]
    assert trained == [(6, 2)]
    assert [v for v, mask in zip(row.versions, row.loss_mask, strict=True) if not mask] == [-1] * (len(row.ids) - 1)


async def test_a_group_of_a_quarantined_task_is_closed_at_once_and_fills_no_step() -> None:
    buffer, closed = buffer_of(1)
    buffer.put(Group(id="g000000", task_id="t/0", family="t", attempts=()))
    assert [judged.drop for judged in closed] == ["quarantined"]
    assert len(buffer) == 0


def test_groups_that_must_be_whole_are_dropped_when_they_are_not() -> None:
    group = Group(id="g000000", task_id="t/0", family="t", attempts=make_group([0, 1, 1]).attempts)
    assert judge(group, GRPO, num_needed=4).drop == "short"
    assert judge(group, GRPO, num_needed=3).drop is None


async def test_a_step_is_full_when_another_groups_tokens_would_not_fit() -> None:
    closed: list[Judged] = []
    buffer = GroupBuffer(groups_per_step=3, max_lag=0, advantage_fn=GRPO, on_closed=closed.append, max_step_tokens=10)
    for index in range(4):  # four tokens each
        buffer.put(make_group([0, 1], id=f"g{index:06d}"))
    assert (await buffer.take(version=0, timeout_s=1)).num_groups == 2
    assert buffer._try_take(0) is None, "two more would fit, and a third may come"
    buffer.put(make_group([0, 1] * 10, id="g000009"))
    assert (await buffer.take(version=0, timeout_s=1)).num_groups == 2
    assert (await buffer.take(version=0, timeout_s=1)).num_groups == 1, "one that is too large alone is a step"


async def test_starvation_has_a_deadline_and_says_how_far_it_got() -> None:
    buffer, _ = buffer_of(2)
    buffer.put(make_group([0, 1]))
    with pytest.raises(AttemptError, match=r"no 2 finished groups within 0\.01 s, 1 are ready"):
        await buffer.take(version=0, timeout_s=0.01)


async def test_take_is_woken_by_put() -> None:
    buffer, _ = buffer_of(1)
    taking = asyncio.create_task(buffer.take(version=0, timeout_s=5))
    await asyncio.sleep(0)
    assert not taking.done()
    buffer.put(make_group([0, 1]))
    assert (await taking).num_groups == 1
