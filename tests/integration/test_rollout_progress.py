"""An attempt goes on: after a failed try, in another process, and under newer weights."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from burnish.errors import EngineError, SandboxError
from burnish.rollout.agent import Observed
from burnish.rollout.loop import RolloutSetup, run_rollout
from burnish.rollout.progress import Progress, Saves, SnapshotKeeper
from burnish.rollout.render import Message
from burnish.sandbox import make_backend
from burnish.sandbox.base import SandboxBackend, SandboxBox, Snapshot
from burnish.sandbox.memory import MemoryBackend
from burnish.sandbox.objects import ObjectStore
from burnish.store import RunStore
from burnish.testing import CharRenderer, ScriptedEngine, make_task_set
from burnish.types import Action, Completion, Limits, Sampling, Step, Task

TASK = make_task_set(1).tasks[0]


@pytest.fixture(autouse=True)
def save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is time to save depends on how long saving takes, which is not what these tests are about."""
    monkeypatch.setattr("burnish.rollout.progress.SAVE_SHARE", 1e9)


class Notebook:
    """An agent that writes each answer into a file of its sandbox and shows all of them."""

    def __init__(self, fails_at: Sequence[int] = ()) -> None:
        self.fails_at = list(fails_at)  # calls of `act`, counted from 0
        self.num_acts = 0

    def open(self, task: Task, /) -> Sequence[Message]:
        return [{"role": "user", "content": "count"}]

    def parse(self, text: str, /) -> Action:
        return Action(kind="code", text=text)

    async def act(self, box: SandboxBox, task: Task, action: Action, /) -> Observed:
        self.num_acts += 1
        if self.num_acts - 1 in self.fails_at:
            raise SandboxError("sandbox died")
        known = await box.files.read("notes") if await box.files.exists("notes") else b""
        await box.files.write("notes", known + action.text.encode())
        return Observed(text=(known + action.text.encode()).decode(), passed_visible=False)


class DictKeeper:
    """Saves snapshots in a dictionary, and counts."""

    def __init__(self, backend: SandboxBackend) -> None:
        self._backend = backend
        self.saved: dict[str, Snapshot] = {}

    async def save(self, box: SandboxBox, attempt_id: str) -> str:
        name = f"{attempt_id}/{len(self.saved)}"
        self.saved[name] = await box.snapshot()
        return name

    async def open(self, name: str, attempt_id: str, limits: Limits) -> Snapshot:
        return self.saved[name]

    async def forget(self, attempt_id: str) -> None:
        self.saved.clear()


def setup_of(agent: Notebook, engine: ScriptedEngine, *, keep: bool = True) -> tuple[RolloutSetup, DictKeeper]:
    backend = MemoryBackend()
    keeper = DictKeeper(backend)
    setup = RolloutSetup(
        generate=engine.generate,
        backend=backend,
        renderer=CharRenderer(),
        agent=agent,
        sampling=Sampling(max_new_tokens=20),
        max_turns=3,
        max_context_tokens=10_000,
        keeper=keeper if keep else None,
    )
    return setup, keeper


def answers() -> ScriptedEngine:
    count = iter("abcdefgh")
    return ScriptedEngine(lambda prompt, sampling: next(count))


def texts(steps: Sequence[Step]) -> list[str]:
    return [CharRenderer().decode(step.output_ids) for step in steps]


async def test_a_sandbox_that_died_is_opened_again_where_it_was_saved_and_its_turn_is_not_sampled_twice() -> None:
    agent, engine = Notebook(fails_at=[1]), answers()
    setup, _ = setup_of(agent, engine)
    progress = Progress()
    with pytest.raises(SandboxError):
        await run_rollout(setup, TASK, id="g0.0", group_id="g0", seed=1, progress=progress)
    trajectory = await run_rollout(setup, TASK, id="g0.0", group_id="g0", seed=1, progress=progress)
    assert texts(trajectory.steps) == ["a", "b", "c"]
    assert [step.observation for step in trajectory.steps] == ["a", "ab", "abc"], "the file of the first turn is there"
    assert engine.num_requests == 3


async def test_without_a_keeper_a_failed_try_begins_anew() -> None:
    agent, engine = Notebook(fails_at=[1]), answers()
    setup, _ = setup_of(agent, engine, keep=False)
    progress = Progress()
    with pytest.raises(SandboxError):
        await run_rollout(setup, TASK, id="g0.0", group_id="g0", seed=1, progress=progress)
    trajectory = await run_rollout(setup, TASK, id="g0.0", group_id="g0", seed=1, progress=progress)
    assert [step.observation for step in trajectory.steps] == ["c", "cd", "cde"]


