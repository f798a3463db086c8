"""What a task's phases may reach: the acting sandbox has the policy of `act`, the graded solution that of `grade`."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from burnish.errors import UserError
from burnish.parts import require_network
from burnish.reward.grade import HiddenTests
from burnish.rollout.agent import CodeAgent
from burnish.rollout.loop import RolloutSetup, run_rollout
from burnish.sandbox.base import SandboxBackend
from burnish.sandbox.memory import MemoryBackend
from burnish.sandbox.process.backend import ProcessBackend
from burnish.testing import STOP_ID, CharRenderer, ScriptedEngine
from burnish.types import Case, Hidden, Sampling, Task, TaskSet, Vault
from tests.integration._proxied import echo, serving

pytestmark = pytest.mark.namespaces
SOLUTION = """
import socket
def ask(target):
    try:
        with socket.create_connection(("127.0.0.1", 3128), timeout=5) as link:
            link.sendall(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode())
            return link.recv(4096).split()[1].decode()
    except ConnectionRefusedError:
        return "no proxy"
"""
TASK = Task(id="net/0", family="net", instruction="", entry_point="ask")


@pytest.fixture
async def backend() -> AsyncIterator[SandboxBackend]:
    async with ProcessBackend(pool=0) as backend:
        try:
            await backend.capabilities()
        except UserError as error:
            pytest.skip(str(error))
        yield backend


def cases(answers: dict[str, str]) -> tuple[Case, ...]:
    return tuple(Case(expr=f"ask({target!r})", expected=repr(answer)) for target, answer in answers.items())


async def acts(backend: SandboxBackend, task: Task, answers: dict[str, str]) -> bool:
    """Whether the sandbox in which the model acts gives these answers."""
    setup = RolloutSetup(
        generate=ScriptedEngine(lambda prompt, sampling: f"```python\n{SOLUTION}```").generate,
        backend=backend,
        renderer=CharRenderer(),
        agent=CodeAgent(),
        sampling=Sampling(max_new_tokens=2000, stop_ids=(STOP_ID,)),
        max_turns=1,
        max_context_tokens=10_000,
    )
    trajectory = await run_rollout(setup, replace(task, examples=cases(answers)), id="a", group_id="g", seed=0)
    return trajectory.stop_reason == "passed_visible"


async def grades(backend: SandboxBackend, task: Task, answers: dict[str, str], **hidden: Any) -> bool:
    """Whether the sandbox in which the solution is graded gives these answers."""
    vault = Vault({task.id: Hidden(task_id=task.id, reference=SOLUTION, cases=cases(answers), **hidden)})
    measured = await HiddenTests(vault=vault, backend=backend).grade(task, SOLUTION)
    return measured.reward == 1.0


async def test_each_phase_reaches_its_own(backend: SandboxBackend) -> None:
    async with serving(echo) as one, serving(echo) as two:
        first, second = f"127.0.0.1:{one}", f"127.0.0.1:{two}"
        task = replace(TASK, network={"act": [first], "grade": [second]})
        assert await acts(backend, task, {first: "200", second: "403"})
        assert await grades(backend, task, {first: "403", second: "200"})


async def test_a_phase_that_is_left_out_has_no_network(backend: SandboxBackend) -> None:
    async with serving(echo) as port:
        target = f"127.0.0.1:{port}"
        assert await acts(backend, TASK, {target: "no proxy"})
        assert await grades(backend, TASK, {target: "no proxy"})
        acting = replace(TASK, network={"act": [target]})
        assert await acts(backend, acting, {target: "200"})
        assert await grades(backend, acting, {target: "no proxy"})
        grading = replace(TASK, network={"grade": [target]})
        assert await acts(backend, grading, {target: "no proxy"})
        assert await grades(backend, grading, {target: "200"})


async def test_test_programs_have_no_network(backend: SandboxBackend) -> None:
    """They hold what is hidden; the network of `grade` is the solution's alone."""
    async with serving(echo) as port:
        target = f"127.0.0.1:{port}"
        task = replace(TASK, network={"grade": [target]})
        check = f"{SOLUTION}\ndef check(candidate):\n    assert ask({target!r}) == 'no proxy'\n"
        assert await grades(backend, task, {}, check=f"{check}    assert candidate({target!r})\n")


async def test_a_backend_without_networks_is_refused_before_the_run() -> None:
    backend = MemoryBackend()
    tasks = TaskSet(name="t", tasks=(TASK,), vault=Vault({}))
    await require_network(backend, tasks)
    with pytest.raises(UserError, match="task 'net/0' declares a network, which the memory backend does not have"):
        await require_network(backend, replace(tasks, tasks=(replace(TASK, network={"act": ["pypi.org"]}),)))
