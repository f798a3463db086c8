"""YAML as recipes use it: the core schema of YAML 1.2, with line numbers, and nothing that surprises.

PyYAML follows YAML 1.1, where `1e-5` is text, `no` is false, `010` is eight and a second `lr:` silently wins. Here
plain scalars mean what the core schema (https://yaml.org/spec/1.2.2/#103-core-schema) says, a repeated key is an error,
and tags, anchors, aliases and several documents are refused: no recipe needs them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from burnish.errors import UserError

Key = tuple[str | int, ...]
"""The path of a value: ("learner", "betas", 0)."""

MAX_DEPTH = 20  # recipes need three; a bound keeps hostile nesting from exhausting the stack

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_INT64 = 2**63


@dataclass(frozen=True, kw_only=True, slots=True)
class YamlDocument:
    """The value of one document, and the line (from 1) on which each key or list item stands.

    Example: YamlDocument(value={"learner": {"lr": 1e-5}}, lines={("learner",): 1, ("learner", "lr"): 2})
    """

    value: Any
    lines: Mapping[Key, int] = field(default_factory=dict)


def read_yaml(text: str, *, where: str) -> YamlDocument:
    """Parses one document of mappings, sequences and scalars; empty text is None.

    Raises UserError, with `where` and the line, for anything that is not such a document.
    """
    try:
        return _Reader(text, where).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        raise UserError(f"not valid YAML: {error.problem or error.context}", where=place) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        cause = f"not valid YAML: the character {chr(error.character)!r} is not allowed"
        raise UserError(cause, where=f"{where}:{line}") from error
    except UserError:
        raise
    except (ValueError, OverflowError) as error:  # PyYAML lets these through for escapes like "\UFFFFFFFF"
        raise UserError(f"not valid YAML: {error}", where=where) from error


def plain_scalar(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar by the core schema.

    Raises ValueError for a number that is not finite or does not fit 64 bits.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    if _INTEGER.fullmatch(text):
        if len(text) > 20 or abs(int(text)) >= _INT64:
            raise ValueError(f"{_shortened(text)} does not fit 64 bits")
        return int(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"{_shortened(text)} is too large for a number")
        return value
    return text


def write_yaml(tree: Mapping[str, Any]) -> str:
    """Block style, keys in their order; `read_yaml` gives the tree back."""
    return yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


class _Dumper(yaml.SafeDumper):
    """Quotes a text that would be read back as something else (`1e5` is text for PyYAML, a number for us)."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        try:
            plain = text.isprintable() and plain_scalar(text) == text
        except ValueError:
            plain = False
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _Dumper.represent_text)


class _Reader:
    """Builds the value from PyYAML's event stream, which is flat, so that nesting is ours to bound."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._lines: dict[Key, int] = {}
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.SafeLoader)

    def document(self) -> YamlDocument:
        next(self._events)  # the stream begins
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return YamlDocument(value=None)
        value = self._value(next(self._events), ())
        next(self._events)  # the document ends
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._refuse(after, "a second document begins here", fix="keep one document per file")
        return YamlDocument(value=value, lines=self._lines)

    def _value(self, event: Any, path: Key) -> Any:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            self._refuse(event, "anchors and aliases are not supported", fix="write the value out")
        if event.tag is not None:
            self._refuse(event, f"the tag {event.tag!r} is not supported", fix="write the plain value")
        if len(path) > MAX_DEPTH:
            self._refuse(event, f"nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return self._scalar(event)

    def _mapping(self, path: Key) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                self._refuse(event, "a key must be plain text")
            name = self._text(event)
            if name in mapping:
                first = self._lines[(*path, name)]
                self._refuse(event, f"the key {name!r} stands here a second time", fix=f"the first is on line {first}")
            self._lines[(*path, name)] = _line(event)
            mapping[name] = self._value(next(self._events), (*path, name))
        return mapping

    def _sequence(self, path: Key) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._lines[(*path, len(items))] = _line(event)
            items.append(self._value(event, (*path, len(items))))
        return items

    def _scalar(self, event: Any) -> Any:
        text = self._text(event)
        if event.style is not None:  # quoted or block: always text
            return text
        try:
            return plain_scalar(text)
        except ValueError as error:
            self._refuse(event, str(error))

    def _text(self, event: Any) -> str:
        text: str = event.value
        if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
            self._refuse(event, "a text may not hold NUL or half of a surrogate pair")
        return text

    def _refuse(self, event: Any, cause: str, *, fix: str | None = None) -> NoReturn:
        raise UserError(cause, where=f"{self._where}:{_line(event)}", fix=fix)


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


def _shortened(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:20]}..."
