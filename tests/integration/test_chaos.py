"""Strikes hit what they are aimed at, and a run is resumed until it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from burnish import chaos
from burnish.chaos import ChaosPlan, find_below, put_through
from burnish.errors import UserError

SLEEP = "import time; time.sleep(600)"


def parent_of(*words: str) -> str:
    """A program that starts one child for each word and waits."""
    starts = "".join(f"subprocess.Popen([sys.executable, '-c', {SLEEP!r}, {word!r}]);" for word in words)
    return f"import subprocess, sys, time; {starts} print('ready', flush=True); time.sleep(600)"


@contextlib.contextmanager
def running(program: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_process_is_found_below_the_run_and_nowhere_else() -> None:
    with running(parent_of("burnish.engine.local.worker")) as ours, running(parent_of("burnish.learn.worker")):
        engine = find_below(ours.pid, "burnish.engine.local.worker")
        assert engine is not None
        assert b"engine.local.worker" in Path(f"/proc/{engine}/cmdline").read_bytes()
        assert find_below(ours.pid, "burnish.learn.worker") is None, "that one is somebody else's"


class Lives:
    """Stands for `burnish train`: a program for each life of the run."""

    def __init__(self, programs: Sequence[str], run: Path) -> None:
        self.programs = list(programs)
        self.run = run
        self.arguments: list[Sequence[str]] = []

    @contextlib.contextmanager
    def process(self, arguments: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
        self.arguments.append(arguments)
        self.run.mkdir(exist_ok=True)
        (self.run / "config.yaml").touch()
        with running(f"print('', flush=True); {self.programs.pop(0)}") as process:
            yield process


def test_a_run_that_is_struck_goes_on_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    lives = Lives([SLEEP, parent_of("burnish.learn.worker") + "; " + SLEEP, "raise SystemExit(0)"], run)
    monkeypatch.setattr(chaos, "_process", lives.process)
    monkeypatch.setattr(chaos, "_POLL_S", 0.01)
    told: list[str] = []
    plan = ChaosPlan(targets=("run",), num_strikes=2, per_minute=600.0, seed=1)
    ordeal = put_through(["recipe.yaml"], run, plan, tell=told.append)
    assert (ordeal.exit_code, ordeal.num_processes, dict(ordeal.strikes)) == (0, 3, {"kill run": 2})
    assert [("--resume" in arguments) for arguments in lives.arguments] == [False, True, True]
    assert lives.arguments[0] == ["recipe.yaml", "--run-dir", str(run)]
    assert any("going on from its last commit" in line for line in told)


def test_a_stopped_process_goes_on_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ChaosPlan(targets=("engine",), num_strikes=1, per_minute=600.0, stop_share=1.0, stop_s=0.5, seed=1)
    with running(parent_of("burnish.engine.local.worker")) as process:
        engine = find_below(process.pid, "burnish.engine.local.worker")
        assert engine is not None
        ended: list[bool] = []

        def tell(line: str) -> None:
            ended.append(is_stopped(engine))

        real_sleep, deadline = time.sleep, time.monotonic() + 20

        def sleep(seconds: float) -> None:
            real_sleep(0.01)
            if ended and not is_stopped(engine):
                process.kill()
            assert time.monotonic() < deadline

        monkeypatch.setattr("burnish.chaos.time.sleep", sleep)
        monkeypatch.setattr(chaos, "_process", lambda arguments: contextlib.nullcontext(process))
        monkeypatch.setattr(chaos, "_MAX_FUTILE_LIVES", 0)
        ordeal = put_through([], tmp_path, plan, tell=tell)
        assert ended[0] is True
        assert dict(ordeal.strikes) == {"stop engine": 1}


def test_a_run_that_keeps_dying_by_itself_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = Lives(["raise SystemExit(1)"] * 9, tmp_path / "run")
    monkeypatch.setattr(chaos, "_process", lives.process)
    plan = ChaosPlan(targets=("engine",), num_strikes=0, per_minute=1.0)
    ordeal = put_through([], tmp_path / "run", plan, tell=lambda line: None)
    assert (ordeal.exit_code, ordeal.num_processes) == (1, 6)


@pytest.mark.parametrize(("targets", "rate"), [(("moon",), 1.0), ((), 1.0), (("run",), 0.0)])
def test_a_plan_that_cannot_be_carried_out_is_refused(targets: tuple[str, ...], rate: float) -> None:
    with pytest.raises(UserError):
        ChaosPlan(targets=targets, num_strikes=1, per_minute=rate)
