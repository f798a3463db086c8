"""One attempt: what is appended, when it stops, and who is to blame when it breaks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from burnish.errors import EngineError, PolicyError, SandboxError
from burnish.rollout.agent import CodeAgent, Observed
from burnish.rollout.loop import RolloutSetup, last_code, run_rollout
from burnish.rollout.render import Message
from burnish.sandbox.base import SandboxBox
from burnish.testing import STOP_ID, AnswerFn, CharRenderer, MemoryBackend, ScriptedEngine, make_task_set
from burnish.types import Action, Sampling, Task, Trajectory

TASK = make_task_set(1).tasks[0]


@dataclass
class EchoAgent:
    """Acts by looking the answer up: "good" passes, "none" is no action, anything else is wrong."""

    seen: list[str] = field(default_factory=list)
    raises: Exception | None = None

    def open(self, task: Task, /) -> Sequence[Message]:
        return [{"role": "user", "content": task.instruction}]

    def parse(self, text: str, /) -> Action:
        return Action(kind="none", text="") if text == "none" else Action(kind="code", text=text)

    async def act(self, box: SandboxBox, task: Task, action: Action, /) -> Observed:
        if self.raises is not None:
            raise self.raises
        self.seen.append(action.text)
        return Observed(text=f"saw {action.text}", passed_visible=action.text == "good")


async def attempt(
    answer: AnswerFn,
    *,
    agent: EchoAgent | None = None,
    max_turns: int = 3,
    max_new_tokens: int = 20,
    context: int = 1000,
) -> tuple[Trajectory, ScriptedEngine]:
    engine = ScriptedEngine(answer, version=7)
    backend = MemoryBackend()
    setup = RolloutSetup(
        generate=engine.generate,
        backend=backend,
        renderer=CharRenderer(),
        agent=agent or EchoAgent(),
        sampling=Sampling(max_new_tokens=max_new_tokens, stop_ids=(STOP_ID,)),
        max_turns=max_turns,
        max_context_tokens=context,
    )
    try:
        return await run_rollout(setup, TASK, id="g000000.1", group_id="g000000", seed=3), engine
    finally:
        await backend.close()


async def test_it_stops_when_the_visible_examples_pass() -> None:
    answers = iter(["bad", "good", "never asked"])
    trajectory, engine = await attempt(lambda prompt, sampling: next(answers))
    assert (trajectory.stop_reason, engine.num_requests) == ("passed_visible", 2)
    assert [step.observation for step in trajectory.steps] == ["saw bad", "saw good"]
    assert last_code(trajectory.steps) == "good"
    assert (trajectory.id, trajectory.group_id, trajectory.task_id) == ("g000000.1", "g000000", TASK.id)


async def test_the_context_is_the_deltas_and_the_samples_and_nothing_else() -> None:
    """I4: what the engine sees at turn n is exactly what the steps record, token for token."""
    prompts: list[str] = []

    def answer(prompt: str, sampling: Sampling) -> str:
        prompts.append(prompt)
        return "x" * 30 if len(prompts) == 1 else "bad"

    trajectory, _ = await attempt(answer)
    context: list[int] = []
    for step, prompt in zip(trajectory.steps, prompts, strict=True):
        context += step.prompt_ids
        assert prompt == CharRenderer().decode(context)
        context += step.output_ids
    assert [step.finish for step in trajectory.steps] == ["length", "stop", "stop"]
    assert trajectory.steps[1].prompt_ids[0] == STOP_ID, "a cut answer is closed before the next question"
    assert trajectory.steps[2].prompt_ids[0] != STOP_ID, "an ended one already is"
    assert all(len(s.output_ids) == len(s.logprobs) == len(s.versions) for s in trajectory.steps)
    assert {v for s in trajectory.steps for v in s.versions} == {7}


async def test_turns_draw_different_seeds_and_the_same_attempt_the_same() -> None:
    seeds: list[int | None] = []

    def answer(prompt: str, sampling: Sampling) -> str:
        seeds.append(sampling.seed)
        return "bad"

    await attempt(answer, max_turns=2)
    await attempt(answer, max_turns=2)
    assert seeds[:2] == seeds[2:]
    assert len(set(seeds)) == 2


@pytest.mark.parametrize(
    ("answer", "reason"), [("bad", "max_turns"), ("none", "no_action"), ("good", "passed_visible")]
)
async def test_stop_reasons(answer: str, reason: str) -> None:
    trajectory, _ = await attempt(lambda prompt, sampling: answer)
    assert trajectory.stop_reason == reason


async def test_a_turn_that_would_not_fit_is_not_begun() -> None:
    room = len(CharRenderer().start(EchoAgent().open(TASK))) + 20
    trajectory, engine = await attempt(lambda prompt, sampling: "bad", context=room)
    assert (trajectory.stop_reason, len(trajectory.steps), engine.num_requests) == ("context_full", 1, 1)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(SandboxError("host died"), SandboxError), (ZeroDivisionError("our bug"), PolicyError)],
)
async def test_a_failure_while_acting_has_its_address_and_is_no_observation(
    raised: Exception, expected: type[Exception]
) -> None:
    """I1."""
    with pytest.raises(expected):
        await attempt(lambda prompt, sampling: "bad", agent=EchoAgent(raises=raised))


async def test_an_engine_failure_passes_as_it_is() -> None:
    def answer(prompt: str, sampling: Sampling) -> str:
        raise EngineError("worker process died")

    with pytest.raises(EngineError, match="worker process died"):
        await attempt(answer)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Sure:\n```python\nx = 1\n```\nDone", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1", "x = 1"),
        ("```python\na\n```\n```python\nb\n```", "a\n"),
        ("x = 1", None),
        ("```python\n\n```", None),
        ("", None),
    ],
)
def test_the_first_code_block_is_the_action(text: str, code: str | None) -> None:
    action = CodeAgent().parse(text)
    assert action == (Action(kind="none", text="") if code is None else Action(kind="code", text=code))


def test_the_prompt_shows_what_may_be_seen_and_no_more() -> None:
    (message,) = CodeAgent().open(TASK)
    assert TASK.instruction in message["content"]
    assert "plus_0(1) == 1" in message["content"]
    assert "plus_0(-5)" not in message["content"], "a hidden case"
