"""Reading a recipe: YAML and command-line overrides in, a `RunConfig` or every mistake at once out (invariant I9).

Example:
    >>> load_config(Path("recipes/quickstart.yaml"), ["learner.lr=1e-5"]).learner.lr
    1e-05
    >>> load_config(Path("recipes/quickstart.yaml"), ["learner.lr=-1"])
    Traceback (most recent call last):
    burnish.config_load.ConfigError: override learner.lr=-1: learner.lr: given -1, allowed: a number > 0
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from burnish.config import RESOLVED_FILE, RunConfig
from burnish.config_reference import known_keys, known_sections
from burnish.config_yaml import Key, read_yaml
from burnish.errors import UserError

MAX_RECIPE_BYTES = 1 << 20
SHOWN_CHARS = 60  # of a wrong value; the place says where the rest is


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One mistake in a recipe or override.

    Example: Problem(place="a.yaml:3", key="learner.lrr", cause="unknown key", fix="did you mean learner.lr?")
    """

    place: str  # file:line, or the override
    key: str  # full dotted path; empty when the mistake is not about one key
    cause: str
    fix: str | None = None
    missing: bool = False  # a required key that is not there

    @property
    def headline(self) -> str:
        """Place, key and cause in one line."""
        return ": ".join(part for part in (self.place, self.key, self.cause) if part)


class ConfigError(UserError):
    """A recipe that cannot be used; `problems` holds every mistake that was found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        if len(problems) == 1:
            super().__init__(problems[0].headline, fix=problems[0].fix)
            return
        lines = [f"{len(problems)} problems in the configuration"]
        for problem in problems:
            lines.append(f"  {problem.headline}")
            lines.extend([f"    fix: {problem.fix}"] if problem.fix else [])
        super().__init__("\n".join(lines))


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The recipe at `path` with `key=value` overrides, the values read as YAML.

    Raises UserError for a file that cannot be read as YAML, ConfigError (a UserError) with all mistakes otherwise.
    """
    document = read_yaml(_read_text(path), where=str(path))
    if not isinstance(document.value, dict):
        found = "empty" if document.value is None else f"not a mapping but {_shown(document.value)}"
        raise UserError(f"the recipe is {found}", where=str(path), fix="write keys and values, at least `name: my-run`")
    tree: dict[str, Any] = document.value
    places = {key: f"{path}:{line}" for key, line in document.lines.items()}
    problems = _apply_overrides(overrides, tree, places)
    try:
        config = RunConfig.model_validate_json(json.dumps(tree), strict=True)
    except ValidationError as error:
        tried = {problem.key for problem in problems}  # a key whose override is broken is not missing as well
        problems += [p for p in _translated(error, places, str(path)) if not (p.missing and p.key in tried)]
    if problems:
        raise ConfigError(problems)
    return config


def newest_run(config: RunConfig) -> Path:
    """The run directory of this recipe's name in `runs_dir` that was begun last.

    Raises UserError when there is none.
    """
    begun: list[tuple[float, Path]] = []
    for resolved in config.runs_dir.glob(f"*/{RESOLVED_FILE}"):
        tree = read_yaml(_read_text(resolved), where=str(resolved)).value
        if isinstance(tree, dict) and tree.get("name") == config.name:
            begun.append((resolved.stat().st_mtime, resolved.parent))
    if not begun:
        raise UserError(
            f"no run of {config.name!r} to continue",
            where=str(config.runs_dir),
            fix="start one without --resume, or name its directory with --run-dir",
        )
    return max(begun)[1]


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_RECIPE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        near = _nearest_recipe(path) if isinstance(error, FileNotFoundError) else None
        fix = f"did you mean {near}?" if near else "give the path of a recipe (a YAML file)"
        raise UserError(f"cannot read the recipe: {error.strerror}", where=str(path), fix=fix) from error
    except ValueError as error:  # not UTF-8, or a path that the system cannot express
        raise UserError(f"cannot read the recipe: {error}", where=repr(str(path))) from error
    if len(data) > MAX_RECIPE_BYTES:
        raise UserError(f"larger than {MAX_RECIPE_BYTES} bytes, so this is no recipe", where=str(path))
    return text


def _nearest_recipe(path: Path) -> str | None:
    around = {str(p) for folder in (path.parent, Path("recipes")) for p in folder.glob("*.yaml")}
    by_name = {Path(name).stem: name for name in sorted(around)}
    close = difflib.get_close_matches(path.stem, by_name, n=1)
    return by_name[close[0]] if close else None


