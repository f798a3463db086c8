"""Tests that are programs, run apart from the solution they judge.

A `check(candidate)` full of asserts normally shares an interpreter with the candidate, which may then return an object
that equals everything or rewrite the asserts. Here three processes take turns:

1. record: `check` runs with the reference as candidate and notes the arguments of every call (once per task);
2. answer: the solution, in its own sandbox, answers those calls with plain data;
3. replay: `check` runs again, with a candidate that hands out the recorded answers. Its asserts decide.

Random tests are seeded the same way in 1 and 3. Where a later call depends on an earlier answer, an answer that was
accepted and yet differs from the reference's leads to a question that was not recorded. The replay then names it, and
the grader asks the solution again.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from burnish.errors import GraderError
from burnish.sandbox.base import ExecResult, SandboxBackend
from burnish.sandbox.evaluate import Answer
from burnish.types import Hidden, Limits, Task

LIMITS = Limits(wall_s=20.0, output_bytes=4 << 20)  # trusted programs, but a test may loop over many inputs

_COMMON = r"""
import ast, copy, json, os, random, sys
request = json.load(sys.stdin)
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
random.seed(0)
scope = {"__name__": "check"}
exec(compile(request["preamble"], "preamble.py", "exec"), scope)
exec(compile(request["check"], "check.py", "exec"), scope)


def written(args, kwargs):
    parts = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    return "(" + ", ".join(parts) + ")"


def finish(**result):
    print(json.dumps(result), file=out, flush=True)
    os._exit(0)
"""

_RECORD = (
    _COMMON
    + r"""
reference = {"__name__": "reference"}
exec(compile(request["reference"], "reference.py", "exec"), reference)
calls = []


def candidate(*args, **kwargs):
    calls.append(written(args, kwargs))
    return reference[request["entry_point"]](*copy.deepcopy(args), **copy.deepcopy(kwargs))


scope["check"](candidate)
finish(calls=calls)
"""
)

_REPLAY = (
    _COMMON
    + r"""
calls, answers = request["calls"], request["answers"]
position = 0


def candidate(*args, **kwargs):
    global position
    call = written(args, kwargs)
    if position >= len(calls) or calls[position] != call:
        finish(passed=False, position=position, strayed=call)
    answer = answers[position]
    position += 1
    if answer is None:
        raise AssertionError("no answer")
    return ast.literal_eval(answer)


try:
    scope["check"](candidate)
except Exception as error:
    finish(passed=False, position=position, strayed=None)
finish(passed=position > 0, position=position, strayed=None)
"""
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a replay came to. `strayed` is the call at `position` that has no recorded answer, None when all had one."""

    passed: bool
    position: int
    strayed: str | None


class CheckReplayer:
    """Records and replays; remembers the calls of each task for the length of a run."""

    def __init__(self, backend: SandboxBackend) -> None:
        self._backend = backend
        self._calls: dict[str, tuple[str, ...]] = {}

    async def record(self, task: Task, hidden: Hidden) -> tuple[str, ...]:
        """The argument lists of every call that `check` makes, as source text such as `([1, 2], 3)`."""
        if task.id not in self._calls:
            request = _request(task, hidden) | {"reference": hidden.reference}
            result = await self._run(_RECORD, request, during=f"record {task.id}")
            self._calls[task.id] = tuple(result["calls"])
        return self._calls[task.id]

    async def replay(self, task: Task, hidden: Hidden, calls: Sequence[str], answers: Sequence[Answer]) -> Verdict:
        """Whether the asserts accept the answers, `answers[i]` being the solution's to `calls[i]`."""
        request = _request(task, hidden) | {"calls": list(calls), "answers": [answer.value for answer in answers]}
        result = await self._run(_REPLAY, request, during=f"replay {task.id}")
        return Verdict(passed=result["passed"], position=result["position"], strayed=result["strayed"])

    async def _run(self, program: str, request: dict[str, Any], *, during: str) -> dict[str, Any]:
        async with await self._backend.create(limits=LIMITS) as box:
            command = ["python3", "-I", "-S", "-B", "-c", program]
            result = await box.commands.run(command, stdin=json.dumps(request).encode())
        return _verdict(result, during)


def _request(task: Task, hidden: Hidden) -> dict[str, Any]:
    return {"preamble": hidden.preamble, "check": hidden.check, "entry_point": task.entry_point}


def _verdict(result: ExecResult, during: str) -> dict[str, Any]:
    try:
        verdict = json.loads(result.stdout)
    except ValueError:
        evidence = result.stderr.decode(errors="replace")
        raise GraderError(f"{during}: the test program gave no verdict", evidence=evidence) from None
    assert isinstance(verdict, dict)
    return verdict
