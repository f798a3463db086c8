"""Runs reference solutions: what they answer to expressions, and whether they pass a `check`.

The built-in references are ours and run in this process, once. A user's references run in a bare interpreter that is
given this very file by path, so that the file uses the standard library only: a JSON list of jobs on stdin, one JSON
line per job on stdout, in order. A job that hangs is ended by the alarm clock, together with the interpreter; the
parent sees that its line is missing.

A job: {"reference", "entry_point", "exprs", "check", "preamble", "files"}; a line: {"values"} or {"error"}.
"""

import json
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RECURSION_LIMIT = 3000  # as in the sandbox where solutions answer


def plain_repr(value: object) -> str:
    """The literal of a value made of None, bool, int, float, str, list, tuple, dict and set; sets in sorted order.

    `ast.literal_eval` gives the value back. One value has one text in every process, whatever the hash seed.

    Raises ValueError for anything else: other types, subclasses, infinities and nan.
    """
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) is list:
        return f"[{', '.join(map(plain_repr, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(plain_repr, value))}{',' if len(value) == 1 else ''})"
    if type(value) is set:
        return f"{{{', '.join(sorted(map(plain_repr, value)))}}}" if value else "set()"
    if type(value) is dict:
        return f"{{{', '.join(f'{plain_repr(k)}: {plain_repr(v)}' for k, v in value.items())}}}"
    shown = repr(value) if type(value) is float else f"a {type(value).__name__}"
    raise ValueError(f"{shown} is not plain data (None, bool, int, finite float, str, list, tuple, dict, set)")


def define(source: str, entry_point: str) -> dict[str, Any]:
    """The names that a solution's source defines. Raises what the source raises, NameError without the entry point."""
    scope: dict[str, Any] = {"__name__": "solution"}
    exec(compile(source, "solution.py", "exec"), scope)
    if entry_point not in scope:
        raise NameError(f"it does not define {entry_point}")
    return scope


def answer(scope: dict[str, Any], expr: str) -> str:
    """The literal that an expression gives. Raises what the expression raises, ValueError when it is not plain data."""
    return plain_repr(eval(compile(expr, "case", "eval"), scope))


def _run_check(scope: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    tests: dict[str, Any] = {"__name__": "check"}
    exec(compile(job["preamble"], "preamble.py", "exec"), tests)
    exec(compile(job["check"], "check.py", "exec"), tests)
    tests["check"](scope[job["entry_point"]])


def _enter_folder(place: Path, files: Mapping[str, str]) -> None:
    """Makes a fresh working directory that holds the task's public files."""
    place.mkdir()
    os.chdir(place)
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")


def _run_job(job: Mapping[str, Any], place: Path) -> dict[str, Any]:
    doing = "placing its files"
    try:
        _enter_folder(place, job["files"])
        doing = "the reference"
        scope = define(job["reference"], job["entry_point"])
        values = []
        for expr in job["exprs"]:
            doing = f"the reference, asked for {expr},"
            values.append(answer(scope, expr))
        if job["check"] is not None:
            doing = "the reference, run by the test,"
            _run_check(scope, job)
    except BaseException as error:  # noqa: BLE001 (this process lives to report; the parent names the row)
        text = str(error)[:500]
        return {"error": f"{doing} raised {type(error).__name__}{': ' if text else ''}{text}"}
    return {"values": values}


def _serve(jobs: Sequence[Mapping[str, Any]], job_timeout_s: float) -> None:
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a reference prints is not a result
    sys.setrecursionlimit(RECURSION_LIMIT)
    home = Path.cwd()
    for index, job in enumerate(jobs):
        signal.setitimer(signal.ITIMER_REAL, job_timeout_s)
        line = json.dumps(_run_job(job, home / str(index)))
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(line, file=results, flush=True)
    os._exit(0)  # threads and exit handlers of a reference have no say


if __name__ == "__main__":
    _serve(json.load(sys.stdin), float(sys.argv[1]))
