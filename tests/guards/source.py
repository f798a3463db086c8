"""The source as the guards see it: parsed files and the imports between modules."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "burnish"


@dataclass(frozen=True)
class Module:
    """One parsed file. `name` is dotted for package modules (`burnish.flow.buffer`), else the path from the root."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def label(self) -> str:
        return str(self.path.relative_to(ROOT))


@dataclass(frozen=True)
class Import:
    """One import statement's target, as written."""

    target: str
    line: int
    inside_function: bool


@functools.cache
def package_modules() -> dict[str, Module]:
    """Every module of the package by dotted name."""
    return {module.name: module for module in map(_parse, sorted(PACKAGE.rglob("*.py")))}


@functools.cache
def modules_under(*folders: str) -> tuple[Module, ...]:
    """Every Python file below these folders of the repository."""
    return tuple(_parse(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


def imports_of(module: Module) -> Iterator[Import]:
    """All imports, type-checking ones included. `from a import b` gives `a.b` where that is a module, else `a`."""
    functions = [node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(module.tree):
        for target in _targets(module, node):
            assert isinstance(node, ast.stmt)
            yield Import(target=target, line=node.lineno, inside_function=id(node) in inner)


def package_imports(module: Module) -> Iterator[Import]:
    """Only those of the package's own modules."""
    return (found for found in imports_of(module) if found.target in package_modules())


def _targets(module: Module, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            depth = node.level - (1 if module.path.name == "__init__.py" else 0)
            parents = module.name.split(".")
            base = ".".join([*parents[: len(parents) - depth], *([base] if base else [])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in package_modules_names() else base


@functools.cache
def package_modules_names() -> frozenset[str]:
    """Dotted names of the package's modules, without parsing them."""
    return frozenset(_dotted(path) for path in PACKAGE.rglob("*.py"))


def _parse(path: Path) -> Module:
    text = path.read_text()
    return Module(name=_dotted(path), path=path, text=text, tree=ast.parse(text, filename=str(path)))


def _dotted(path: Path) -> str:
    if PACKAGE not in path.parents:
        return str(path.relative_to(ROOT))
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
