"""The quickstart's agent in a real sandbox, with a scripted policy."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from burnish.rollout.agent import CodeAgent
from burnish.rollout.loop import RolloutSetup, run_rollout
from burnish.sandbox import make_backend
from burnish.sandbox.base import SandboxBackend
from burnish.testing import STOP_ID, CharRenderer, ScriptedEngine, make_task_set
from burnish.types import Limits, Sampling, Task, Trajectory

pytestmark = pytest.mark.namespaces
TASK = make_task_set(1).tasks[0]


@pytest_asyncio.fixture
async def backend() -> AsyncIterator[SandboxBackend]:
    backend = make_backend("process")
    yield backend
    await backend.close()


async def attempt(backend: SandboxBackend, answers: list[str], task: Task = TASK) -> Trajectory:
    left = iter(answers)
    setup = RolloutSetup(
        generate=ScriptedEngine(lambda prompt, sampling: next(left)).generate,
        backend=backend,
        renderer=CharRenderer(),
        agent=CodeAgent(),
        sampling=Sampling(max_new_tokens=500, stop_ids=(STOP_ID,)),
        max_turns=len(answers),
        max_context_tokens=10_000,
    )
    return await run_rollout(setup, task, id="g000000.0", group_id="g000000", seed=0)


async def test_the_observation_is_what_really_happened(backend: SandboxBackend) -> None:
    trajectory = await attempt(
        backend,
        [
            "no code here",
            "```python\ndef plus_0(x):\n    return y\n```",
            "```python\ndef plus_0(x):\n    return x + 1\n```",
            "```python\ndef plus_0(x):\n    return x\n```",
        ],
    )
    seen = [step.observation or "" for step in trajectory.steps]
    assert "no Python code block" in seen[0]
    assert "NameError: name 'y' is not defined" in seen[1]
    assert "plus_0(1) returned 2, expected 1" in seen[2]
    assert trajectory.stop_reason == "passed_visible"
    assert all(step.usage.act_s > 0 for step in trajectory.steps[1:])


async def test_a_program_that_hangs_is_an_observation(backend: SandboxBackend) -> None:
    task = Task(
        id="t/hang", family="t", instruction="", entry_point="plus_0", examples=TASK.examples, limits=Limits(wall_s=0.5)
    )
    trajectory = await attempt(backend, ["```python\nwhile True: pass\n```"], task)
    assert "was stopped after" in (trajectory.steps[0].observation or "")


async def test_files_of_the_task_are_there(backend: SandboxBackend) -> None:
    task = Task(
        id="t/file",
        family="t",
        instruction="",
        entry_point="f",
        examples=TASK.examples[:0],
        files={"data/words.txt": "alpha beta"},
    )
    from_file = "```python\nassert open('data/words.txt').read() == 'alpha beta'\n```"
    assert (await attempt(backend, [from_file], task)).stop_reason == "passed_visible"
