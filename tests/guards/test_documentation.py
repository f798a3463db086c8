"""What the documents say can be typed, and what can be typed is in the documents."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from burnish.cli import app
from burnish.config_load import load_config
from burnish.config_reference import known_keys, render_reference
from tests.guards.source import ROOT

DOCUMENTS = [path for name in ("README", "ARCHITECTURE", "CONTRIBUTING") if (path := ROOT / f"{name}.md").exists()]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#:]+)(?:#[^)]*)?\)")


def code_in(document: Path) -> Iterator[str]:
    """Lines of code blocks (fenced or indented) and inline code."""
    fenced = False
    for line in document.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()
        else:
            yield from SPAN.findall(line)


def commands_in(document: Path, program: str) -> Iterator[list[str]]:
    """The words after `program` wherever code starts with it."""
    for code in code_in(document):
        words = code.split("#")[0].removeprefix("$ ").split()
        while words and re.fullmatch(r"[A-Z_]+=\S+", words[0]):
            words = words[1:]
        if words and words[0].removeprefix(".venv/bin/") == program:
            words = words[1:]
            yield words[: words.index("--")] if "--" in words else words  # the rest is for another program


def verbs(command: Any, path: tuple[str, ...] = ()) -> Mapping[tuple[str, ...], set[str]]:
    """All verbs of the command line with their options."""
    found: dict[tuple[str, ...], set[str]] = {}
    for name, inner in getattr(command, "commands", {}).items():
        found.update(verbs(inner, (*path, name)))
    if not found:
        found[path] = {"--help", *(option for parameter in command.params for option in parameter.opts)}
    return found


VERBS = verbs(typer.main.get_command(app))


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_is_documented(verb: tuple[str, ...]) -> None:
    shown = [words for document in DOCUMENTS for words in commands_in(document, "burnish")]
    assert any(tuple(words[: len(verb)]) == verb for words in shown), f"no document shows `burnish {' '.join(verb)}`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_exist(document: Path) -> None:
    for words in commands_in(document, "burnish"):
        if words[:1] in ([], ["--help"]):
            continue
        matching = [verb for verb in VERBS if verb[: len(words)] == tuple(words[: len(verb)])]
        assert matching, f"there is no `burnish {' '.join(words)}`"
        options = {word.split("=")[0].strip("[]") for word in words if word.strip("[").startswith("--")}
        assert options <= set.union(*(VERBS[verb] for verb in matching)), f"burnish {' '.join(words)}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_in_documents_exist(document: Path) -> None:
    benches = {f"bench-{path.stem}" for path in (ROOT / "bench").glob("[!_]*.py")}
    targets = {"setup", "train", "test", "check", "bench"} | benches
    makefile = (ROOT / "Makefile").read_text()
    assert {name for name in targets - benches if not re.search(rf"^{name}:", makefile, re.M)} == set()
    for words in commands_in(document, "make"):
        named = [word for word in words if "=" not in word and '"' not in word][:1]
        assert set(named) <= targets, f"{document.name}: make {' '.join(words)}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_files_resolve(document: Path) -> None:
    links = LINK.findall(document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_every_recipe_parses(recipe: Path) -> None:
    assert load_config(recipe).name == recipe.stem


def test_the_configuration_page_is_up_to_date() -> None:
    made = render_reference()
    assert (ROOT / "docs" / "configuration.md").read_text() == made, (
        "run python -m burnish.config_reference > docs/configuration.md"
    )
    assert [key for key, info in known_keys().items() if not info.meaning or f"`{key}`" not in made] == []


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[-1] == "exec make test" and len(commands) == 3
    assert os.access(script, os.X_OK)
    subprocess.run(["sh", "-n", script], check=True)
