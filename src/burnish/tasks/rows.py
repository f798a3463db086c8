"""Rows of JSON lines files: what they may hold, and what is wrong with one that holds something else.

Two shapes are read. Ours: `id, instruction, entry_point, reference, examples, hidden`, and optionally `family, band,
files, limits, network`. HumanEval's: `task_id, prompt, entry_point, canonical_solution, test`.

Example, on one line of the file: {"id": "add", "instruction": "Write `add(a, b)`, the sum.", "entry_point": "add",
"reference": "def add(a, b):\\n    return a + b", "examples": ["add(2, 3)"], "hidden": [["add(0, 5)", "5"]]}
"""

import ast
import difflib
import json
import keyword
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from burnish.errors import UserError
from burnish.sandbox.network import PhasePolicies
from burnish.types import Band

Text = Annotated[str, Field(min_length=1)]
CaseRow = Text | Annotated[list[Text], Field(min_length=2, max_length=2)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LimitsRow(_Model):
    """Any of the fields of `burnish.types.Limits`; what is left out keeps its default."""

    wall_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_bytes: Annotated[int, Field(gt=0)] | None = None
    num_pids: Annotated[int, Field(gt=0)] | None = None
    output_bytes: Annotated[int, Field(gt=0)] | None = None
    disk_bytes: Annotated[int, Field(gt=0)] | None = None
    num_cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    cpu_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class NetworkRow(_Model):
    """What the sandboxes of a phase may reach, as in docs/sandbox.md. A phase that is left out has no network."""

    act: list[Text] | None = None
    grade: list[Text] | None = None


class _EntryPoint(_Model):
    entry_point: Text

    @field_validator("entry_point")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not value.isidentifier() or keyword.iskeyword(value):
            raise ValueError("must be the name of the function or class to write")
        return value


class TaskRow(_EntryPoint):
    """One task of a user's file; the meaning of each field is that of `burnish.types.Task` and `Hidden`."""

    id: Text
    instruction: Text
    reference: Text
    examples: list[CaseRow]
    hidden: Annotated[list[CaseRow], Field(min_length=1)]
    family: Text | None = None  # left out, the task is a family of its own
    band: Band = "easy"
    files: dict[str, str] = Field(default_factory=dict)
    limits: LimitsRow = LimitsRow()
    network: NetworkRow = NetworkRow()

    @field_validator("files")
    @classmethod
    def _stay_inside(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            path = PurePosixPath(name)
            if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
                raise ValueError(f"paths must be relative and stay inside the sandbox's folder, not {name!r}")
        return value


class HumanEvalRow(_EntryPoint):
    """One row as published: github.com/openai/human-eval."""

    task_id: Text
    prompt: Text
    canonical_solution: Text
    test: Text

    @field_validator("test")
    @classmethod
    def _defines_check(cls, value: str) -> str:
        try:
            module = ast.parse(value)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"not Python: {error}") from error
        if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in module.body):
            raise ValueError("must define check(candidate)")
        return value

    @property
    def id(self) -> str:
        return self.task_id


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedRow:
    """A row that has the right keys and types, and where it stands.

    Example: PlacedRow(where="tasks.jsonl:3", row=row)
    """

    where: str
    row: TaskRow | HumanEvalRow


def read_rows(text: str, *, where: str) -> list[PlacedRow]:
    """The rows of a JSON lines text; blank lines are skipped.

    Raises UserError with `where` and the line number for the first row that is not one, or repeats an id.
    """
    rows: list[PlacedRow] = []
    first_place: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        placed = PlacedRow(where=f"{where}:{number}", row=_read_row(line, f"{where}:{number}"))
        if placed.row.id in first_place:
            cause = f"the id {placed.row.id!r} stands already at {first_place[placed.row.id]}"
            raise UserError(cause, where=placed.where, fix="give every row an id of its own")
        first_place[placed.row.id] = placed.where
        rows.append(placed)
    if not rows:
        raise UserError(
            "holds no rows", where=where, fix=f"one JSON object per line with the keys {_required(TaskRow)}"
        )
    return rows


def case_parts(case: str | list[str]) -> tuple[str, str | None]:
    """The expression of a case and its stated value, None where the reference is to say."""
    return (case, None) if isinstance(case, str) else (case[0], case[1])


