"""A fleet over sandboxes that run nothing: leases under a clock of the test's, places, retries, execution ids."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from burnish.errors import SandboxError, UserError
from burnish.observe.emit import attached
from burnish.observe.schema import validate
from burnish.sandbox.fleet import executions
from burnish.sandbox.fleet.backend import Fleet
from burnish.sandbox.fleet.executions import ExecutionLost
from burnish.sandbox.fleet.lease import Lease
from burnish.sandbox.fleet.places import Places
from burnish.sandbox.memory import MemoryCall, MemoryReply, MemorySandbox
from burnish.testing import FakeClock, MemoryBackend


class Counted:
    """A command that says how often it ran, and can be held."""

    def __init__(self) -> None:
        self.num_runs = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, call: MemoryCall) -> MemoryReply:
        self.num_runs += 1
        number = self.num_runs
        await self.open.wait()
        return MemoryReply(stdout=str(number).encode())


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest_asyncio.fixture
async def fleet(clock: FakeClock, counted: Counted) -> AsyncIterator[Fleet]:
    async with Fleet(
        MemoryBackend(commands={"count": counted}), ttl_s=100, idle_timeout_s=10, max_live=2, wait_s=30, clock=clock
    ) as fleet:
        yield fleet


async def turns() -> None:
    """Lets everything that is ready run."""
    for _ in range(20):
        await asyncio.sleep(0)


# -- leases


def test_a_lease_has_two_clocks(clock: FakeClock) -> None:
    lease = Lease(ttl_s=10, idle_timeout_s=4, clock=clock)
    clock.advance(3)
    assert lease.left_s() == 1 and lease.expired() is None
    with lease.use():
        clock.advance(5)
        assert lease.expired() is None  # nothing is idle while it is in use
    assert lease.left_s() == 2
    clock.advance(2)
    assert lease.expired() == "ttl_s"
    lease.renew(20)
    assert lease.expired() is None
    clock.advance(4)
    assert lease.expired() == "idle_timeout_s"


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_a_time_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(UserError, match="idle_timeout_s"):
        Fleet(MemoryBackend(), idle_timeout_s=wrong)


async def test_what_is_not_used_is_ended_and_says_which_clock(fleet: Fleet, clock: FakeClock) -> None:
    events: list[dict[str, Any]] = []
    with attached(events.append):
        box = await fleet.create()
        clock.advance(9)
        await box.files.write("a", "x")
        clock.advance(9)
        assert await box.files.exists("a")
        clock.advance(10)
        fleet.expire()
        await turns()
    for event in events:
        validate(event)
    assert [(event["event"], event.get("clock")) for event in events[1:]] == [
        ("sandbox.expire", "idle_timeout_s"),
        ("sandbox.kill", None),
    ]
    assert fleet.boxes == ()
    for use in (box.commands.run("true"), box.files.read("a"), box.snapshot(), box.fork()):
        with pytest.raises(SandboxError, match="idle_timeout_s of 10 s"):
            await use
    with pytest.raises(SandboxError, match="idle_timeout_s"):
        box.renew()


async def test_a_use_that_comes_before_the_timer_is_refused_too(fleet: Fleet, clock: FakeClock) -> None:
    box = await fleet.create()
    clock.advance(100)
    with pytest.raises(SandboxError, match="ttl_s of 100 s"):
        await box.commands.run("true")


async def test_the_end_of_life_ends_a_running_command(fleet: Fleet, clock: FakeClock, counted: Counted) -> None:
    box = await fleet.create()
    counted.open.clear()
    running = asyncio.create_task(box.commands.run("count"))
    await turns()
    clock.advance(99)
    fleet.expire()
    await turns()
    assert not running.done()
    clock.advance(1)
    fleet.expire()
    await turns()
    counted.open.set()
    with pytest.raises(SandboxError, match="ttl_s"):
        await running


async def test_a_renewed_lease_begins_anew(fleet: Fleet, clock: FakeClock) -> None:
    box = await fleet.create(idle_timeout_s=1000)
    clock.advance(99)
    box.renew(200)
    clock.advance(199)
    assert (await box.commands.run("true")).ok
    clock.advance(1)
    with pytest.raises(SandboxError, match="ttl_s of 200 s"):
        await box.commands.run("true")


async def test_a_real_clock_needs_nobody_to_look() -> None:
    killed = asyncio.Event()

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "sandbox.kill":
            killed.set()

    async with Fleet(MemoryBackend(), idle_timeout_s=0.01) as fleet:
        box = await fleet.create()
        with attached(hear):
            await killed.wait()
        with pytest.raises(SandboxError, match="idle_timeout_s"):
            await box.commands.run("true")


# -- places


async def test_a_creation_waits_its_turn(fleet: Fleet) -> None:
    first, second = await fleet.create(), await fleet.create()
    waiting = [asyncio.create_task(fleet.create()) for _ in range(2)]
    await turns()
    assert not any(task.done() for task in waiting)
    await first.kill()
    await turns()
    assert [task.done() for task in waiting] == [True, False]
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    await second.kill()
    assert len(fleet.boxes) == 1
    await fleet.create()
    assert len(fleet.boxes) == 2


async def test_no_place_in_time_is_an_error_with_the_number() -> None:
    async with Fleet(MemoryBackend(), max_live=1, wait_s=0.01) as fleet:
        await fleet.create()
        with pytest.raises(SandboxError, match=r"no place among 1 sandboxes within 0\.01 s"):
            await fleet.create()


async def test_forks_take_places(fleet: Fleet) -> None:
    box = await fleet.create()
    await box.files.write("a", "x")
    (copy,) = await box.fork()
    assert await copy.files.read("a") == b"x" and copy.lease.limits == box.lease.limits
    with pytest.raises(UserError, match="of at most 2"):
        await box.fork(3)


async def test_who_asks_for_many_is_not_overtaken_and_who_gives_up_lets_others_pass() -> None:
    places = Places(3)
    await places.take(2, wait_s=1)
    many = asyncio.create_task(places.take(3, wait_s=30))
    one = asyncio.create_task(places.take(1, wait_s=30))
    await turns()
    assert not many.done() and not one.done()
    many.cancel()
    await asyncio.gather(many, return_exceptions=True)
    await one
    assert places.num_taken == 3


async def test_a_turn_that_comes_with_a_cancellation_is_passed_on() -> None:
    places = Places(1)
    await places.take(1, wait_s=1)
    first, second = (asyncio.create_task(places.take(1, wait_s=30)) for _ in range(2))
    await turns()
    places.give_back(1)  # first's turn, which it has not heard of when it is cancelled
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await second
    assert places.num_taken == 1


# -- retries


class Flaky(MemoryBackend):
    """Fails the first creations."""

    def __init__(self, errors: list[Exception]) -> None:
        super().__init__()
        self.errors = errors

    async def create(self, **options: Any) -> MemorySandbox:
        if self.errors:
            raise self.errors.pop(0)
        return await super().create(**options)


async def test_a_creation_is_tried_again_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.sandbox.fleet.backend._BACKOFF_S", 0)
    events: list[dict[str, Any]] = []
    with attached(events.append):
        async with Fleet(Flaky([SandboxError("one"), SandboxError("two")]), retries=2, max_live=1) as fleet:
            await fleet.create()
    assert [(e["cause"], e["retry"]) for e in events if e["event"] == "sandbox.retry"] == [
        ("one", 1),
        ("two", 2),
    ]


async def test_retries_end_and_mistakes_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.sandbox.fleet.backend._BACKOFF_S", 0)
    errors = [SandboxError("one"), SandboxError("two"), UserError("no"), SandboxError("left")]
    async with Fleet(Flaky(errors), retries=1, max_live=1) as fleet:
        with pytest.raises(SandboxError, match="two"):
            await fleet.create()
        with pytest.raises(UserError, match="no"):
            await fleet.create()
        assert len(errors) == 1
        assert (await fleet.create()).id  # and nobody kept the place


# -- execution ids


async def test_a_named_command_runs_once(fleet: Fleet, counted: Counted) -> None:
    box = await fleet.create()
    first = await box.commands.run("count", execution_id="a")
    assert await box.commands.run("count", execution_id="a") == first
    assert (await box.commands.run("count", execution_id="b")).stdout == b"2"
    assert (await box.commands.run("count")).stdout == b"3" and counted.num_runs == 3


async def test_who_asks_again_waits_and_a_cancelled_caller_ends_nothing(fleet: Fleet, counted: Counted) -> None:
    box = await fleet.create()
    counted.open.clear()
    first = asyncio.create_task(box.commands.run("count", execution_id="a"))
    await turns()
    second = asyncio.create_task(box.commands.run("count", execution_id="a"))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not second.done()
    counted.open.set()
    assert (await second).stdout == b"1" and counted.num_runs == 1


async def test_a_result_outlives_its_sandbox_and_an_unknown_end_is_said(
    fleet: Fleet, clock: FakeClock, counted: Counted
) -> None:
    box = await fleet.create()
    known = await box.commands.run("count", execution_id="known")
    counted.open.clear()
    unknown = asyncio.create_task(box.commands.run("count", execution_id="unknown"))
    await turns()
    await box.kill()
    for lost in (unknown, box.commands.run("count", execution_id="unknown")):
        with pytest.raises(ExecutionLost, match="not known"):
            await lost
    assert await box.commands.run("count", execution_id="known") == known
    with pytest.raises(SandboxError) as never_begun:
        await box.commands.run("count", execution_id="new")
    assert counted.num_runs == 2 and "killed" in str(never_begun.value)


async def test_an_id_stands_for_one_command(fleet: Fleet) -> None:
    box = await fleet.create()
    await box.commands.run("count", stdin=b"\xff", execution_id="a")
    with pytest.raises(UserError, match="another command"):
        await box.commands.run("count", stdin=b"\xfe", execution_id="a")
    for wrong in ("", "x" * 201):
        with pytest.raises(UserError, match="execution id"):
            await box.commands.run("count", execution_id=wrong)


async def test_what_was_refused_was_not_begun(fleet: Fleet) -> None:
    box = await fleet.create()
    with pytest.raises(UserError, match="empty"):
        await box.commands.run([], execution_id="a")
    assert (await box.commands.run("count", execution_id="a")).ok


async def test_results_are_bounded_and_what_was_let_go_is_not_run_again(
    fleet: Fleet, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executions, "MAX_RESULTS", 2)
    monkeypatch.setattr(executions, "MAX_IDS", 4)
    box = await fleet.create()
    for id in "abc":
        await box.commands.run("count", execution_id=id)
    with pytest.raises(ExecutionLost, match="no longer kept"):
        await box.commands.run("count", execution_id="a")
    assert (await box.commands.run("count", execution_id="b")).stdout == b"2"
    monkeypatch.setattr(executions, "MAX_KEPT_BYTES", 0)
    assert (await box.commands.run("count", execution_id="d")).stdout == b"4"
    with pytest.raises(ExecutionLost, match="no longer kept"):
        await box.commands.run("count", execution_id="d")
    with pytest.raises(SandboxError, match="fresh sandbox"):
        await box.commands.run("count", execution_id="e")
    assert counted.num_runs == 4


async def test_ids_of_a_fork_are_its_own(fleet: Fleet, counted: Counted) -> None:
    box = await fleet.create()
    await box.commands.run("count", execution_id="a")
    (copy,) = await box.fork()
    assert (await copy.commands.run("count", execution_id="a")).stdout == b"2"
