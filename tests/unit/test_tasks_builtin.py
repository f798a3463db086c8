"""Every built-in task: its reference passes, lazy answers fail, and held-out families are new to the model."""

import ast
import builtins
import contextlib
import hashlib
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from burnish.sandbox.evaluate import Answer
from burnish.tasks import builtin
from burnish.tasks.answering import define, plain_repr
from burnish.tasks.build import BuiltTask, build_families
from burnish.tasks.family import Family
from burnish.types import Case

BUILT = build_families(builtin.FAMILIES)
TRAIN = [built for built in BUILT if not built.heldout]
HELDOUT = [built for built in BUILT if built.heldout]
each_family = pytest.mark.parametrize("family", builtin.FAMILIES, ids=lambda family: family.name)


def passes(scope: Mapping[str, object], cases: tuple[Case, ...]) -> bool:
    """Whether a solution's names answer all cases, compared as the grader compares."""
    for case in cases:
        with contextlib.suppress(Exception):  # a lazy answer may fail in any way
            if Answer(value=plain_repr(eval(case.expr, dict(scope)))).equals(case.expected):
                continue
        return False
    return True


class AnyClass:
    """Any method of it gives one value, and so does calling it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *args, **kwargs: self.value


def lazy_answers(built: BuiltTask) -> dict[str, Callable[..., object]]:
    """Solutions that look at nothing: None, each value that is ever expected, each argument as it came."""
    answers: dict[str, Callable[..., object]] = {"None": lambda *args: None}
    for text in {case.expected for case in built.hidden.cases}:
        value = ast.literal_eval(text)
        answers[f"always {text}"] = lambda *args, value=value: value
        answers[f"a class of {text}"] = lambda *args, value=value: AnyClass(value)
    for position in range(3):
        answers[f"argument {position}"] = lambda *args, position=position: args[position]
    return answers


@each_family
def test_the_references_pass(family: Family) -> None:
    for built in build_families((family,)):
        scope = define(built.hidden.reference, built.task.entry_point)
        assert passes(scope, built.hidden.cases + built.task.examples), built.task.id


@each_family
def test_empty_answers_and_lazy_answers_fail(family: Family) -> None:
    for built in build_families((family,)):
        assert not passes({}, built.hidden.cases), built.task.id
        for name, answer in lazy_answers(built).items():
            assert not passes({built.task.entry_point: answer}, built.hidden.cases), (built.task.id, name)


@each_family
def test_cases_are_plain_distinct_and_enough(family: Family) -> None:
    for built in build_families((family,)):
        hidden, examples = built.hidden.cases, built.task.examples
        assert len(examples) in (2, 3), built.task.id
        assert len(hidden) >= 4, built.task.id
        assert len({case.expr for case in hidden}) == len(hidden), built.task.id
        for case in hidden + examples:
            assert plain_repr(ast.literal_eval(case.expected)) == case.expected, case


@each_family
def test_instructions_name_what_to_write(family: Family) -> None:
    for built in build_families((family,)):
        task = built.task
        assert f"`{task.entry_point}" in task.instruction, task.id
        assert len(task.instruction) <= 600, task.id
        assert task.id == f"{task.family}/{task.entry_point}"
        shape = ast.parse(built.hidden.reference).body[0]
        if isinstance(shape, ast.FunctionDef):  # the arguments asked for are the ones the reference takes
            assert f"`{task.entry_point}({ast.unparse(shape.args)})`" in task.instruction


def test_there_are_enough_tasks_families_and_bands() -> None:
    assert len(BUILT) >= 240
    assert len({built.task.family for built in BUILT}) >= 60
    families = Counter(built.task.family for built in BUILT)
    assert min(families.values()) >= 4
    for split in (TRAIN, HELDOUT):
        bands = Counter(built.task.band for built in split)
        assert 0.5 <= bands["easy"] / len(split) <= 0.7
        assert 0.2 <= bands["medium"] / len(split) <= 0.4
        assert 0.07 <= bands["hard"] / len(split) <= 0.18
    assert 0.2 <= len(HELDOUT) / len(BUILT) <= 0.3


def test_names_are_unique() -> None:
    assert len({built.task.entry_point for built in BUILT}) == len(BUILT)
    names = [family.name for family in builtin.FAMILIES]
    assert len(set(names)) == len(names)


def test_no_module_of_the_package_is_forgotten() -> None:
    found: list[ModuleType] = [
        importlib.import_module(f"{builtin.__name__}.{info.name}") for info in pkgutil.iter_modules(builtin.__path__)
    ]
    assert {m.__name__ for m in found if hasattr(m, "FAMILIES")} == {m.__name__ for m in builtin.MODULES}


class Anonymous(ast.NodeTransformer):
    """Replaces every name that the source chose by its order of appearance."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def rename(self, name: str) -> str:
        return name if hasattr(builtins, name) else self.names.setdefault(name, f"v{len(self.names)}")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:  # noqa: N802
        node.name = self.rename(node.name)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> Any:
        node.arg = self.rename(node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> Any:  # noqa: N802
        node.id = self.rename(node.id)
        return node


def normalised(reference: str) -> str:
    return ast.unparse(Anonymous().visit(ast.parse(reference)))


def test_normalising_sees_through_names_only() -> None:
    assert normalised("def f(a):\n    return len(a) + a") == normalised("def g(xs):\n    return len(xs) + xs")
    assert normalised("def f(a):\n    return a + 1") != normalised("def f(a):\n    return a + 2")


def test_no_heldout_solution_is_seen_in_training() -> None:
    seen = {normalised(built.hidden.reference): built.task.id for built in TRAIN}
    for built in HELDOUT:
        text = normalised(built.hidden.reference)
        assert text not in seen, (built.task.id, seen[text])


def words_of(built: BuiltTask) -> frozenset[str]:
    """The words after "Write a function ... that", which all instructions share."""
    asked = built.task.instruction.partition(" that ")[2] or built.task.instruction
    return frozenset(re.findall(r"[a-z0-9']+", asked.lower()))


def test_no_heldout_instruction_is_nearly_one_of_training() -> None:
    train = [(words_of(built), built.task.id) for built in TRAIN]
    for built in HELDOUT:
        words = words_of(built)
        overlap, closest = max((len(words & other) / len(words | other), name) for other, name in train)
        assert overlap < 0.8, (built.task.id, closest)


FINGERPRINT = """
import hashlib
from burnish.tasks.load import load_tasks
tasks = load_tasks("builtin:all")
text = repr([(task.digest, tasks.vault.open_hidden(task.id)) for task in tasks.tasks])
print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_tasks_are_the_same_in_every_process() -> None:
    prints = set()
    for seed in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        )
        prints.add(result.stdout.strip())
    assert len(prints) == 1
    assert len(prints.pop()) == hashlib.sha256().digest_size * 2
