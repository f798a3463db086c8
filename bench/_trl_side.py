"""TRL's GRPOTrainer for bench/learner.py; runs in TRL's own environment and takes a step whenever it is told to.

    .venv-trl/bin/python bench/_trl_side.py WORK.json     a line on stdin -> one optimizer step, its seconds on stdout

Generation is replaced by completions that are given, so a step's time is scoring, forward, backward and optimizer.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class OnDemand(TrainerCallback):
    """Holds the trainer before each step until a line arrives, and answers with the step's seconds."""

    began_s = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if not sys.stdin.readline():
            sys.exit(0)
        self.began_s = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        print(f"STEP {time.perf_counter() - self.began_s}", flush=True)


def rewards(completions: list[Any], **_: Any) -> list[float]:
    """Both signs in every group, so that no completion has advantage 0."""
    return [float(number % 2) for number in range(len(completions))]


def main() -> None:
    work = json.loads(Path(sys.argv[1]).read_text())
    given: Iterator[list[int]] = iter([])

    def generate(input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        nonlocal given
        rows = []
        for _row in input_ids:
            completion = next(given, None)
            if completion is None:
                given = iter(work["completions"])
                completion = next(given)
            rows.append(completion)
        return torch.cat([input_ids, torch.tensor(rows)], dim=1)

    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        bf16=True,
        use_vllm=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=len(work["completions"]) // 2,
        gradient_accumulation_steps=2,
        num_generations=work["group_size"],
        max_completion_length=len(work["completions"][0]),
        beta=0.0,
        max_steps=1_000_000,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=work["model_dir"],
        reward_funcs=rewards,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": work["prompts"]}),
        callbacks=[OnDemand()],
    )
    trainer.model.generate = generate
    trainer.train()


if __name__ == "__main__":
    main()