def _apply_overrides(overrides: Sequence[str], tree: dict[str, Any], places: dict[Key, str]) -> list[Problem]:
    """Sets the overridden values in `tree` and their places in `places`; answers with what cannot be set."""
    problems: list[Problem] = []
    given: set[str] = set()
    for override in overrides:
        key, equals, text = override.partition("=")
        place = f"override {_printable(override)}"
        if not equals:
            problems.append(Problem(place=place, key="", cause="not an override", fix="write key=value"))
        elif key in given:
            problems.append(Problem(place=place, key=key, cause="overridden a second time", fix="keep one"))
        elif key not in known_keys():
            problems.append(_unknown(tuple(key.split(".")), place))
        else:
            try:
                value = read_yaml(text, where="value").value
            except UserError as error:
                problems.append(Problem(place=place, key=key, cause=error.cause, fix=error.fix))
                continue
            _set(tree, tuple(key.split(".")), value)
            places[tuple(key.split("."))] = place
        given.add(key)
    return problems


def _set(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *sections, name = path
    for section in sections:
        inner = tree.setdefault(section, {})
        if not isinstance(inner, dict):
            return  # the file has a plain value in the section's place, and validation says so
        tree = inner
    tree[name] = value


def _translated(error: ValidationError, places: Mapping[Key, str], file: str) -> Iterator[Problem]:
    for entry in error.errors(include_url=False):
        loc: Key = entry["loc"]
        context = entry.get("ctx", {})
        if entry["type"] == "keys_disagree":
            key = tuple(context["key"].split("."))
            yield Problem(place=_place(key, places, file), key="", cause=entry["msg"], fix=context["fix"])
        elif entry["type"] == "extra_forbidden":
            yield _unknown(loc, _place(loc, places, file))
        else:
            missing = entry["type"] == "missing"
            given = "missing" if missing else f"given {_shown(entry['input'])}"
            cause = f"{given}, allowed: {_allowed(loc)}"
            yield Problem(place=_place(loc, places, file), key=_dotted(loc), cause=cause, missing=missing)


def _place(key: Key, places: Mapping[Key, str], file: str) -> str:
    """Where the key stands, or the section that should hold it."""
    while key and key not in places:
        key = key[:-1]
    return places.get(key, file)


def _allowed(loc: Key) -> str:
    names = [part for part in loc if isinstance(part, str)]  # an item of a list is described with its list
    if (info := known_keys().get(".".join(names))) is not None:
        return info.allowed
    section = known_sections()[names[0]]
    return f"a section with keys among {', '.join(_leaf(info.key) for info in section.keys)}"


def _unknown(path: Key, place: str) -> Problem:
    key = _dotted(path)
    if key and key in known_sections():
        inside = known_sections()[key].keys[0].key
        return Problem(place=place, key=key, cause="a section, not a key", fix=f"set one of its keys, e.g. {inside}")
    return Problem(place=place, key=key, cause="unknown key", fix=_suggestion(path))


def _suggestion(path: Key) -> str:
    """The closest known key: close in its own section, else of that name elsewhere, else close overall."""
    if len(path) == 1 and path[0] in known_keys():
        section, _, leaf = str(path[0]).partition(".")
        return f"in a file, write `{section}:` and below it, indented, `{leaf}: ...`"
    section = str(path[0]) if len(path) > 1 and path[0] in known_sections() else ""
    leaf = _leaf(str(path[-1]))[:SHOWN_CHARS]
    siblings = [_leaf(info.key) for info in known_sections()[section].keys]
    if not section:
        siblings += [name for name in known_sections() if name]
    prefix = f"{section}." if section else ""
    if close := difflib.get_close_matches(leaf, siblings, n=1):
        return f"did you mean {prefix}{close[0]}?"
    if elsewhere := [key for key in known_keys() if _leaf(key) == leaf]:
        return f"did you mean {' or '.join(elsewhere)}?"
    if close := difflib.get_close_matches(leaf, [*map(_leaf, known_keys())], n=1):
        return f"did you mean {next(key for key in known_keys() if _leaf(key) == close[0])}?"
    holder = f"the section {section}" if section else "the top level"
    return f"{holder} knows: {', '.join(siblings)}"


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _dotted(path: Key) -> str:
    """`learner.betas[0]`; names that could garble a terminal are escaped, long ones cut."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f"{'.' if text else ''}{_printable(part)}"
    return text


def _printable(text: str) -> str:
    return text if text.isprintable() and len(text) <= SHOWN_CHARS else _shown(text)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."
