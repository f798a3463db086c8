"""Tasks from the user's own file, each proved solvable before anybody trains on it."""

import ast
from collections.abc import Sequence
from pathlib import Path

from burnish.errors import UserError
from burnish.sandbox.evaluate import MAX_LITERAL_CHARS
from burnish.tasks.humaneval import task_from_row
from burnish.tasks.references import JOB_TIMEOUT_S, Job, Reply, run_references
from burnish.tasks.rows import HumanEvalRow, PlacedRow, TaskRow, case_parts, read_rows
from burnish.types import Case, Hidden, Limits, Task


def load_jsonl(path: Path, *, job_timeout_s: float = JOB_TIMEOUT_S) -> list[tuple[Task, Hidden]]:
    """The tasks in the order of the file. Expected values that a row leaves out come from its reference.

    Raises UserError with file and line for a row that is malformed, repeats an id, has a reference that crashes, hangs
    or gives no plain data, or states a value that its reference does not give.
    """
    rows = read_rows(_read_text(path), where=str(path))
    replies = run_references([_job(placed.row) for placed in rows], job_timeout_s=job_timeout_s)
    for placed, reply in zip(rows, replies, strict=False):  # replies end with the first that took the process down
        if reply.error is not None:
            raise UserError(f"row {placed.row.id!r}: {reply.error}", where=placed.where)
    return [_finish(placed, reply) for placed, reply in zip(rows, replies, strict=True)]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 text: {error}", where=str(path)) from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _job(row: TaskRow | HumanEvalRow) -> Job:
    if isinstance(row, HumanEvalRow):
        _, hidden = task_from_row(row)
        return Job(
            entry_point=row.entry_point, reference=hidden.reference, check=hidden.check, preamble=hidden.preamble
        )
    exprs = tuple(case_parts(case)[0] for case in (*row.examples, *row.hidden))
    return Job(entry_point=row.entry_point, reference=row.reference, exprs=exprs, files=row.files)


def _finish(placed: PlacedRow, reply: Reply) -> tuple[Task, Hidden]:
    row = placed.row
    if isinstance(row, HumanEvalRow):
        return task_from_row(row)
    num_examples = len(row.examples)
    task = Task(
        id=row.id,
        family=row.family or row.id,
        instruction=row.instruction,
        entry_point=row.entry_point,
        band=row.band,
        examples=_proved(placed, row.examples, reply.values[:num_examples]),
        files=row.files,
        limits=Limits(**row.limits.model_dump(exclude_none=True)),
        network=row.network.model_dump(exclude_none=True),
    )
    cases = _proved(placed, row.hidden, reply.values[num_examples:])
    return task, Hidden(task_id=row.id, reference=row.reference, cases=cases)


def _proved(placed: PlacedRow, cases: Sequence[str | list[str]], values: Sequence[str]) -> tuple[Case, ...]:
    """The cases with the reference's values. Raises UserError where the row states another value."""
    proved = []
    for case, value in zip(cases, values, strict=True):
        expr, stated = case_parts(case)
        if stated is not None and ast.literal_eval(stated) != ast.literal_eval(value):
            cause = f"row {placed.row.id!r}: the reference gives {value} for {expr}, but the row states {stated}"
            raise UserError(cause, where=placed.where)
        if len(value) > MAX_LITERAL_CHARS:
            cause = f"row {placed.row.id!r}: the value of {expr} takes {len(value)} characters"
            raise UserError(cause, where=placed.where, fix=f"at most {MAX_LITERAL_CHARS} are compared")
        proved.append(Case(expr=expr, expected=value))
    return tuple(proved)
