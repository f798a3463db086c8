"""The examples run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.model, pytest.mark.namespaces, pytest.mark.e2e]
ROOT = Path(__file__).parents[2]


def test_the_executable_spec_takes_a_step(model_dir: Path) -> None:
    arguments = ["--steps", "1", "--groups", "1", "--group-size", "2", "--max-new-tokens", "16"]
    done = subprocess.run(
        [sys.executable, "examples/tiny_loop.py", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("step 1: reward ")
