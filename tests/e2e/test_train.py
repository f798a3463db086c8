"""The whole loop on the real model: train, kill -9, resume, account for everything."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from burnish.flow.manifest import Commits
from burnish.flow.verify import verify_run
from burnish.observe.events import read_events
from burnish.observe.schema import validate
from burnish.store import RunStore

pytestmark = [pytest.mark.model, pytest.mark.namespaces, pytest.mark.e2e]
ROOT = Path(__file__).parents[2]
DEADLINE_S = 420

# Tasks that the untrained model solves now and then, so that groups carry a signal.
NAMES = {"double": "x * 2", "plus_one": "x + 1", "square": "x * x", "negate": "-x"}


def write_tasks(path: Path) -> Path:
    rows = [
        {
            "id": f"tiny/{name}",
            "family": name,
            "entry_point": name,
            "instruction": f"Write a Python function `{name}(x)` that returns {body}.",
            "reference": f"def {name}(x):\n    return {body}\n",
            "examples": [f"{name}(3)"],
            "hidden": [f"{name}(0)", f"{name}(-7)", f"{name}(12)"],
        }
        for name, body in NAMES.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def command(run: Path, tasks: Path, *options: str, **keys: object) -> list[str]:
    """The quickstart made small; `keys` are overrides with `__` for the dot."""
    small: dict[str, object] = {
        "tasks.train": tasks, "tasks.heldout": tasks, "evaluate.samples_per_task": 1, "train.num_steps": 2,
        "train.checkpoint_every": 1, "train.time_limit_s": "null", "flow.groups_per_step": 2, "flow.group_size": 4,
        "flow.max_lag": 0, "agent.max_new_tokens": 40, "agent.max_turns": 2, "model.max_context_tokens": 512,
        "engine.num_slots": 8,
    }  # fmt: skip
    small |= {key.replace("__", "."): value for key, value in keys.items()}
    overrides = [f"{key}={value}" for key, value in small.items()]
    arguments = ["train", "recipes/quickstart.yaml", *overrides, "--run-dir", str(run), *options]
    return [sys.executable, "-m", "burnish", *arguments]


def events_of(run: Path) -> list[dict[str, Any]]:
    path = run / "events.jsonl"
    return read_events(path) if path.exists() else []


def wait_for(run: Path, process: "subprocess.Popen[bytes]", name: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not any(event["event"] == name for event in events_of(run)):
        assert process.poll() is None, "the run ended too early"
        assert time.monotonic() < deadline, f"no {name} event"
        time.sleep(0.2)


def family_of(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Path:
    """A run that was killed with SIGKILL after its first commit, resumed, and lost its learner then."""
    folder = tmp_path_factory.mktemp("e2e")
    run, tasks = folder / "run", write_tasks(folder / "tasks.jsonl")
    process = subprocess.Popen(command(run, tasks), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(run, process, "checkpoint")
    family = family_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    _, alive = psutil.wait_procs(family, timeout=15)
    assert not alive, f"outlived their owner: {alive}"
    again = subprocess.Popen(
        command(run, tasks, "--resume"), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )  # fmt: skip
    wait_for(run, again, "run.resume")
    learner = next(child for child in family_of(again.pid) if "burnish.learn.worker" in child.cmdline())
    learner.send_signal(signal.SIGKILL)
    out, _ = again.communicate(timeout=DEADLINE_S)
    assert again.returncode == 0, out.decode()
    return run


def test_the_run_ended_with_its_numbers(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["num_steps"] == 2
    assert 0 <= summary["pass_rate_before"] <= 1
    assert 0 <= summary["pass_rate_after"] <= 1
    assert summary["diff_ci95"][0] <= summary["diff_ci95"][1]
    assert (summary["attempted"], summary["measured"], summary["seed"]) == (8, 8, 0)
    assert (finished / "report.html").stat().st_size > 10_000


def test_events_keep_their_schema_and_show_the_resume(finished: Path) -> None:
    events = events_of(finished)
    for event in events:
        validate(event)
    names = Counter(event["event"] for event in events)
    assert (names["run.start"], names["run.resume"], names["run.end"]) == (2, 2, 1)
    lost = next(event for event in events if event["event"] == "run.life")
    assert (lost["boundary"], lost["cause"]) == ("learner", "worker process died: killed by signal 9")
    steps = [event for event in events if event["event"] == "step.end"]
    assert all(event["logprob_gap_mean"] < 0.2 for event in steps), "engine and learner disagree (I4)"
    assert all(event["lag_max"] == 0 for event in steps)


def test_every_attempt_is_accounted_for_exactly_once(finished: Path) -> None:
    """I2 from the files alone."""
    found = asyncio.run(verify_run(RunStore.at(str(finished))))
    assert (found.findings, found.num_open, found.ended) == ([], 0, "completed")
    assert (found.num_steps, found.num_lives) == (2, 3)
    assert found.fates["trained"] > 0
    assert sum(found.fates.values()) == found.num_attempts


def test_the_trained_model_is_a_model(finished: Path) -> None:
    """HF format, finite, and moved."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from burnish.weights.model_files import resolve_model

    model = AutoModelForCausalLM.from_pretrained(finished / "model")
    assert AutoTokenizer.from_pretrained(finished / "model").chat_template
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    before = load_file(resolve_model("smollm2-135m-instruct") / "model.safetensors")
    after = load_file(finished / "checkpoints" / "step-000002" / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(before[name].float(), after[name].float())


def test_a_resume_under_another_configuration_is_refused_with_the_keys(finished: Path) -> None:
    tasks = finished.parent / "tasks.jsonl"
    done = subprocess.run(
        command(finished, tasks, "--resume", learner__lr="1e-4"),
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "learner.lr: 2.5e-05 -> 0.0001" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_commits_what_is_done_and_says_how_to_go_on(tmp_path: Path, model_dir: Path) -> None:
    run, tasks = tmp_path / "run", write_tasks(tmp_path / "tasks.jsonl")
    long = command(run, tasks, train__num_steps=50, train__checkpoint_every=50)
    process = subprocess.Popen(long, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(run, process, "step.end")
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"--resume" in out
    assert b"Traceback" not in out
    commit = asyncio.run(Commits.read(RunStore.at(str(run)))).last
    assert commit is not None
    assert commit.step >= 1
    assert (run / "checkpoints" / str(commit.checkpoint) / "model.safetensors").exists()
    assert events_of(run)[-1]["reason"] == "interrupted"


def test_ctrl_c_twice_ends_at_once_and_leaves_nothing_that_a_resume_would_trust(
    tmp_path: Path, model_dir: Path
) -> None:
    run, tasks = tmp_path / "run", write_tasks(tmp_path / "tasks.jsonl")
    process = subprocess.Popen(command(run, tasks), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(run, process, "eval.progress")
    family = family_of(process.pid)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in out
    assert not (run / "manifests").exists()
    assert not (run / "eval-before.json").exists()
    _, alive = psutil.wait_procs(family, timeout=15)
    assert not alive
