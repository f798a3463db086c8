"""Execution ids against a model: whatever callers do, a command that has a name is begun at most once."""

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from burnish.errors import SandboxError
from burnish.sandbox.base import ExecResult
from burnish.sandbox.fleet.executions import ExecutionLost, Executions

IDS = st.sampled_from("abc")


class OnceMachine(RuleBasedStateMachine):
    """Callers that ask, ask again and give up, while commands end, fail, and the sandbox dies."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.executions = Executions("s")
        self.running: dict[str, asyncio.Future[ExecResult]] = {}
        self.num_begun: dict[str, int] = {}
        self.results: dict[str, ExecResult] = {}
        self.lost: set[str] = set()
        self.callers: list[tuple[str, asyncio.Task[Any]]] = []

    def teardown(self) -> None:
        async def end() -> None:
            await self.executions.cancel()
            for _, caller in self.callers:
                caller.cancel()
            await asyncio.gather(*(caller for _, caller in self.callers), return_exceptions=True)

        self.loop.run_until_complete(end())
        self.loop.close()

    def _settle(self) -> None:
        for _ in range(5):
            self.loop.run_until_complete(asyncio.sleep(0))

    @rule(id=IDS)
    def ask(self, id: str) -> None:
        async def command() -> ExecResult:
            self.num_begun[id] = self.num_begun.get(id, 0) + 1
            self.running[id] = self.loop.create_future()
            return await self.running[id]

        self.callers.append((id, self.loop.create_task(self.executions.run(id, {"cmd": id}, command))))
        self._settle()

    @precondition(lambda self: self.callers)
    @rule(number=st.integers(0, 99))
    def give_up(self, number: int) -> None:
        self.callers[number % len(self.callers)][1].cancel()
        self._settle()

    @rule(id=IDS)
    def end(self, id: str) -> None:
        if id in self.running and not self.running[id].done():
            number = str(len(self.results)).encode()
            self.results[id] = ExecResult(
                exit_code=0, signal=None, stdout=number, stderr=b"", timed_out=False, limit_hit=None, wall_s=0.0,
                dropped_bytes=0,
            )  # fmt: skip
            self.running[id].set_result(self.results[id])
            self._settle()

    @rule(id=IDS)
    def fail(self, id: str) -> None:
        if id in self.running and not self.running[id].done():
            self.running[id].set_exception(SandboxError("it died"))
            self.lost.add(id)
            self._settle()

    @invariant()
    def nothing_runs_twice(self) -> None:
        assert all(number == 1 for number in self.num_begun.values())

    @invariant()
    def every_answer_is_the_one_that_is(self) -> None:
        for id, caller in self.callers:
            if not caller.done() or caller.cancelled():
                assert caller.cancelled() or (id not in self.results and id not in self.lost)
            elif (error := caller.exception()) is not None:
                assert isinstance(error, ExecutionLost) and id in self.lost
            else:
                assert caller.result() == self.results[id]


TestOnce = OnceMachine.TestCase
TestOnce.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
