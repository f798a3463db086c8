"""Whole runs of the conductor with a scripted policy and a fake learner, and with parts that break (I1, I2, I8)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from burnish.attempts import AttemptRunner
from burnish.conductor import Conductor
from burnish.config import AgentConfig, FlowConfig, RunConfig, TrainConfig
from burnish.engine.base import Engine
from burnish.engine.restart import RestartingEngine
from burnish.errors import BoundaryError, EngineError, LearnerError, SandboxError
from burnish.flow.journal import Journal, read_journal
from burnish.flow.ledger import Account, Books, ResumePoint, closed_groups, resume_point
from burnish.flow.manifest import Commits
from burnish.flow.verify import verify_run
from burnish.observe.emit import Event, attached
from burnish.observe.schema import validate
from burnish.parts import Parts
from burnish.run_dir import RunDir
from burnish.sandbox import make_backend
from burnish.sandbox.base import SandboxBackend, SandboxBox, Snapshot
from burnish.sandbox.network import NetworkPolicy
from burnish.store import RunStore
from burnish.testing import CharRenderer, FakeLearner, ScriptedEngine, make_task_set
from burnish.types import Limits, Measured, Sampling, Task, Unmeasured

pytestmark = pytest.mark.namespaces
TASKS = make_task_set(4)


def sometimes_right(prompt: str, sampling: Sampling) -> str:
    """Every group has both kinds of answer: right for even seeds."""
    assert sampling.seed is not None
    name, n = prompt.partition("`plus_")[2].partition("(")[0], sampling.seed % 2
    return f"```python\ndef plus_{name}(x):\n    return x + {name} + {n}\n```"


@dataclass
class Stage:
    """A run directory, sandboxes, and the events of what happens on them."""

    run: RunDir
    backend: SandboxBackend
    store: RunStore
    events: list[Event] = field(default_factory=list)

    async def conductor(
        self,
        engine: Engine,
        learner: FakeLearner,
        journal: Journal,
        *,
        num_steps: int = 3,
        backend: SandboxBackend | None = None,
        resume: bool = False,
        retries: int = 1,
        **flow: Any,
    ) -> Conductor:
        config = RunConfig(
            name="t",
            agent=AgentConfig(max_turns=1),
            flow=FlowConfig(
                **{"groups_per_step": 2, "group_size": 4, "max_attempt_retries": retries, "max_refills": 0, **flow}
            ),
            train=TrainConfig(num_steps=num_steps, checkpoint_every=2),
        )
        parts = Parts(
            config=config,
            train=TASKS,
            heldout=TASKS,
            renderer=CharRenderer(),
            backend=backend or self.backend,
            engine=engine,
            learner=learner,
        )
        commits = await Commits.read(self.store)
        point = ResumePoint()
        if resume:
            point = await resume_point(read_journal(self.store), commits.manifests)
            point.write(journal)
        return Conductor(parts, self.run, point=point, commits=commits, journal=journal)

    async def committed(self) -> tuple[int, str | None]:
        last = (await Commits.read(self.store)).last
        return (last.step, last.checkpoint) if last else (0, None)

    async def accounts(self) -> dict[str, Account]:
        books = Books(on_problem=pytest.fail)
        await books.read(read_journal(self.store))
        return books.accounts

    async def play(self, conductor: Conductor) -> str:
        with attached(self.events.append):
            async with asyncio.timeout(20):
                return await conductor.run(deadline=None)

    def told(self, name: str) -> list[Event]:
        return [event for event in self.events if event["event"] == name]


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    backend = make_backend("process")
    run = RunDir.create(RunConfig(name="t"), tmp_path / "run")
    stage = Stage(run=run, backend=backend, store=run.open_store(None))
    yield stage
    await backend.close()
    run.close()
    for event in stage.events:
        validate(event)


@pytest_asyncio.fixture
async def journal(stage: Stage) -> AsyncIterator[Journal]:
    async with await Journal.open(stage.store) as journal:
        yield journal


async def test_a_run_trains_commits_and_accounts_for_every_group(stage: Stage, journal: Journal) -> None:
    """I2: every group of the journal is closed by exactly one step."""
    learner = FakeLearner()
    engine = ScriptedEngine(sometimes_right)
    assert await stage.play(await stage.conductor(engine, learner, journal)) == "completed"
    assert [version for _, version in engine.updates] == [1, 2, 3]
    assert await stage.committed() == (3, "step-000003")
    assert (stage.run.checkpoints / "step-000003" / "weights").read_text() == "3"
    trained = Counter(id for batch in learner.batches for id in batch.trajectory_ids)
    assert len(trained) == 3 * 2 * 4
    assert set(trained.values()) == {1}
    closed = closed_groups((await Commits.read(stage.store)).manifests)
    assert sorted(closed) == list(range(6))
    found = await verify_run(stage.store)
    assert (found.findings, found.fates, found.num_open) == ([], {"trained": 24}, 0)
    assert [event["lag_max"] for event in stage.told("step.end")] == [0, 0, 0]
    assert len(stage.told("attempt.end")) == 24


async def test_lag_lets_generation_run_ahead_and_no_token_is_older(stage: Stage, journal: Journal) -> None:
    learner = FakeLearner()
    await stage.play(await stage.conductor(ScriptedEngine(sometimes_right), learner, journal, num_steps=5, max_lag=2))
    for batch in learner.batches:
        versions = [v for row in batch.rows for v, m in zip(row.versions, row.loss_mask, strict=True) if m]
        assert batch.step - 2 <= min(versions) <= max(versions) <= batch.step


async def test_engine_death_is_survived_with_the_newest_weights(stage: Stage, journal: Journal) -> None:
    """Row 8: the attempts it took with it are tried again, and none of them is in the books as a failure."""
    engines: list[ScriptedEngine] = []

    async def start(path: Path, version: int) -> Engine:
        engines.append(ScriptedEngine(dying if len(engines) == 0 else sometimes_right, version=version))
        return engines[-1]

    def dying(prompt: str, sampling: Sampling) -> str:
        if engines[0].num_requests == 11:  # in the second step
            engines[0].die()
        return sometimes_right(prompt, sampling)

    engine = await RestartingEngine.start(start, path=stage.run.path, version=0)
    learner = FakeLearner()
    assert await stage.play(await stage.conductor(engine, learner, journal, retries=2)) == "completed"
    assert [event["version"] for event in stage.told("engine.restart")] == [1]
    assert stage.told("attempt.retry")
    assert {event["boundary"] for event in stage.told("attempt.retry")} == {"engine"}
    assert all(event["reward"] is not None for event in stage.told("attempt.end"))
    assert all(len(batch.trajectory_ids) == 8 for batch in learner.batches)
    await engine.close()


async def test_an_engine_that_keeps_dying_ends_the_run_with_that_cause(stage: Stage, journal: Journal) -> None:
    async def start(path: Path, version: int) -> Engine:
        engine = ScriptedEngine(sometimes_right, version=version)
        engine.die()
        return engine

    engine = await RestartingEngine.start(start, path=stage.run.path, version=0)
    learner = FakeLearner()
    with pytest.raises(EngineError, match=r"in a row could not be measured.*killed by signal 9"):
        await stage.play(await stage.conductor(engine, learner, journal))
    assert (learner.batches, await stage.committed()) == ([], (0, None))


class FlakyBackend:
    """Sandboxes of which every n-th cannot be created, and for one task never."""

    name, level = "flaky", "process"

    def __init__(self, inner: SandboxBackend, every: int) -> None:
        self._inner, self._every, self._num = inner, every, 0

    async def create(
        self, *, limits: Limits = Limits(), network: NetworkPolicy | None = None, snapshot: Snapshot | None = None
    ) -> SandboxBox:
        self._num += 1
        if self._num % self._every == 0:
            raise SandboxError("create: host died", evidence="signal 9")
        return await self._inner.create(limits=limits, network=network, snapshot=snapshot)

    async def close(self) -> None:
        await self._inner.close()


async def test_sandbox_deaths_are_in_no_reward_baseline_or_observation(stage: Stage, journal: Journal) -> None:
    """Row 8, without retries: groups get smaller, their advantages are those of the measured members alone."""
    learner = FakeLearner()
    flaky = FlakyBackend(stage.backend, every=5)
    await stage.play(await stage.conductor(ScriptedEngine(sometimes_right), learner, journal, backend=flaky, retries=0))  # type: ignore[arg-type]
    broken = [event for event in stage.told("attempt.end") if event["boundary"] == "sandbox"]
    assert broken
    assert all(event["reward"] is None and event["passed"] is None for event in broken)
    attempts = [a.attempt for a in (await stage.accounts()).values() if a.attempt is not None]
    outcomes = {a.trajectory.id: a.outcome for a in attempts}
    for batch in learner.batches:
        assert all(isinstance(outcomes[id], Measured) for id in batch.trajectory_ids)
        for row in batch.rows:
            assert abs(sum(set_of_sequences(row.advantages, row.segments))) < 1e-4
    unmeasured = [a for a in attempts if isinstance(a.outcome, Unmeasured)]
    assert {a.outcome.cause for a in unmeasured if isinstance(a.outcome, Unmeasured)} == {"create: host died"}
    assert all(a.trajectory.steps == () for a in unmeasured)


def set_of_sequences(advantages: tuple[float, ...], segments: tuple[int, ...]) -> list[float]:
    """One advantage per trained segment."""
    return list({s: a for s, a in zip(segments, advantages, strict=True) if a != 0.0}.values())


async def test_a_grader_that_raises_is_no_reward(
    stage: Stage, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 8: a broken grader for one task; the others train on."""

    class Broken:
        def __init__(self, inner: AttemptRunner) -> None:
            self._inner = inner.grader

        async def grade(self, task: Task, solution: str | None, /) -> Measured:
            if task.id == TASKS.tasks[0].id:
                raise ZeroDivisionError("a bug in a grader")
            return await self._inner.grade(task, solution)

    original = Parts.attempt_runner

    def with_broken_grader(parts: Parts, **options: Any) -> AttemptRunner:
        return replace(original(parts, **options), grader=Broken(original(parts)), max_retries=0)

    monkeypatch.setattr(Parts, "attempt_runner", with_broken_grader)
    learner = FakeLearner()
    await stage.play(await stage.conductor(ScriptedEngine(sometimes_right), learner, journal))
    broken = [event for event in stage.told("attempt.end") if event["task_id"] == TASKS.tasks[0].id]
    assert broken
    assert all(event["reward"] is None and "a bug in a grader" in event["cause"] for event in broken)
    assert {event["reason"] for event in stage.told("drop")} == {"too_few_measured"}
    trained = {id.partition(".")[0] for batch in learner.batches for id in batch.trajectory_ids}
    assert not trained & {event["group_id"] for event in broken}


