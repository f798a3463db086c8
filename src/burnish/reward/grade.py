"""Grading by hidden tests, out of the policy's reach (I5).

Every attempt is graded in a sandbox made for this one grading. It receives the solution and expressions, never an
expected value; it answers, and the comparison happens here, on plain data. Tests that are programs (HumanEval's
`check`) run in a second sandbox of their own, see `replay.py`.
"""

from collections.abc import Sequence
from typing import Protocol

from burnish.errors import GraderError, boundary
from burnish.reward.replay import CheckReplayer
from burnish.sandbox.base import SandboxBackend
from burnish.sandbox.evaluate import Answer, evaluate_cases
from burnish.sandbox.network import policy_for
from burnish.types import Case, Hidden, Measured, Task, Vault

MAX_ROUNDS = 4  # a solution that leads a test to new questions this often is not answering the ones that were asked


class Grader(Protocol):
    """What an attempt was worth."""

    async def grade(self, task: Task, solution: str | None, /) -> Measured:
        """`solution` None: the attempt handed nothing in, which is measured too (and worth nothing).

        Raises GraderError or SandboxError when grading could not be done; never a reward for that.
        """
        ...


class HiddenTests:
    """Reward 1.0 when every hidden test and every visible example passes, else `partial` times the share that does.

    Scores: `hidden_passed` (0 or 1), `hidden_fraction` (share of cases answered right; absent for program tests).
    """

    def __init__(self, *, vault: Vault, backend: SandboxBackend, partial: float = 0.0) -> None:
        """Raises ValueError unless 0 <= partial < 1: a failed attempt must never be worth a solution."""
        if not 0.0 <= partial < 1.0:
            raise ValueError(f"partial must be in [0, 1), got {partial}")
        self._vault = vault
        self._partial = partial
        self._backend = backend
        self._replayer = CheckReplayer(backend)

    async def grade(self, task: Task, solution: str | None, /) -> Measured:
        with boundary(GraderError, during=f"grade {task.id}"):
            hidden = self._vault.open_hidden(task.id)
            if solution is None:
                return self._measured(passed=False, fraction=None if hidden.check else 0.0)
            if hidden.check is not None:
                return self._measured(passed=await self._passes_check(task, hidden, solution), fraction=None)
            return await self._grade_cases(task, (*hidden.cases, *task.examples), solution)

    async def _grade_cases(self, task: Task, cases: Sequence[Case], solution: str) -> Measured:
        if not cases:
            raise GraderError(f"task {task.id} has no tests")
        answers = await self._answers(task, solution, [case.expr for case in cases])
        right = sum(answer.equals(case.expected) for answer, case in zip(answers, cases, strict=True))
        return self._measured(passed=right == len(cases), fraction=right / len(cases))

    async def _passes_check(self, task: Task, hidden: Hidden, solution: str) -> bool:
        source = f"{hidden.preamble}\n{solution}"  # a solution may use the helpers and imports that it was shown
        calls = list(await self._replayer.record(task, hidden))
        for _ in range(MAX_ROUNDS):
            answers = await self._answers(task, source, [f"{task.entry_point}{arguments}" for arguments in calls])
            verdict = await self._replayer.replay(task, hidden, calls, answers)
            if verdict.strayed is None:
                return verdict.passed
            calls[verdict.position :] = [verdict.strayed]
        return False

    async def _answers(self, task: Task, solution: str, exprs: Sequence[str]) -> list[Answer]:
        network = policy_for(task.network, "grade")
        async with await self._backend.create(limits=task.limits, network=network) as box:
            return await evaluate_cases(box, solution, exprs, files=task.files)

    def _measured(self, *, passed: bool, fraction: float | None) -> Measured:
        scores = {"hidden_passed": float(passed)}
        if fraction is not None:
            scores["hidden_fraction"] = fraction
        return Measured(scores=scores, reward=1.0 if passed else self._partial * (fraction or 0.0))
