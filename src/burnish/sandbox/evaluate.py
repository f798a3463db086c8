"""Evaluates Python expressions against a solution inside a sandbox and brings back plain data.

The solution's interpreter never learns what is expected and never says "passed": it only answers expressions, and the
answers cross to our process as text of Python literals. Whoever compares them shares no interpreter with the solution
(I5). An answer the solution forges is still only an answer.
"""

import ast
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from burnish.sandbox.base import ExecResult, SandboxBox

REL_TOL = 1e-6  # floats are compared like HumanEval's tests do
MAX_LITERAL_CHARS = 20_000  # longer answers are wrong; keeps a hostile literal from costing us time

# Runs inside the sandbox, with nothing of burnish there. Results go to the original stdout, one JSON line each, as soon
# as they exist; everything the solution prints goes to stderr, so that it cannot be mistaken for an answer by accident.
_DRIVER = r"""
import json, os, sys

request = json.load(sys.stdin)
results = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.setrecursionlimit(3000)
PLAIN = (type(None), bool, int, float, str)


def plain(value):
    kind = type(value)
    if kind is float:
        return value - value == 0
    if kind in PLAIN:
        return True
    if kind in (list, tuple, set):
        return all(map(plain, value))
    return kind is dict and all(plain(k) and plain(v) for k, v in value.items())


def say(**line):
    print(json.dumps(line), file=results, flush=True)


def named(error):
    text = f"{type(error).__name__}: {error}"
    return text[:300]


scope = {"__name__": "solution", "__builtins__": __builtins__}
try:
    exec(compile(request["source"], "solution.py", "exec"), scope)
except BaseException as error:
    say(fatal=named(error))
    results.close()
    os._exit(0)
for index, expr in enumerate(request["exprs"]):
    try:
        value = eval(compile(expr, "example", "eval"), scope)
        if plain(value):
            say(index=index, value=repr(value))
        else:
            say(index=index, error=f"{expr[:100]} gave a {type(value).__name__} that is not plain data")
    except BaseException as error:
        say(index=index, error=named(error))
results.close()
os._exit(0)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one expression came to: the text of a literal, or why there is none.

    Example: Answer(value="[1, 2]"), Answer(error="ZeroDivisionError: division by zero")
    """

    value: str | None = None
    error: str | None = None

    def equals(self, expected: str) -> bool:
        """Python's == on plain data, floats with a tolerance of 1e-6. Anything odd is False, never an error."""
        if self.value is None or len(self.value) > MAX_LITERAL_CHARS:
            return False
        try:
            return _same(ast.literal_eval(self.value), ast.literal_eval(expected))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return False


async def evaluate_cases(
    box: SandboxBox, source: str, exprs: Sequence[str], *, files: Mapping[str, str] | None = None
) -> list[Answer]:
    """One answer per expression, in order, from one interpreter that runs `source` first.

    A solution that crashes, exits, hangs or floods leaves answers with the reason as `error`.

    Raises:
        SandboxError: the sandbox failed, which says nothing about the solution.
    """
    for path, text in (files or {}).items():
        await box.files.write(path, text)
    request = json.dumps({"source": source, "exprs": list(exprs)})
    result = await box.commands.run(["python3", "-I", "-S", "-B", "-c", _DRIVER], stdin=request.encode())
    return _read_answers(result, len(exprs))


def _read_answers(result: ExecResult, num: int) -> list[Answer]:
    missing = Answer(error=_why_missing(result))
    answers = [missing] * num
    for line in result.stdout.splitlines():
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            continue  # written by the solution, not by the driver
        if not isinstance(message, dict):
            continue
        if isinstance(message.get("fatal"), str):
            return [Answer(error=message["fatal"])] * num
        index = message.get("index")
        if isinstance(index, int) and 0 <= index < num and answers[index] is missing:
            value, error = message.get("value"), message.get("error")
            if isinstance(value, str):
                answers[index] = Answer(value=value)
            elif isinstance(error, str):
                answers[index] = Answer(error=error)
    return answers


def _why_missing(result: ExecResult) -> str:
    if result.timed_out:
        return f"the program was stopped after {result.wall_s:.0f} seconds"
    if result.limit_hit is not None:
        return f"the program hit its {result.limit_hit} limit"
    if result.signal is not None:
        return f"the program was ended by signal {result.signal}"
    return "the program ended without an answer"


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
            return False
        return math.isclose(a, b, rel_tol=REL_TOL, abs_tol=REL_TOL)
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        assert isinstance(b, (list, tuple))
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    return a == b
