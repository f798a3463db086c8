"""A disk that fills up while the run goes: the cause, exit code 2, nothing half-written that a resume would trust."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_train import DEADLINE_S, ROOT, command, write_tasks

pytestmark = [
    pytest.mark.model,
    pytest.mark.namespaces,
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root"),
]
ROOM = "48m"  # enough for the logs and the first evaluation, not for the weights of a step


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_ends_the_run_with_that_cause(small_disk: Path, tmp_path: Path, model_dir: Path) -> None:
    run = small_disk / "run"
    done = subprocess.run(
        command(run, write_tasks(tmp_path / "tasks.jsonl")),
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    assert "error: store: " in done.stderr
    assert "Traceback" not in done.stderr.split("error: store: ")[0]
    assert not list((run / "manifests").glob("*"))
    assert not list((run / "weights").glob("v*"))
    assert not list((run / "checkpoints").glob("step-*"))
