"""Who is admitted, when: limits that follow the load, fairness between families, nobody who waits for ever."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.flow.admission import COOLDOWN_TICKS, Admission, ConcurrencyController, EngineLoad, Permit

CALM = EngineLoad(running=8, waiting=0, kv_use=0.5, queue_s=0.0)
QUEUED = EngineLoad(running=8, waiting=9, kv_use=0.5, queue_s=9.0)
FULL = EngineLoad(running=8, waiting=0, kv_use=0.99, queue_s=0.0)


def controller_of(start: int, *, lowest: int = 1, highest: int = 100) -> ConcurrencyController:
    return ConcurrencyController(start=start, lowest=lowest, highest=highest)


def test_the_limit_rises_by_one_while_it_is_used_and_not_otherwise() -> None:
    controller = controller_of(10)
    for _ in range(5):
        controller.observe(CALM, is_used=True)
    assert controller.limit == 15
    for _ in range(5):
        controller.observe(CALM, is_used=False)
    assert controller.limit == 15


@pytest.mark.parametrize("load", [QUEUED, FULL])
def test_congestion_lowers_it_at_once_and_once_in_a_while(load: EngineLoad) -> None:
    controller = controller_of(100)
    limits = []
    for _ in range(COOLDOWN_TICKS + 1):
        controller.observe(load, is_used=True)
        limits.append(controller.limit)
    assert limits == [70] * COOLDOWN_TICKS + [49]


@given(st.lists(st.tuples(st.sampled_from([CALM, QUEUED, FULL]), st.booleans()), max_size=200))
def test_the_limit_stays_in_its_bounds(history: list[tuple[EngineLoad, bool]]) -> None:
    controller = controller_of(4, lowest=2, highest=9)
    for load, is_used in history:
        controller.observe(load, is_used=is_used)
        assert 2 <= controller.limit <= 9


def test_what_an_engine_does_not_say_is_no_congestion() -> None:
    controller = controller_of(3)
    controller.observe(EngineLoad(running=3, waiting=0), is_used=True)
    assert controller.limit == 4


class Crowd:
    """Attempts that come, act and leave when told to."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.permits: dict[str, Permit] = {}
        self.order: list[str] = []
        self._leaves: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, family: str = "f", *, expected_s: float = 0.0) -> None:
        self._leaves[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._stay(name, family, expected_s))
        await self.settle()

    async def _stay(self, name: str, family: str, expected_s: float) -> None:
        async with self.admission.admit(family, expected_s=expected_s) as permit:
            self.permits[name] = permit
            self.order.append(name)
            await self._leaves[name].wait()
        del self.permits[name]

    async def leave(self, name: str) -> None:
        self._leaves[name].set()
        await self.settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    async def end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def admission_of(limit: int, *, max_live: int = 100, weights: dict[str, float] | None = None) -> Admission:
    return Admission(controller_of(limit, highest=limit), max_live=max_live, weights=weights)


async def test_an_attempt_that_acts_lets_another_one_to_the_engine_up_to_the_sandboxes_there_are() -> None:
    crowd = Crowd(admission_of(2, max_live=3))
    for name in "abcd":
        await crowd.come(name)
    assert crowd.order == ["a", "b"]
    with crowd.permits["a"].generating():
        assert crowd.admission.num_generating == 2
    await crowd.settle()
    assert crowd.order == ["a", "b", "c"]
    with crowd.permits["b"].generating():
        pass
    await crowd.settle()
    assert crowd.order == ["a", "b", "c"], "three sandboxes live"
    with crowd.permits["a"].generating(), crowd.permits["b"].generating():
        assert crowd.admission.num_generating == 3, "who comes back from its sandbox is not kept waiting"
        await crowd.leave("c")
        assert crowd.order == ["a", "b", "c"]
    await crowd.settle()
    assert crowd.order == ["a", "b", "c", "d"]
    await crowd.end()
    assert (crowd.admission.num_live, crowd.admission.num_generating) == (0, 0)


