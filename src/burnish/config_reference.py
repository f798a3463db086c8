"""What may be written in a recipe: every key with its allowed values, default and meaning, taken from the models.

Error messages and docs/configuration.md say the same because both come from here.
`python -m burnish.config_reference` prints the page.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from burnish.config import RunConfig

_NOUNS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "a text"}
_BOUNDS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}

_INTRODUCTION = """\
# Configuration

<!-- Made by `python -m burnish.config_reference > docs/configuration.md`; a test compares. -->

A recipe is a YAML file; the keys below are all there are. Only `name` is required. Any key can be overridden on the
command line, where the value is read as YAML too:

    burnish train recipes/quickstart.yaml learner.lr=1e-5 tasks.bands=[easy,medium] train.time_limit_s=null

Unknown keys, repeated keys and values out of range are errors that name the key and what is allowed. Scalars follow
YAML 1.2: `1e-5` is a number and `no` is a text. Paths are relative to the folder the command runs in.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyInfo:
    """One key of a recipe.

    Example: KeyInfo(key="learner.lr", allowed="a number > 0", default="2e-05", meaning="AdamW's learning rate ...")
    """

    key: str  # dotted path
    allowed: str
    default: str | None  # as YAML; None where the key is required
    meaning: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SectionInfo:
    """A group of keys; the name of the top level is empty.

    Example: SectionInfo(name="learner", meaning="The optimizer step.", keys=(info,))
    """

    name: str
    meaning: str
    keys: tuple[KeyInfo, ...]


@functools.cache
def known_sections() -> Mapping[str, SectionInfo]:
    """By name, in the order of the models; "" is the top level."""
    schema = RunConfig.model_json_schema()
    found = {"": SectionInfo(name="", meaning=schema["description"], keys=tuple(_keys(schema, "")))}
    for name, entry in schema["properties"].items():
        if "$ref" in entry:
            section = schema["$defs"][entry["$ref"].rpartition("/")[2]]
            found[name] = SectionInfo(name=name, meaning=section["description"], keys=tuple(_keys(section, f"{name}.")))
    return found


@functools.cache
def known_keys() -> Mapping[str, KeyInfo]:
    """By dotted path, in the order of the models."""
    return {info.key: info for section in known_sections().values() for info in section.keys}


def render_reference() -> str:
    """The page docs/configuration.md."""
    parts = [_INTRODUCTION]
    for section in known_sections().values():
        title = f"## {section.name}" if section.name else "## Top level"
        rows = [f"| `{i.key}` | {i.allowed} | {_code(i.default)} | {i.meaning} |" for i in section.keys]
        table = ["| key | allowed | default | meaning |", "|---|---|---|---|", *rows]
        parts.append("\n".join([title, "", section.meaning, "", *table, ""]))
    return "\n".join(parts)


def _keys(section: Mapping[str, Any], prefix: str) -> Iterator[KeyInfo]:
    for name, entry in section["properties"].items():
        if "$ref" not in entry:
            default = json.dumps(entry["default"]) if "default" in entry else None
            meaning = " ".join(entry["description"].split())
            yield KeyInfo(key=f"{prefix}{name}", allowed=_allowed(entry), default=default, meaning=meaning)


def _allowed(entry: Mapping[str, Any]) -> str:
    """A JSON schema of one value in words."""
    if "anyOf" in entry:
        return " or ".join(_allowed(choice) for choice in entry["anyOf"])
    if entry.get("type") == "null":
        return "null"
    if "enum" in entry:
        return "one of " + ", ".join(entry["enum"])
    if entry["type"] == "array":
        return _allowed_list(entry)
    if entry["type"] == "object":
        return f"a map of names, each to {_allowed(entry['additionalProperties'])}"
    if entry.get("format") == "path":
        return "a path"
    if "pattern" in entry:
        return f"a text matching `{entry['pattern']}`"
    bounds = [f"{sign} {entry[bound]:g}" for bound, sign in _BOUNDS.items() if bound in entry]
    nonempty = " (not empty)" if entry.get("minLength") else ""
    return " ".join([_NOUNS[entry["type"]] + nonempty, " and ".join(bounds)]).strip()


def _allowed_list(entry: Mapping[str, Any]) -> str:
    fixed = entry.get("prefixItems")
    item = fixed[0] if fixed else entry["items"]
    size = f"a list of {len(fixed)}" if fixed else "a list (not empty)" if entry.get("minItems") else "a list"
    return f"{size}, each {_allowed(item)}"


def _code(text: str | None) -> str:
    return "required" if text is None else f"`{text}`"


if __name__ == "__main__":
    print(render_reference(), end="")