async def test_learner_death_ends_the_run_and_leaves_the_last_commit(stage: Stage, journal: Journal) -> None:
    with pytest.raises(LearnerError, match="killed by signal 9"):
        await stage.play(
            await stage.conductor(ScriptedEngine(sometimes_right), FakeLearner(fails_at=3), journal, num_steps=9)
        )
    assert await stage.committed() == (2, "step-000002")


async def test_a_crashed_run_goes_on_where_it_was_committed(stage: Stage, journal: Journal) -> None:
    """I2 across a crash after step 3 of which step 2 was committed."""
    first = FakeLearner(fails_at=3)
    with pytest.raises(BoundaryError):
        await stage.play(await stage.conductor(ScriptedEngine(sometimes_right), first, journal, num_steps=5))
    await journal.flush()
    step, _ = await stage.committed()
    async with await Journal.open(stage.store) as again:
        second = FakeLearner(version=step)
        resumed = await stage.conductor(
            ScriptedEngine(sometimes_right, version=2), second, again, num_steps=5, resume=True
        )
        assert await stage.play(resumed) == "completed"
    committed = [id for batch in first.batches[:step] + second.batches for id in batch.trajectory_ids]
    assert max(Counter(committed).values()) == 1
    assert {id.partition(".")[0] for id in committed} == {f"g{index:06d}" for index in range(10)}, "none skipped"
    found = await verify_run(stage.store)
    assert (found.findings, found.num_groups, found.num_open, found.num_lives) == ([], 10, 0, 2)


async def test_stop_ends_after_the_step_and_commits_it(stage: Stage, journal: Journal) -> None:
    learner = FakeLearner()
    conductor = await stage.conductor(ScriptedEngine(sometimes_right), learner, journal, num_steps=50)

    def stop_in_step_three(event: Event) -> None:
        if event["event"] == "step.end" and event["step"] == 3:
            conductor.stop()

    with attached(stop_in_step_three):
        assert await stage.play(conductor) == "interrupted"
    assert (await stage.committed())[0] == conductor.step == len(learner.batches)
    assert 3 <= conductor.step < 6