async def test_of_families_whose_turn_it_is_the_one_with_long_attempts_is_first_and_inside_who_came_first() -> None:
    crowd = Crowd(admission_of(1))
    await crowd.come("now", "x")
    await crowd.come("short", "s", expected_s=1.0)
    await crowd.come("long", "l", expected_s=60.0)
    await crowd.come("long too", "l", expected_s=61.0)
    for name in ("now", "long"):
        await crowd.leave(name)
    assert crowd.order[:2] == ["now", "long"]
    await crowd.leave(crowd.order[-1])
    await crowd.leave(crowd.order[-1])
    assert sorted(crowd.order[2:]) == ["long too", "short"]
    await crowd.end()


async def test_families_share_by_weight_and_by_tokens() -> None:
    crowd = Crowd(admission_of(1, weights={"big": 3.0}))
    await crowd.come("first", "other")
    for number in range(40):
        await crowd.come(f"big {number}", "big")
        await crowd.come(f"small {number}", "small")
    for _ in range(40):
        name = crowd.order[-1]
        crowd.permits[name].charge(100)
        await crowd.leave(name)
    taken = Counter(name.partition(" ")[0] for name in crowd.order[1:])
    assert abs(taken["big"] - 3 * taken["small"]) <= 4
    await crowd.end()


async def test_a_family_that_comes_late_has_no_claim_on_the_past() -> None:
    crowd = Crowd(admission_of(1))
    await crowd.come("first", "old")
    for number in range(20):
        await crowd.come(f"old {number}", "old")
    for _ in range(10):
        name = crowd.order[-1]
        crowd.permits[name].charge(1000)
        await crowd.leave(name)
    for number in range(20):
        await crowd.come(f"new {number}", "new")
    for _ in range(8):
        name = crowd.order[-1]
        crowd.permits[name].charge(1000)
        await crowd.leave(name)
    late = Counter(name.partition(" ")[0] for name in crowd.order[-8:])
    assert late["old"] >= 3
    await crowd.end()


async def test_who_is_cancelled_takes_no_place_along() -> None:
    crowd = Crowd(admission_of(1))
    for name in "abc":
        await crowd.come(name)
    await crowd.cancel("b")
    await crowd.leave("a")
    assert crowd.order == ["a", "c"]
    await crowd.cancel("c")
    await crowd.come("d")
    assert crowd.order == ["a", "c", "d"]
    await crowd.end()
    assert (crowd.admission.num_live, crowd.admission.num_generating, crowd.admission.num_waiting) == (0, 0, 0)


async def test_a_higher_limit_admits_at_once() -> None:
    admission = Admission(controller_of(1, highest=2), max_live=9)
    crowd = Crowd(admission)
    await crowd.come("a")
    await crowd.come("b")
    admission.observe(CALM)
    await crowd.settle()
    assert crowd.order == ["a", "b"]
    await crowd.end()


@given(
    weights=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=4),
    costs=st.lists(st.integers(1, 50), min_size=2, max_size=4),
    limit=st.integers(1, 3),
)
def test_no_family_starves_whatever_the_weights(weights: list[float], costs: list[int], limit: int) -> None:
    """While all families always have someone waiting, each is served again after a bounded number of others."""

    async def history() -> list[str]:
        names = [f"f{number}" for number in range(len(weights))]
        crowd = Crowd(admission_of(limit, weights=dict(zip(names, weights, strict=True))))
        for turn in range(120):
            for name in names:
                await crowd.come(f"{name} {turn}", name)
            for done in list(crowd.permits)[:1]:
                crowd.permits[done].charge(costs[int(done[1]) % len(costs)])
                await crowd.leave(done)
        await crowd.end()
        return [name.partition(" ")[0] for name in crowd.order]

    served = asyncio.run(history())
    # a family of weight w and cost c is behind after c / w; the others serve at most that much by their own measure
    slowest = max((max(costs) + 1) / weight for weight in weights)
    fastest = min((min(costs) + 1) / weight for weight in weights)
    bound = limit * len(weights) * (slowest / fastest + 2) + 3  # who is admitted has not been charged yet
    for family in {f"f{number}" for number in range(len(weights))}:
        places = [place for place, name in enumerate(served) if name == family]
        gaps = [after - before for before, after in zip([-1, *places], [*places, len(served)], strict=False)]
        assert max(gaps) <= bound


def test_weights_must_be_above_0() -> None:
    with pytest.raises(ValueError, match="'x' must be above 0"):
        admission_of(1, weights={"x": 0.0})
