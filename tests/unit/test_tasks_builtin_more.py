"""The second half of the built-in families: references pass, shortcuts fail, cases are plain data and reproducible."""

import ast
import re
from collections.abc import Callable
from random import Random

import pytest

from burnish.tasks.builtin import (
    bugfix,
    classes,
    clock,
    dicts,
    geometry,
    grids,
    lists_more,
    logic,
    parsing,
    recursion,
    tuples_sets,
    units,
)
from burnish.tasks.family import Family, TaskSpec

MODULES = (
    bugfix, classes, clock, dicts, geometry, grids, lists_more, logic, parsing, recursion, tuples_sets, units,
)  # fmt: skip
FAMILIES: tuple[Family, ...] = tuple(family for module in MODULES for family in module.FAMILIES)
SPECS = tuple(spec for family in FAMILIES for spec in family.tasks)
PLAIN = (type(None), bool, int, float, str, list, tuple, dict, set)

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def run(source: str, expressions: tuple[str, ...]) -> list[object]:
    """The value of every expression, each in a fresh namespace that `source` makes."""
    values = []
    for expression in expressions:
        namespace: dict[str, object] = {}
        exec(source, namespace)
        values.append(eval(expression, namespace))
    return values


def drawn(spec: TaskSpec, seed: int) -> tuple[str, ...]:
    rng = Random(seed)
    return tuple(spec.random_inputs(rng) for _ in range(spec.num_random)) if spec.random_inputs else ()


def same(a: object, b: object) -> bool:
    """Equality that tells True from 1, as a reader of the instruction would."""
    return type(a) is type(b) and a == b


def parameters(spec: TaskSpec) -> list[str] | None:
    """Names of the parameters of the function that the reference defines; None for a class."""
    node = ast.parse(spec.reference).body[0]
    return [arg.arg for arg in node.args.args] if isinstance(node, ast.FunctionDef) else None


@each_family
def test_every_value_is_plain_and_survives_its_literal(family: Family) -> None:
    for spec in family.tasks:
        expressions = spec.examples + spec.hidden + drawn(spec, 1)
        for expression, value in zip(expressions, run(spec.reference, expressions), strict=True):
            assert isinstance(value, PLAIN), expression
            assert same(ast.literal_eval(repr(value)), value), expression


@each_family
def test_no_constant_answer_passes_the_hidden_cases(family: Family) -> None:
    for spec in family.tasks:
        values = run(spec.reference, spec.hidden)
        assert len(spec.hidden) >= 4, spec.name
        assert 2 <= len(spec.examples) <= 3, spec.name
        assert any(not same(values[0], value) for value in values), spec.name


@each_family
def test_no_argument_returned_unchanged_passes(family: Family) -> None:
    def picks(index: int) -> Callable[..., object]:
        return lambda *args: args[index]

    for spec in family.tasks:
        expected = run(spec.reference, spec.hidden)
        for index, parameter in enumerate(parameters(spec) or []):
            given = [eval(expression, {spec.name: picks(index)}) for expression in spec.hidden]
            assert any(not same(a, b) for a, b in zip(given, expected, strict=True)), (spec.name, parameter)


@pytest.mark.parametrize("family", classes.FAMILIES, ids=lambda family: family.name)
def test_a_class_without_its_methods_fails(family: Family) -> None:
    for spec in family.tasks:
        with pytest.raises((TypeError, AttributeError)):
            run(f"class {spec.name}:\n    pass\n", spec.hidden)


@pytest.mark.parametrize("family", bugfix.FAMILIES, ids=lambda family: family.name)
def test_the_code_shown_is_broken_and_the_examples_say_so(family: Family) -> None:
    def fails(source: str, spec: TaskSpec, expressions: tuple[str, ...]) -> bool:
        try:
            return not all(map(same, run(source, expressions), run(spec.reference, expressions)))
        except (TypeError, LookupError, ZeroDivisionError):
            return True

    for spec in family.tasks:
        block = re.search(r"```python\n(.*?)```", spec.instruction, re.DOTALL)
        assert block is not None, spec.name
        assert fails(block.group(1), spec, spec.examples), spec.name
        assert fails(block.group(1), spec, spec.hidden), spec.name


@each_family
def test_instruction_is_short_and_names_what_to_define(family: Family) -> None:
    for spec in family.tasks:
        names = parameters(spec)
        wanted = f"`{spec.name}`" if names is None else f"`{spec.name}({', '.join(names)})`"
        assert wanted in spec.instruction
        assert len(spec.instruction) <= 420, spec.name
        nodes = ast.parse(spec.reference).body
        assert [getattr(node, "name", None) for node in nodes] == [spec.name]
        for expression in spec.examples + spec.hidden + drawn(spec, 2):
            used = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
            assert spec.name in used, expression


@each_family
def test_draws_depend_on_the_seed_alone_and_vary(family: Family) -> None:
    for spec in family.tasks:
        assert drawn(spec, 3) == drawn(spec, 3)
        if spec.random_inputs:
            assert len({expression for seed in range(5) for expression in drawn(spec, seed)}) >= 4, spec.name


@each_family
def test_sets_hold_numbers_only_so_that_their_literal_never_depends_on_hashing(family: Family) -> None:
    for spec in family.tasks:
        expressions = spec.examples + spec.hidden + drawn(spec, 5)
        for text in [*expressions, *map(repr, run(spec.reference, expressions))]:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Set):
                    assert all(isinstance(ast.literal_eval(item), int) for item in node.elts), text


def test_the_set_is_large_enough_and_names_are_unique() -> None:
    assert len(FAMILIES) >= 34
    assert len(SPECS) >= 136
    assert min(len(family.tasks) for family in FAMILIES) >= 4
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    assert len({spec.name for spec in SPECS}) == len(SPECS)


@pytest.mark.parametrize("heldout", [False, True])
def test_both_sides_of_the_split_have_the_same_mixture_of_bands(heldout: bool) -> None:
    families = [family for family in FAMILIES if family.heldout is heldout]
    bands = [spec.band for family in families for spec in family.tasks]
    assert 0.54 <= bands.count("easy") / len(bands) <= 0.66
    assert 0.22 <= bands.count("medium") / len(bands) <= 0.34
    assert 0.08 <= bands.count("hard") / len(bands) <= 0.16


def test_a_quarter_of_the_families_is_held_out_and_shares_no_reference_with_the_rest() -> None:
    assert 0.2 <= sum(family.heldout for family in FAMILIES) / len(FAMILIES) <= 0.3

    def bodies(heldout: bool) -> set[str]:
        """References with their own names taken out, so that a renamed copy is seen."""
        specs = [spec for family in FAMILIES if family.heldout is heldout for spec in family.tasks]
        return {_anonymous(spec.reference) for spec in specs}

    assert not bodies(True) & bodies(False)


def _anonymous(source: str) -> str:
    """The syntax tree with every name that `source` binds replaced by its order of appearance."""
    tree = ast.parse(source)
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            bound.setdefault(node.arg, f"v{len(bound)}")
            node.arg = bound[node.arg]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.name = "f"
        elif isinstance(node, ast.Name):
            node.id = bound.get(node.id, node.id)
    return ast.dump(tree)
