"""Random histories of the whole flow, crashes included: I1, I2, I3 and I8 hold in every one of them.

The machine turns the real dispatcher, gate, buffer, journal and commits by hand: attempts end when a rule says so, the
learner steps, the publisher publishes, the run commits, and at any moment everything that is in memory is lost and a
resume goes on from the store. In the end the books are checked from the store alone.

`BURNISH_HISTORIES=10000` runs as many; the default is for every day.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from burnish.bookkeeping import Bookkeeper, leftovers
from burnish.errors import SandboxError
from burnish.flow.admission import Admission, ConcurrencyController
from burnish.flow.buffer import GroupBuffer, Judged, StepGroups, num_fresh_tokens
from burnish.flow.dispatch import Dispatcher, attempt_or_unmeasured
from burnish.flow.gate import LagGate
from burnish.flow.group import GroupRules, Ticket
from burnish.flow.journal import Journal, read_journal
from burnish.flow.ledger import ResumePoint, closed_groups, resume_point
from burnish.flow.manifest import Commits
from burnish.flow.packing import make_batch
from burnish.flow.source import TaskSource, group_index
from burnish.flow.verify import verify_run
from burnish.reward.advantage import advantages
from burnish.store import RunStore
from burnish.testing import make_attempt, make_task_set
from burnish.types import Attempt, Measured, Step

TASKS = make_task_set(3).tasks
GROUP_SIZE = 2
NUM_HISTORIES = int(os.environ.get("BURNISH_HISTORIES", "60"))

Act = Callable[[Ticket, list[Step], "asyncio.Future[float | None]"], None]


class Life:
    """The parts of one life of a run; what a crash loses."""

    def __init__(
        self, machine: "FlowMachine", point: ResumePoint, commits: Commits, journal: Journal, *, rules: GroupRules
    ) -> None:
        lag, per_step = machine.max_lag, machine.groups_per_step
        self.step, self.engine_version = point.step, point.step
        self.commits, self.journal = commits, journal
        self.books = Bookkeeper(journal, commits, max_lag=lag, life=point.life)
        self.gate = LagGate(groups_per_step=per_step, max_lag=lag, version=point.step)
        self.buffer = GroupBuffer(
            groups_per_step=per_step,
            max_lag=lag,
            advantage_fn=partial(advantages, estimator="grpo"),
            on_closed=self._on_dropped,
        )
        self.running: dict[str, tuple[Ticket, list[Step], asyncio.Future[float | None]]] = {}
        self.to_publish: list[tuple[int, list[int]]] = []
        self.dispatcher = Dispatcher(
            source=TaskSource(len(TASKS), seed=machine.seed, closed=point.closed),
            tasks=TASKS,
            gate=self.gate,
            rules=rules,
            admission=Admission(ConcurrencyController(start=5, highest=5), max_live=5),
            attempt=lambda ticket: attempt_or_unmeasured(self._attempt, ticket, max_retries=0, timeout_s=600),
            on_begin=self.books.begin,
            on_attempt=lambda _, attempt: self.books.end(attempt),
            on_group=self.buffer.put,
            opened=point.groups,
            room=journal.room,
        )
        self.task = machine.loop.create_task(self.dispatcher.run())

    async def _attempt(self, ticket: Ticket) -> Attempt:
        """Waits for a reward; None is an infrastructure failure."""
        steps = list(ticket.steps)
        ending: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
        self.running[ticket.id] = (ticket, steps, ending)
        try:
            reward = await ending
        finally:
            del self.running[ticket.id]
        if reward is None:
            raise SandboxError("host died")
        attempt = make_attempt(id=ticket.id, reward=reward)
        trajectory = replace(attempt.trajectory, task_id=ticket.task.id, family=ticket.task.family, steps=tuple(steps))
        return replace(attempt, trajectory=trajectory)

    def _on_dropped(self, judged: Judged) -> None:
        self.books.dropped(judged)
        self.gate.release([group_index(judged.group.id)])


class FlowMachine(RuleBasedStateMachine):
    """See the head of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = RunStore.at("memory:///")
        self.life: Life | None = None

    @initialize(
        max_lag=st.integers(0, 2),
        groups_per_step=st.integers(1, 2),
        oversample=st.integers(0, 1),
        max_refills=st.integers(0, 2),
        seed=st.integers(0, 99),
    )
    def begin(self, max_lag: int, groups_per_step: int, oversample: int, max_refills: int, seed: int) -> None:
        self.max_lag, self.groups_per_step, self.seed = max_lag, groups_per_step, seed
        self.rules_of_groups = GroupRules(
            group_size=GROUP_SIZE, oversample=oversample, max_refills=max_refills, seed=seed
        )
        self._live(ResumePoint())

    @property
    def now(self) -> Life:
        assert self.life is not None
        return self.life

    @rule(which=st.integers(0, 9), answer=st.integers(1, 3), saved=st.booleans())
    def take_turn(self, which: int, answer: int, saved: bool) -> None:
        def turn(ticket: Ticket, steps: list[Step], _: Any) -> None:
            step = make_attempt(answers=((4,) * answer,), versions=(self.now.engine_version,)).trajectory.steps[0]
            steps.append(replace(step, snapshot="sha256:x" if saved else None))
            self.now.books.step(ticket.id, len(steps) - 1, steps[-1])

        self._with_attempt(which, turn)

    @rule(which=st.integers(0, 9), reward=st.sampled_from([0.0, 1.0, 1.0, None]))
    def end_attempt(self, which: int, reward: float | None) -> None:
        self._with_attempt(which, lambda ticket, steps, ending: ending.set_result(reward))

    @rule()
    def learn(self) -> None:
        """A step, when its groups are there. What it trains keeps every invariant."""
        life = self.now
        groups = life.buffer._try_take(life.step)
        if groups is None:
            return
        oldest = life.step - self.max_lag
        batch = make_batch(groups.trained, step=life.step, temperature=1.0, oldest=oldest)
        versions = [v for row in batch.rows for v, m in zip(row.versions, row.loss_mask, strict=True) if m]
        assert oldest <= min(versions) <= max(versions) <= life.step, "I3"
        self._check_baselines(groups, oldest)
        life.step += 1
        life.books.trained(groups, life.step, oldest=oldest)
        closed = [group_index(judged.group.id) for judged in (*groups.trained, *groups.dropped)]
        life.to_publish.append((life.step, closed))

    @precondition(lambda self: self.life and self.life.to_publish)
    @rule()
    def publish(self) -> None:
        version, closed = self.now.to_publish.pop(0)
        self.now.engine_version = version
        self.now.gate.release(closed)
        self.now.gate.published(version)
        self._settle()

    @rule()
    def flush(self) -> None:
        self.loop.run_until_complete(self.now.journal.flush())

    @rule()
    def commit(self) -> None:
        if self.now.step > self.now.commits.step:
            self.loop.run_until_complete(self.now.books.commit(step=self.now.step, checkpoint=f"{self.now.step}"))

    @rule(flushed=st.booleans())
    def crash(self, flushed: bool) -> None:
        """kill -9: memory is gone, and what had not been flushed with it."""
        if flushed:
            self.loop.run_until_complete(self.now.journal.flush())
        self._end_life()
        commits = self.loop.run_until_complete(Commits.read(self.store))
        point = self.loop.run_until_complete(resume_point(read_journal(self.store), commits.manifests))
        self._live(point)

    @invariant()
    def gate_holds_what_it_should(self) -> None:
        if self.life is not None:
            assert self.life.gate.num_held - len(self.life.buffer) <= self.life.gate.num_slots

    def teardown(self) -> None:
        """The run ends: everything that is open is dropped with a reason, and the books are clean."""
        if self.life is None:
            self.loop.close()
            return
        life = self.now
        self._end_life()
        for judged in leftovers(life.buffer.take_rest(), life.dispatcher.open_groups()):
            life.books.dropped(judged)
        self.loop.run_until_complete(life.books.commit(step=life.step, checkpoint="end", ended="completed"))
        found = self.loop.run_until_complete(verify_run(self.store))
        self.loop.close()
        assert found.findings == []
        assert found.num_open == 0, "I8: everything that began has a named end"
        assert found.num_attempts == sum(found.fates.values()), "I2: exactly once"

    def _live(self, point: ResumePoint) -> None:
        self.loop.run_until_complete(self._open(point))
        self._settle()

    async def _open(self, point: ResumePoint) -> None:
        journal = await Journal.open(self.store)
        commits = await Commits.read(self.store)
        if point.life:
            point.write(journal)
            await journal.flush()
        assert sorted(point.closed) == sorted(closed_groups(commits.manifests))
        self.life = Life(self, point, commits, journal, rules=self.rules_of_groups)

    def _end_life(self) -> None:
        self.now.task.cancel()
        self.loop.run_until_complete(asyncio.wait({self.now.task}))

    def _settle(self) -> None:
        """Until everybody waits for a rule."""
        for _ in range(12):
            self.loop.run_until_complete(asyncio.sleep(0))
        task = self.now.task
        if task.done():
            task.result()

    def _with_attempt(
        self, which: int, act: Callable[[Ticket, list[Step], "asyncio.Future[float | None]"], None]
    ) -> None:
        running = sorted(self.now.running)
        if running:
            act(*self.now.running[running[which % len(running)]])
            self._settle()

    def _check_baselines(self, groups: StepGroups, oldest: int) -> None:
        """I1: advantages are those of the measured members alone, and of all of them."""
        for judged in groups.trained:
            measured = [a for a in judged.group.attempts if isinstance(a.outcome, Measured)]
            rewards = [a.outcome.reward for a in measured if isinstance(a.outcome, Measured)]
            expected = advantages(rewards, estimator="grpo")
            assert expected is not None
            by_id = dict(zip((a.trajectory.id for a in measured), expected, strict=True))
            assert judged.advantages == tuple(by_id[t.id] for t in judged.trajectories)
            assert len(measured) <= GROUP_SIZE
            assert any(num_fresh_tokens(t, oldest) for t in judged.trajectories)
        ids = Counter(t.id for judged in groups.trained for t in judged.trajectories)
        assert not ids or max(ids.values()) == 1


FlowMachine.TestCase.settings = settings(
    max_examples=NUM_HISTORIES, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestFlowHistories = FlowMachine.TestCase