def _read_row(line: str, where: str) -> TaskRow | HumanEvalRow:
    try:
        value = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not a JSON object: {error}", where=where, fix="one JSON object per line") from error
    if not isinstance(value, dict):
        cause = f"a row must be a JSON object, not {_shown(value)}"
        raise UserError(cause, where=where, fix=f"required keys: {_required(TaskRow)}")
    shape = _shape(value)
    try:
        row = shape.model_validate(value)
    except ValidationError as error:
        raise _explained(error, shape, value, where) from error
    if isinstance(row, TaskRow):
        _check_expressions(row, where)
        _check_network(row, where)
    return row


def _shape(value: dict[str, Any]) -> type[TaskRow | HumanEvalRow]:
    """The shape that shares more keys with the row, so that one misspelt key is measured against the right list."""
    ours, published = (len(model.model_fields.keys() & value.keys()) for model in (TaskRow, HumanEvalRow))
    return TaskRow if ours >= published else HumanEvalRow


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} stands twice")
        seen[key] = value
    return seen


def _check_expressions(row: TaskRow, where: str) -> None:
    for key, case in _cases(row):
        expr, expected = case_parts(case)
        try:
            names = {node.id for node in ast.walk(ast.parse(expr, mode="eval")) if isinstance(node, ast.Name)}
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            cause = f"row {row.id!r}: {key}: {_shown(expr)} is not a Python expression: {error}"
            raise UserError(cause, where=where) from error
        if row.entry_point not in names:
            cause = f"row {row.id!r}: {key}: {_shown(expr)} does not use {row.entry_point}; any answer would pass it"
            raise UserError(cause, where=where, fix=f"write a call such as {row.entry_point}(1)")
        if expected is not None:
            _check_literal(expected, f"row {row.id!r}: {key}", where)


def _check_network(row: TaskRow, where: str) -> None:
    try:
        PhasePolicies.parse(row.network.model_dump(exclude_none=True))
    except UserError as error:
        cause = f"row {row.id!r}: {error.where}: {error.cause}"
        raise UserError(cause, where=where, fix=error.fix) from error


def _check_literal(expected: str, what: str, where: str) -> None:
    try:
        ast.literal_eval(expected)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        cause = f"{what}: the expected value {_shown(expected)} is not a Python literal"
        fix = f"for the text {expected} write {json.dumps(repr(expected))}; or give the expression alone"
        raise UserError(cause, where=where, fix=fix) from error


def _cases(row: TaskRow) -> Iterator[tuple[str, str | list[str]]]:
    for key, cases in (("examples", row.examples), ("hidden", row.hidden)):
        for index, case in enumerate(cases):
            yield f"{key}[{index}]", case


def _explained(error: ValidationError, shape: type[_Model], value: dict[str, Any], where: str) -> UserError:
    """The most telling of a row's mistakes: an unknown key before the missing one that it was meant to be."""
    problems = error.errors()
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    path = problem["loc"]
    row_id = value.get("id", value.get("task_id"))
    prefix = f"row {row_id!r}: " if isinstance(row_id, str) else ""
    parts: dict[int | str, type[_Model]] = {"limits": LimitsRow, "network": NetworkRow}
    owner = parts.get(path[0], shape) if len(path) > 1 else shape
    name = ".".join(map(str, path))
    if problem["type"] == "extra_forbidden":
        known = list(owner.model_fields)
        close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return UserError(f"{prefix}unknown key {name!r}", where=where, fix=f"{hint}allowed: {', '.join(known)}")
    if problem["type"] == "missing":
        return UserError(f"{prefix}the key {name!r} is missing", where=where, fix=f"required keys: {_required(shape)}")
    given = _shown(problem["input"])
    if path[0] in ("examples", "hidden") and len(path) > 1:
        place = f"{path[0]}[{path[1]}]"
        allowed = "an expression, or a pair [expression, expected value], all of it Python source in JSON texts"
        return UserError(f"{prefix}{place} is {given}", where=where, fix=f"allowed: {allowed}")
    message = problem["msg"].removeprefix("Value error, ")
    return UserError(f"{prefix}{name!r} is {given}: {message}", where=where)


def _required(shape: type[_Model]) -> str:
    return ", ".join(name for name, field in shape.model_fields.items() if field.is_required())


def _shown(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
