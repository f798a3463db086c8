"""Learner tokens a second of one GRPO step against TRL's GRPOTrainer: same model, prompts, completions and dtype.

    python bench/learner.py [--quick] [--model FOLDER_OR_NAME] [--alone]

48 completions of 72 tokens in 6 groups of 8, rewards of both signs, bf16 arithmetic over float32 weights, no reference
model. Counted are the completion tokens of a step over the seconds of that step without generation, on both sides:
forward, backward, optimizer, and for us the way to the learner's process and back. Completions are fixed random tokens
(what they say does not change the work). TRL gets the settings that were fastest here and the learner's environment
variables; it runs in `.venv-trl`, made on first use (`TORCH` and `PIP_FLAGS` as in the Makefile). The sides alternate.
`--alone` measures only burnish.
"""

import argparse
import asyncio
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _bench import Bench, alternate, median, spread
from burnish.config import LearnerConfig, ModelConfig
from burnish.engine.local.tokenizer import load_tokenizer
from burnish.flow.packing import pack_row
from burnish.learn.client import ENVIRONMENT, Learner
from burnish.rollout.agent import CodeAgent
from burnish.tasks.load import load_tasks
from burnish.types import Action, Batch, Step, Trajectory
from burnish.weights.model_files import resolve_model

ROOT = Path(__file__).resolve().parent.parent
TRL_ENV = ROOT / ".venv-trl"
TRL_VERSION = "1.16.0"
SPEEDUP_BAR = 2.0
NUM_GROUPS, GROUP_SIZE, NUM_NEW = 6, 8, 72
NUM_TOKENS = NUM_GROUPS * GROUP_SIZE * NUM_NEW


def render_prompts(tokenizer: Any) -> list[str]:
    """The first prompts of some built-in tasks, as the quickstart's agent sends them."""
    conversations = [CodeAgent().open(task) for task in load_tasks("builtin:train").tasks[::7][:NUM_GROUPS]]
    return [tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in conversations]


def random_completions(vocab_size: int) -> list[list[int]]:
    """Without the special tokens at the start of the vocabulary: nothing ends early on either side."""
    chance = random.Random(0)
    return [[chance.randrange(100, vocab_size) for _ in range(NUM_NEW)] for _ in range(NUM_GROUPS * GROUP_SIZE)]


def as_batch(prompts: list[list[int]], completions: list[list[int]], step: int) -> Batch:
    """Behaviour logprobs of uniform sampling: far off for random text, but the loss does the same work for any."""
    trajectories = [
        Trajectory(
            id=f"g{number // GROUP_SIZE}.{number}",
            group_id=f"g{number // GROUP_SIZE}",
            task_id="bench",
            family="bench",
            steps=(
                Step(
                    prompt_ids=tuple(prompts[number // GROUP_SIZE]),
                    output_ids=tuple(completion),
                    logprobs=(-10.8,) * NUM_NEW,
                    versions=(step,) * NUM_NEW,
                    finish="length",
                    action=Action(kind="none", text=""),
                    observation=None,
                ),
            ),
            stop_reason="max_turns",
        )
        for number, completion in enumerate(completions)
    ]
    groups = [trajectories[start : start + GROUP_SIZE] for start in range(0, len(trajectories), GROUP_SIZE)]
    return Batch(
        step=step,
        rows=tuple(pack_row(group, (-1.0, 1.0) * (GROUP_SIZE // 2)) for group in groups),
        temperature=1.0,
        trajectory_ids=tuple(trajectory.id for trajectory in trajectories),
        group_ids=tuple(group[0].group_id for group in groups),
    )


def make_trl_environment() -> None:
    """Makes `.venv-trl` when it is not complete. Raises CalledProcessError when pip fails."""
    done = TRL_ENV / ".ready"
    if done.exists():
        return
    flags = shlex.split(os.environ.get("PIP_FLAGS", ""))
    pip = [str(TRL_ENV / "bin/python"), "-m", "pip", "install", "--quiet", *flags]
    subprocess.run([sys.executable, "-m", "venv", str(TRL_ENV)], check=True)
    subprocess.run([*pip, os.environ.get("TORCH", "torch==2.13.0")], check=True)
    subprocess.run([*pip, f"trl=={TRL_VERSION}"], check=True)
    done.touch()


def start_trl(model_dir: Path, prompts: list[str], completions: list[list[int]], folder: Path) -> Any:
    """The process that takes TRL's steps; see `_trl_side.py`. Its chatter goes to a log in `folder`."""
    work = folder / "work.json"
    work.write_text(
        json.dumps(
            {
                "model_dir": str(model_dir),
                "prompts": prompts,
                "completions": completions,
                "group_size": GROUP_SIZE,
            }
        )
    )
    with (folder / "trl.log").open("wb") as log:
        return subprocess.Popen(
            [str(TRL_ENV / "bin/python"), str(ROOT / "bench/_trl_side.py"), str(work)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder,
            env={**os.environ, **ENVIRONMENT, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip


def run_trl(process: Any, folder: Path) -> float:
    """Completion tokens a second of one step."""
    process.stdin.write("go\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("STEP "):
            return NUM_TOKENS / float(line.removeprefix("STEP "))
    raise RuntimeError(f"TRL ended: {(folder / 'trl.log').read_text()[-2000:]}")


def measure(bench: Bench, runs: dict[str, Callable[[], float]], num_rounds: int) -> None:
    alternate(runs, num_rounds=1)  # warm-up: allocations, optimizer state
    speeds = alternate(runs, num_rounds=num_rounds)
    for side, values in speeds.items():
        bench.report(f"{side}_tokens_per_s", median(values), "tokens/s")
        bench.report(f"{side}_step_s", NUM_TOKENS / median(values), "s")
        bench.report(f"{side}_spread", spread(values), "of the median")
    if "trl" in speeds:
        ratios = [ours / theirs for ours, theirs in zip(speeds["burnish"], speeds["trl"], strict=True)]
        bench.report("speedup", median(ratios), "x", bar=SPEEDUP_BAR)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round instead of three")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--alone", action="store_true", help="without TRL")
    options = parser.parse_args()
    model_dir = resolve_model(options.model)
    tokenizer: Any = load_tokenizer(model_dir)
    texts, completions = render_prompts(tokenizer), random_completions(len(tokenizer))
    prompts = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    bench = Bench("learner")
    bench.report("prompt_tokens_mean", sum(map(len, prompts)) / len(prompts), "tokens")
    with tempfile.TemporaryDirectory() as name, asyncio.Runner() as runner:
        folder = Path(name)
        learner = runner.run(
            Learner.start(
                model_dir, config=LearnerConfig(), model=ModelConfig(), max_lag=0, log_path=folder / "learner.log"
            )
        )

        def run_burnish() -> float:
            batch = as_batch(prompts, completions, learner.version)
            began_s = time.perf_counter()
            runner.run(learner.step(batch))
            return NUM_TOKENS / (time.perf_counter() - began_s)

        runs: dict[str, Callable[[], float]] = {"burnish": run_burnish}
        trl = None
        try:
            if not options.alone:
                make_trl_environment()
                trl = start_trl(model_dir, texts, completions, folder)
                runs["trl"] = lambda: run_trl(trl, folder)
            measure(bench, runs, num_rounds=1 if options.quick else 3)
        finally:
            if trl is not None:
                trl.kill()
                trl.wait()
            runner.run(learner.close())
    return bench.exit_code


if __name__ == "__main__":
    sys.exit(main())