async def test_another_process_goes_on_from_the_recorded_steps_with_the_very_same_tokens() -> None:
    """I4: what was seen and sampled is taken from the record, not rendered again."""
    agent, engine = Notebook(), answers()
    setup, _ = setup_of(agent, engine)
    told: list[tuple[int, Step]] = []
    whole = await run_rollout(
        setup, TASK, id="g0.0", group_id="g0", seed=1, progress=Progress(on_step=lambda *step: told.append(step))
    )
    assert [number for number, _ in told] == [0, 1, 2]
    assert [step.snapshot is not None for _, step in told] == [True, True, False], "nothing follows the last turn"
    prompts: list[str] = []
    again = ScriptedEngine(lambda prompt, sampling: prompts.append(prompt) or "b")  # type: ignore[func-returns-value]
    resumed = Progress([step for _, step in told[:2]])
    trajectory = await run_rollout(
        replace(setup, generate=again.generate), TASK, id="g0.0", group_id="g0", seed=1, progress=resumed
    )
    assert trajectory.steps[:2] == whole.steps[:2]
    assert trajectory.steps[2].observation == "abb"
    assert trajectory.steps[2].prompt_ids == whole.steps[2].prompt_ids
    assert len(prompts) == 1


async def test_new_weights_recut_a_turn_that_is_past_the_lag_bound_and_no_other() -> None:
    release = asyncio.Event()
    asked = 0

    async def ask() -> Completion:
        nonlocal asked
        asked += 1
        number = asked
        await release.wait()
        return Completion(token_ids=(number,), logprobs=(0.0,), versions=(0,), finish="stop")

    progress = Progress(version=3)
    turn = asyncio.create_task(progress.generate(ask))
    while not asked:  # noqa: ASYNC110 (a plain counter)
        await asyncio.sleep(0)
    assert not progress.published(4, oldest=3)
    assert not progress.published(4)
    assert progress.published(5, oldest=4)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not progress.published(6, oldest=5), "the turn was begun again by version 5"
    release.set()
    assert (await turn).token_ids == (2,)


async def test_cancelling_an_attempt_cancels_its_request() -> None:
    ended: list[str] = []

    async def ask() -> Completion:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")
        raise AssertionError

    turn = asyncio.create_task(Progress().generate(ask))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert ended == ["cancelled"]


async def test_an_engine_that_fails_is_asked_again() -> None:
    async def fail() -> Completion:
        raise EngineError("died")

    async def answer() -> Completion:
        return Completion(token_ids=(7,), logprobs=(0.0,), versions=(0,), finish="stop")

    progress = Progress()
    with pytest.raises(EngineError):
        await progress.generate(fail)
    assert (await progress.generate(answer)).token_ids == (7,)


async def test_a_sandbox_too_large_to_save_often_is_saved_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("burnish.rollout.progress.SAVE_SHARE", 0.1)
    monkeypatch.setattr("burnish.rollout.progress.time.monotonic", lambda: now[0])

    class Slow(DictKeeper):
        async def save(self, box: SandboxBox, attempt_id: str) -> str:
            now[0] += 5.0
            return await super().save(box, attempt_id)

    backend = MemoryBackend()
    saves = Saves(Slow(backend), "g0.0")
    saved = []
    async with await backend.create() as box:
        for _ in range(12):
            saved.append(await saves.save(box) is not None)
            now[0] += 10.0
    assert saved == [True, *[False] * 4, True, *[False] * 4, True, False]
    await backend.close()


@pytest.mark.namespaces
async def test_a_saved_sandbox_outlives_its_backend(tmp_path: object) -> None:
    """As after a kill -9: the files come from the store into a sandbox of another host."""
    store = RunStore.at(str(tmp_path))

    def keeper_of(backend: SandboxBackend) -> SnapshotKeeper:
        return SnapshotKeeper(
            backend,
            store_of=lambda id: ObjectStore.at(f"{tmp_path}/snapshots/{id}"),
            forget=lambda id: store.delete_under(f"snapshots/{id}"),
        )

    first = make_backend("process")
    async with await first.create() as box:
        await box.files.write("notes", "kept")
        name = await keeper_of(first).save(box, "g0.0")
    await first.close()
    second = make_backend("process")
    keeper = keeper_of(second)
    snapshot = await keeper.open(name, "g0.0", Limits())
    async with await second.create(snapshot=snapshot) as box:
        assert await box.files.read("notes") == b"kept"
    await snapshot.release()
    await keeper.forget("g0.0")
    assert await store.list("snapshots") == []
    await second.close()
