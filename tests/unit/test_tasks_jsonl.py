"""The user's own file of tasks: what a good row becomes, and what is said about a bad one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.errors import UserError
from burnish.tasks.jsonl import load_jsonl
from burnish.tasks.load import load_tasks
from burnish.tasks.rows import read_rows
from burnish.types import Case, Limits

ADD: dict[str, Any] = {
    "id": "add",
    "instruction": "Write a Python function `add(a, b)` that returns the sum.",
    "entry_point": "add",
    "reference": "def add(a, b):\n    print('noise on stdout')\n    return a + b\n",
    "examples": ["add(2, 3)"],
    "hidden": [["add(-1, 1)", "0"], "add('a', 'b')"],
}
PUBLISHED: dict[str, Any] = {
    "task_id": "mine/0",
    "prompt": 'def twice(n):\n    """Doubles n."""\n',
    "entry_point": "twice",
    "canonical_solution": "    return n * 2\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}


def write(folder: Path, *rows: Any) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def complaint(path: Path, **options: float) -> str:
    with pytest.raises(UserError) as caught:
        load_jsonl(path, **options)
    return str(caught.value)


def test_a_row_becomes_a_task_with_values_from_its_reference(tmp_path: Path) -> None:
    extra = {
        "family": "sums",
        "band": "medium",
        "limits": {"wall_s": 2, "num_pids": 8},
        "network": {"act": ["pypi.org:443"]},
    }
    suite = load_tasks(str(write(tmp_path, ADD, "", ADD | extra | {"id": "other"})))
    first, second = suite.tasks
    assert first.id == first.family == "add"
    assert first.band == "easy"
    assert first.examples == (Case(expr="add(2, 3)", expected="5"),)
    assert (second.family, second.band) == ("sums", "medium")
    assert second.limits == Limits(wall_s=2.0, num_pids=8)
    assert (first.network, second.network) == ({}, {"act": ["pypi.org:443"]})
    assert first.digest != replace(first, network={"act": ["pypi.org:443"]}).digest
    hidden = suite.vault.open_hidden("add")
    assert hidden.cases == (Case(expr="add(-1, 1)", expected="0"), Case(expr="add('a', 'b')", expected="'ab'"))
    assert hidden.check is None


def test_a_reference_finds_the_files_of_its_own_row_only(tmp_path: Path) -> None:
    row = ADD | {
        "entry_point": "read",
        "reference": "def read(path):\n    return open(path).read()\n",
        "examples": ["read('data/a.txt')"],
        "hidden": ["read('data/a.txt')"],
    }
    first, second = ({"id": name, "files": {"data/a.txt": name}} for name in ("one", "two"))
    pairs = load_jsonl(write(tmp_path, row | first, row | second))
    assert [task.examples[0].expected for task, _ in pairs] == ["'one'", "'two'"]
    assert pairs[0][0].files == {"data/a.txt": "one"}
    bare = row | {"id": "three"}
    assert "tasks.jsonl:3: row 'three'" in complaint(write(tmp_path, row | first, row | second, bare))


def test_rows_in_the_published_shape_are_read_and_proved(tmp_path: Path) -> None:
    ((task, hidden),) = load_jsonl(write(tmp_path, PUBLISHED))
    assert (task.id, task.entry_point, task.band) == ("mine/0", "twice", "hard")
    assert (hidden.check or "").startswith(PUBLISHED["test"])
    wrong = write(tmp_path, PUBLISHED | {"canonical_solution": "    return n\n"})
    assert "row 'mine/0': the reference, run by the test, raised AssertionError" in complaint(wrong)


def changed(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in (ADD | changes).items() if value is not ...}


MALFORMED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "no JSON": ("{'id': 1}", ("not a JSON object",)),
    "a list": ("[1]", ("a row must be a JSON object, not [1]", "required keys: entry_point, id, instruction")),
    "a key twice": ('{"id": "a", "id": "b"}', ("the key 'id' stands twice",)),
    "a missing key": (changed(hidden=...), ("row 'add': the key 'hidden' is missing", "required keys: ")),
    "a misspelt key": (
        changed(entry_point=..., entrypoint="add"),
        ("unknown key 'entrypoint'", "did you mean 'entry_point'?", "allowed: entry_point, id, instruction"),
    ),
    "a misspelt limit": (changed(limits={"wal_s": 1}), ("unknown key 'limits.wal_s'", "did you mean 'wall_s'?")),
    "a limit out of range": (changed(limits={"wall_s": 0}), ("'limits.wall_s' is 0", "greater than 0")),
    "a misspelt phase": (changed(network={"acting": []}), ("unknown key 'network.acting'", "did you mean 'act'?")),
    "a phase that no task has": (
        changed(network={"setup": []}),
        ("unknown key 'network.setup'", "allowed: act, grade"),
    ),
    "a rule that is none": (changed(network={"act": ["pypi.org:x"]}), ("network.act: network rule 'pypi.org:x'",)),
    "a wrong type": (changed(instruction=3), ("'instruction' is 3", "string")),
    "an unknown band": (changed(band="simple"), ("'band' is 'simple'", "'easy', 'medium' or 'hard'")),
    "an empty id": (changed(id=""), ("'id' is ''",)),
    "a keyword as entry point": (changed(entry_point="def"), ("'entry_point' is 'def'", "must be the name")),
    "no hidden cases": (changed(hidden=[]), ("'hidden' is []",)),
    "a case of three": (changed(hidden=[["a", "b", "c"]]), ("hidden[0] is ['a', 'b', 'c']", "or a pair")),
    "a case that is a number": (changed(examples=[5]), ("examples[0] is 5", "allowed: an expression, or a pair")),
    "not an expression": (changed(examples=["add(1,"]), ("examples[0]: 'add(1,' is not a Python expression",)),
    "a null byte": (changed(examples=["add(\0)"]), ("is not a Python expression",)),
    "an expression about nothing": (changed(hidden=["1 + 1"]), ("hidden[0]: '1 + 1' does not use add",)),
    "an expected value that is no literal": (
        changed(examples=[["add('a', 'b')", "ab"]]),
        ("the expected value 'ab' is not a Python literal", "for the text ab write \"'ab'\""),
    ),
    "a path outside": (changed(files={"../x": ""}), ("'files' is ", "not '../x'")),
    "a test without check": (PUBLISHED | {"test": "x = 1"}, ("'test' is 'x = 1': must define check(candidate)",)),
    "a test that is not Python": (PUBLISHED | {"test": "def check("}, ("'test' is 'def check(': not Python",)),
    "a published row with a key too many": (PUBLISHED | {"tests": ""}, ("unknown key 'tests'", "did you mean 'test'?")),
}


@pytest.mark.parametrize(("row", "parts"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_row_is_answered_with_place_cause_and_fix(row: Any, parts: tuple[str, ...], tmp_path: Path) -> None:
    message = complaint(write(tmp_path, ADD | {"id": "good"}, row))
    assert f"{tmp_path / 'tasks.jsonl'}:2: " in message
    for part in parts:
        assert part in message


UNPROVED: dict[str, tuple[dict[str, Any], str]] = {
    "crashes": (changed(reference="1 / 0"), "the reference raised ZeroDivisionError: division by zero"),
    "is not Python": (changed(reference="def add(:"), "the reference raised SyntaxError"),
    "defines something else": (changed(reference="x = 1"), "raised NameError: it does not define add"),
    "raises when asked": (changed(hidden=["add(1)"]), "the reference, asked for add(1), raised TypeError"),
    "leaves": (changed(reference="import sys\nsys.exit(3)"), "the reference raised SystemExit: 3"),
    "takes the process down": (
        changed(reference="import os\nos._exit(3)"),
        "the reference ended its interpreter with exit code 3",
    ),
    "dies by a signal": (changed(reference="import os\nos.abort()"), "the reference was ended by signal SIGABRT"),
    "hangs": (changed(reference="while True: pass"), "the reference did not finish within 1 s"),
    "gives no plain data": (
        changed(hidden=["add"]),
        "asked for add, raised ValueError: a function is not plain data",
    ),
    "gives infinity": (changed(hidden=["add(1e308, 1e308)"]), "inf is not plain data"),
    "disagrees": (
        changed(examples=[["add(2, 2)", "5"]]),
        "the reference gives 4 for add(2, 2), but the row states 5",
    ),
    "says too much": (changed(hidden=["add('x' * 30000, '')"]), "takes 30002 characters"),
}


@pytest.mark.parametrize(("row", "cause"), UNPROVED.values(), ids=UNPROVED.keys())
def test_a_reference_that_does_not_prove_its_row_is_named(row: dict[str, Any], cause: str, tmp_path: Path) -> None:
    message = complaint(write(tmp_path, ADD | {"id": "good"}, row, ADD | {"id": "last"}), job_timeout_s=1)
    assert f"{tmp_path / 'tasks.jsonl'}:2: row 'add': " in message
    assert cause in message


def test_a_repeated_id_names_both_places(tmp_path: Path) -> None:
    message = complaint(write(tmp_path, ADD, ADD))
    assert "tasks.jsonl:2: the id 'add' stands already at" in message
    assert message.count("tasks.jsonl:1") == 1


def test_an_empty_file_a_folder_and_other_encodings_are_named(tmp_path: Path) -> None:
    assert "holds no rows" in complaint(write(tmp_path, "", " "))
    assert "cannot be read: Is a directory" in complaint(tmp_path)
    path = tmp_path / "latin.jsonl"
    path.write_bytes(json.dumps(ADD).encode() + b" \xe9\n")
    assert "not UTF-8 text" in complaint(path)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(ADD), encoding="utf-8-sig")
    assert load_jsonl(path)[0][0].id == "add"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from([*ADD, *PUBLISHED, "files", "limits", "network", "band", "x"]), JSON, max_size=8)
)
def test_no_row_raises_anything_but_a_user_error(changes: dict[str, Any]) -> None:
    for row in (changes, ADD | changes):
        try:
            rows = read_rows(json.dumps(row), where="tasks.jsonl")
        except UserError as error:
            assert str(error).startswith("tasks.jsonl:1: ")
        else:
            assert len(rows) == 1
