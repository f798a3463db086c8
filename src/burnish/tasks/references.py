"""Runs the references of a user's file, all in one interpreter that is not ours.

They are the user's own code on the user's own machine, so this is no sandbox: it keeps a reference that hangs, exits or
crashes the interpreter from doing so to us, and says which one it was.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from burnish.errors import StoreError, boundary
from burnish.tasks import answering

JOB_TIMEOUT_S = 10.0  # wall time for all expressions of one row
START_S = 30.0  # for the interpreter to come up and to end, on a busy machine


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One reference and what it is asked.

    Example: Job(entry_point="add", reference="def add(a, b): ...", exprs=("add(2, 3)",))
    """

    entry_point: str
    reference: str
    exprs: tuple[str, ...] = ()
    check: str | None = None
    preamble: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The literals, one per expression, or why there are none.

    Example: Reply(values=("5",)), Reply(error="the reference raised NameError: it does not define add")
    """

    values: tuple[str, ...] = ()
    error: str | None = None


def run_references(jobs: Sequence[Job], *, job_timeout_s: float = JOB_TIMEOUT_S) -> list[Reply]:
    """The replies in order. Ends early, with the culprit's reply as the last, when a reference took the process down.

    The interpreter is as bare as the one in the sandbox: no site packages, no environment variables of Python.

    Raises StoreError when no process or temporary folder can be made.
    """
    request = json.dumps([asdict(job) for job in jobs]).encode()
    command = [sys.executable, "-I", "-S", "-B", answering.__file__, str(job_timeout_s)]
    with (
        boundary(StoreError, during="run references"),
        tempfile.TemporaryDirectory(prefix="burnish-references-") as folder,
    ):
        output, code = _communicate(command, request, Path(folder), START_S + job_timeout_s * len(jobs))
    replies = [_reply(line) for line in output.splitlines()]
    if len(replies) < len(jobs):
        replies.append(Reply(error=f"the reference {_death(code, job_timeout_s)}"))
    return replies


def _communicate(command: list[str], request: bytes, folder: Path, timeout_s: float) -> tuple[bytes, int]:
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # so that what a reference started ends with it
    ) as process:
        try:
            output, _ = process.communicate(request, timeout=timeout_s)
        finally:
            _kill_session(process.pid)
        return output, process.returncode


def _kill_session(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # all of it has ended


def _reply(line: bytes) -> Reply:
    message = json.loads(line)
    return Reply(error=message["error"]) if "error" in message else Reply(values=tuple(message["values"]))


def _death(code: int, job_timeout_s: float) -> str:
    if code == -signal.SIGALRM:
        return f"did not finish within {job_timeout_s:g} s"
    if code < 0:
        return f"was ended by signal {signal.Signals(-code).name}"
    return f"ended its interpreter with exit code {code}"
