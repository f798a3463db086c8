"""An engine that stands still is named and killed; one that works, waits or is dead already is left alone."""

import asyncio

import pytest

from burnish.engine.base import EngineStats
from burnish.errors import EngineError
from burnish.observe.emit import Event, attached
from burnish.testing import FakeClock, ScriptedEngine
from burnish.watch import EngineWatch


class Shown(ScriptedEngine):
    """An engine whose figures are set by hand."""

    def __init__(self) -> None:
        super().__init__(lambda prompt, sampling: "")
        self.shown = EngineStats(running=0, waiting=0, num_generated_tokens=0)
        self.killed: list[str] = []
        self.hangs = False

    async def stats(self) -> EngineStats:
        if self.hangs:
            await asyncio.sleep(3600)
        if self.death is not None:
            raise self.death
        return self.shown

    async def kill(self, cause: str, /) -> None:
        self.killed.append(cause)
        await super().kill(cause)


async def watched(engine: Shown, moments: list[tuple[float, EngineStats]]) -> list[Event]:
    """Looks after so many seconds each, at these figures."""
    clock = FakeClock()
    watch = EngineWatch(engine, stall_timeout_s=60.0, clock=clock)
    events: list[Event] = []
    with attached(events.append):
        for seconds, engine.shown in moments:
            clock.advance(seconds)
            await watch.look()
    return events


def figures(tokens: int, *, running: int = 4, waiting: int = 2) -> EngineStats:
    return EngineStats(running=running, waiting=waiting, num_generated_tokens=tokens)


async def test_requests_without_a_token_for_too_long_end_the_engine_with_that_cause() -> None:
    engine = Shown()
    events = await watched(engine, [(2, figures(10)), (30, figures(10)), (29, figures(10)), (2, figures(10))])
    assert engine.killed == ["6 requests and no token for 60 s"]
    assert engine.death is not None
    assert "6 requests and no token" in engine.death.cause
    told = [event for event in events if event["event"] == "watchdog"]
    assert [(event["watched"], event["action"]) for event in told] == [("engine", "kill")]


@pytest.mark.parametrize(
    "moments",
    [
        [(59, figures(10)), (59, figures(11)), (59, figures(12))],  # slow, but it samples
        [(600, figures(10, running=0, waiting=0)), (600, figures(10, running=0, waiting=0))],  # nothing to do
        [(2, figures(10)), (50, figures(10)), (50, figures(10, running=0, waiting=0)), (50, figures(10))],
    ],
)
async def test_an_engine_that_works_or_has_nothing_to_do_is_left_alone(
    moments: list[tuple[float, EngineStats]],
) -> None:
    engine = Shown()
    await watched(engine, moments)
    assert engine.killed == []


async def test_an_engine_that_does_not_even_answer_is_ended() -> None:
    engine = Shown()
    engine.hangs = True
    await EngineWatch(engine, stall_timeout_s=0.01).look()
    assert engine.killed == ["does not answer for 0.01 s"]


async def test_a_dead_engine_is_not_killed_again_and_the_next_one_has_its_whole_time() -> None:
    engine = Shown()
    clock = FakeClock()
    watch = EngineWatch(engine, stall_timeout_s=60.0, clock=clock)
    engine.shown = figures(10)
    await watch.look()
    engine.die()
    clock.advance(100)
    await watch.look()
    engine._death = None  # restarted
    clock.advance(50)
    await watch.look()
    assert engine.killed == []


async def test_what_it_sees_is_told_as_a_rate() -> None:
    events = await watched(Shown(), [(2, figures(100)), (4, figures(180))])
    assert [event["tokens_per_s"] for event in events if event["event"] == "engine.stats"] == [0.0, 20.0]


async def test_a_killed_engine_fails_its_requests_with_the_cause() -> None:
    engine = ScriptedEngine(lambda prompt, sampling: "x")
    await engine.kill("no token for 60 s")
    with pytest.raises(EngineError, match="killed, since it hung: no token for 60 s"):
        await engine.stats()
