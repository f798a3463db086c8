"""The quickstart's agent: answer with a Python code block, see what the visible examples say, try again."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from burnish.rollout.render import Message
from burnish.sandbox.base import SandboxBox
from burnish.sandbox.evaluate import Answer, evaluate_cases
from burnish.types import Action, Task

_BLOCK = re.compile(r"```(?:[pP]ython3?|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
MAX_SHOWN = 160  # characters of one value or error in an observation


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What acting led to: the text for the model, and whether the attempt is finished."""

    text: str
    passed_visible: bool


class Agent(Protocol):
    """How one kind of task is attempted. Three functions; the loop does the rest."""

    def open(self, task: Task, /) -> Sequence[Message]:
        """The conversation before the first answer."""
        ...

    def parse(self, text: str, /) -> Action:
        """What the answer asks to be done. Never raises: any text is an answer."""
        ...

    async def act(self, box: SandboxBox, task: Task, action: Action, /) -> Observed:
        """Does it. Raises SandboxError when the sandbox failed; a program that fails is an observation."""
        ...


class CodeAgent:
    """One Python code block per turn, checked against the task's visible examples."""

    # An answer ends where its first block does: what would follow is never read, so it is not worth sampling, and a
    # reward for the block says nothing about it.
    stop_strings = ("\n```\n",)

    def open(self, task: Task, /) -> Sequence[Message]:
        lines = [task.instruction]
        if task.examples:
            lines += ["", "Examples:", *(f"{case.expr} == {case.expected}" for case in task.examples)]
        lines += ["", "Answer with one Python code block only."]
        return [{"role": "user", "content": "\n".join(lines)}]

    def parse(self, text: str, /) -> Action:
        """The first fenced block; a block that was never closed counts, since the token limit may have cut it."""
        match = _BLOCK.search(text)
        if match is None or not match[1].strip():
            return Action(kind="none", text="")
        return Action(kind="code", text=match[1])

    async def act(self, box: SandboxBox, task: Task, action: Action, /) -> Observed:
        if action.kind == "none":
            return Observed(
                text="I found no Python code block. Answer with one Python code block.", passed_visible=False
            )
        answers = await evaluate_cases(box, action.text, [case.expr for case in task.examples], files=task.files)
        lines = [
            _describe(case.expr, case.expected, answer)
            for case, answer in zip(task.examples, answers, strict=True)
            if not answer.equals(case.expected)
        ]
        if not lines:
            return Observed(text="All examples pass.", passed_visible=True)
        text = "\n".join(
            ["Your code was run:", *dict.fromkeys(lines), "Fix it. Answer with one Python code block only."]
        )
        return Observed(text=text, passed_visible=False)


def _describe(expr: str, expected: str, answer: Answer) -> str:
    if answer.value is not None:
        return f"{expr} returned {_short(answer.value)}, expected {_short(expected)}"
    return f"{_short(answer.error or 'no answer')}"


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
