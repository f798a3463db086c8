"""YAML as recipes use it: core-schema scalars, line numbers, and no surprises."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.config_yaml import MAX_DEPTH, plain_scalar, read_yaml, write_yaml
from burnish.errors import UserError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),  # text in YAML 1.1
        ("2E3", 2000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-0.25e+1", -2.5),
        ("010", 10),  # eight in YAML 1.1
        ("+7", 7),
        ("no", "no"),  # false in YAML 1.1
        ("on", "on"),
        ("1:30", "1:30"),  # ninety in YAML 1.1
        ("1_000", "1_000"),
        ("2024-01-31", "2024-01-31"),
        ("0x1f", "0x1f"),
        ("e5", "e5"),
        ("nan", "nan"),
        ("TRUE", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: object) -> None:
    found = plain_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", [".nan", ".inf", "-.INF", "1e999", "9223372036854775808", "-" + "9" * 5000])
def test_numbers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"finite|64 bits|too large"):
        plain_scalar(text)


def test_quoted_scalars_are_text() -> None:
    assert read_yaml("a: '1'\nb: \"true\"\nc: |\n  2\n", where="f").value == {"a": "1", "b": "true", "c": "2\n"}


def test_every_key_and_item_has_its_line() -> None:
    document = read_yaml("# top\na: 1\nb:\n  c: [5,\n    6]\n", where="f")
    assert document.value == {"a": 1, "b": {"c": [5, 6]}}
    assert document.lines == {("a",): 2, ("b",): 3, ("b", "c"): 4, ("b", "c", 0): 4, ("b", "c", 1): 5}


@pytest.mark.parametrize(
    ("text", "line", "cause"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' stands here a second time"),
        ("a:\n  x: 1\n  x: 1\n", 3, "'x' stands here a second time"),
        ("a: &x 1\nb: *x\n", 1, "anchors"),
        ("a: 1\nb: *x\n", 2, "anchors"),
        ("a: !!python/object:os.system x\n", 1, "tag"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("[a]: 1\n", 1, "a key must be plain text"),
        ("a: 1\nb: 1e999\n", 2, "too large"),
        ("a: 1\n b: [\n", 2, "not valid YAML"),
        ("a: 1\nb: \x07\n", 2, "not allowed"),
        ("a: 1\nb: {c: 3\n", 3, "not valid YAML"),
        ('a: "\\0"\n', 1, "NUL"),
        ('a: "\\ud800"\n', 1, "surrogate"),
        ("a: " + "[" * (MAX_DEPTH + 5), 1, "deep"),
        ("a: " + "[" * 100_000, 1, "deep"),
    ],
)
def test_what_is_refused_names_the_line(text: str, line: int, cause: str) -> None:
    with pytest.raises(UserError) as caught:
        read_yaml(text, where="r.yaml")
    assert caught.value.where == f"r.yaml:{line}"
    assert cause in caught.value.cause


def test_an_impossible_escape_is_an_error_of_the_file() -> None:
    with pytest.raises(UserError, match="not valid YAML"):
        read_yaml('a: "\\UFFFFFFFF"\n', where="r.yaml")


def test_an_empty_text_is_nothing() -> None:
    assert read_yaml("", where="f").value is None
    assert read_yaml("# only a comment\n", where="f").value is None


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
    | st.sampled_from(
        ["1e5", "no", "null", "~", "1.5", ".inf", "", " x ", "#", "a: b", "- a", "*x", "2024-01-01", "\u2028"]
    )
)
TREES = st.dictionaries(
    st.text("abcz_", min_size=1), st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
)


@given(TREES)
def test_what_is_written_is_read_back(tree: dict[str, object]) -> None:
    back = read_yaml(write_yaml(tree), where="f").value
    assert back == (tree or {})
    assert repr(back) == repr(tree or {})  # 1 is not 1.0 and not True


@given(st.text())
def test_any_text_is_read_or_refused_as_a_mistake(text: str) -> None:
    try:
        read_yaml(text, where="f")
    except UserError as error:
        assert error.where and error.where.startswith("f")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive(value: float) -> None:
    back = read_yaml(write_yaml({"x": value}), where="f").value["x"]
    assert back == value and math.copysign(1, back) == math.copysign(1, value)
