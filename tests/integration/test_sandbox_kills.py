"""Nothing outlives its owner (I7), at whichever packet of whichever operation it, or its host, is killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.namespaces

PROGRAM = Path(__file__).with_name("_killed_at_steps.py")
OPERATIONS = ("start", "create", "exec", "write", "snapshot", "live snapshot", "fork", "restore", "kill")


def test_whoever_is_killed_at_whichever_step_leaves_nothing() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=300)
    if "UserError" in done.stderr:
        pytest.skip(f"no sandboxes on this machine: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["left"] == {}
    for victim in ("owner", "host"):
        for operation in OPERATIONS:  # each has a packet to go and one to come, at the least
            assert report["steps"].get(f"{victim} in {operation}", 0) >= 2, report["steps"]
