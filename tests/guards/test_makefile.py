"""`make setup` on a machine that lacks something names it, and touches nothing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.guards.source import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def make(checkout: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if "MAKE" not in name}  # of the `make test` around us
    return subprocess.run(["make", *words], cwd=checkout, env=env, capture_output=True, text=True, check=False)


def test_no_python(checkout: Path) -> None:
    done = make(checkout, "setup", "PYTHON=")
    assert done.returncode == 2
    assert "needs Python 3.11 or newer" in done.stderr
    assert "apt-get install python3 python3-venv python3-pip" in done.stderr
    assert not (checkout / ".venv").exists()


def test_python_without_venv(checkout: Path) -> None:
    done = make(checkout, "setup", "PYTHON=false")
    assert done.returncode == 2
    assert "apt-get install python3-venv python3-pip" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_python_new_enough_is_found(checkout: Path) -> None:
    done = make(checkout, "--dry-run", "setup")
    assert done.returncode == 0
    assert "-m venv .venv" in done.stdout and "install" in done.stdout


def test_set_up_once(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    for stamp in (".python", ".torch", ".ready"):
        (checkout / ".venv" / stamp).touch()
    assert "pip install" not in make(checkout, "--dry-run", "setup").stdout
    (checkout / ".venv" / ".ready").unlink()
    assert "pip install" in make(checkout, "--dry-run", "setup").stdout
