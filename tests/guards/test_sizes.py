"""The bad trees of this field are bad in the tail: one function of 600 lines, one file of 2000."""

import ast
import re

from tests.guards.source import ROOT, modules_under, package_modules

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_TINY_LOOP_LINES = 250
FOLDERS = ("src", "tests", "bench", "examples")
DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
UNFINISHED = re.compile(r"#.*\b(TODO|FIXME|XXX)\b|NotImplementedError")


def test_files_are_short() -> None:
    long = {m.label: n for m in modules_under(*FOLDERS) if (n := m.text.count("\n")) > MAX_FILE_LINES}
    assert not long, long


def test_functions_are_short() -> None:
    long = {}
    for module in modules_under(*FOLDERS):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long[f"{module.label}:{node.lineno} {node.name}"] = lines
    assert not long, long


def test_the_executable_spec_fits_on_a_few_screens() -> None:
    assert (ROOT / "examples" / "tiny_loop.py").read_text().count("\n") <= MAX_TINY_LOOP_LINES


def test_public_names_are_documented() -> None:
    bare = []
    for module in package_modules().values():
        if module.text.strip() and ast.get_docstring(module.tree) is None:
            bare.append(module.label)
        public = [n for n in module.tree.body if isinstance(n, DEFINITIONS) and not n.name.startswith("_")]
        bare += [f"{module.label}:{n.lineno} {n.name}" for n in public if ast.get_docstring(n) is None]
    assert not bare, "no docstring:\n" + "\n".join(bare)


def test_nothing_is_unfinished() -> None:
    wrong = [f"{m.label}: {found[0]}" for m in modules_under("src") if (found := UNFINISHED.search(m.text))]
    assert not wrong, "\n".join(wrong)


def test_every_part_has_tests_that_import_it() -> None:
    parts = {".".join(name.split(".")[:2]) for name in package_modules() if "." in name}
    tests = "\n".join(m.text for m in modules_under("tests"))
    untested = [part for part in sorted(parts) if not re.search(rf"\b{re.escape(part)}\b", tests)]
    assert not untested, untested
