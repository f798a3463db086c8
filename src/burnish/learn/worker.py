"""The learner's process: `python -m burnish.learn.worker`. Waits without using a CPU; one request at a time.

Methods: `start`, `step`, `publish`, `save_checkpoint`, `load`. Whatever a method raises is answered as an error and the
process goes on; a step that failed left the weights as they were.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from burnish.config import LearnerConfig, ModelConfig
from burnish.ipc import Request, WorkerSide
from burnish.learn import files
from burnish.learn.codec import batch_from_json, metrics_to_json
from burnish.learn.policy import load_policy
from burnish.learn.step import Trainer


class Worker:
    """Holds the trainer between requests."""

    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._model_dir = Path()
        self.methods: dict[str, Callable[[dict[str, Any]], Any]] = {
            "start": self._start,
            "step": self._step,
            "publish": self._publish,
            "save_checkpoint": self._save_checkpoint,
            "load": self._load,
        }

    @property
    def trainer(self) -> Trainer:
        if self._trainer is None:
            raise RuntimeError("the learner was not started")
        return self._trainer

    def _start(self, params: dict[str, Any]) -> dict[str, Any]:
        config = LearnerConfig.model_validate(params["config"])
        model = ModelConfig.model_validate(params["model"])
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        self._model_dir = Path(params["model_dir"])
        policy = load_policy(self._model_dir)
        self._trainer = Trainer(policy, config, dtype=getattr(torch, model.dtype), max_lag=params["max_lag"])
        if params["resume_from"] is not None:
            return self._load({"path": params["resume_from"]})
        return {"version": self.trainer.version}

    def _step(self, params: dict[str, Any]) -> dict[str, Any]:
        return metrics_to_json(self.trainer.step(batch_from_json(params["batch"])))

    def _publish(self, params: dict[str, Any]) -> dict[str, Any]:
        files.write_published(Path(params["path"]), self.trainer.policy, self._model_dir)
        return {"version": self.trainer.version}

    def _save_checkpoint(self, params: dict[str, Any]) -> dict[str, Any]:
        trainer = self.trainer
        files.write_checkpoint(
            Path(params["path"]), trainer.policy, trainer.optimizer, trainer.version, self._model_dir
        )
        return {"version": trainer.version}

    def _load(self, params: dict[str, Any]) -> dict[str, Any]:
        weights, moments, version = files.read_checkpoint(Path(params["path"]))
        self.trainer.optimizer.restore(weights, moments)
        self.trainer.version = version
        return {"version": version}


def _answer(side: WorkerSide, worker: Worker, request: Request) -> None:
    try:
        result = worker.methods[request.method](request.params)
    except Exception as error:  # noqa: BLE001 the boundary of the process: whatever it is, the conductor is told (see ipc)
        side.fail(request.id, error)
    else:
        side.reply(request.id, result)


def main() -> None:
    """Serves requests until the conductor hangs up."""
    logging.disable_progress_bar()
    side, worker = WorkerSide(), Worker()
    with contextlib.suppress(EOFError):  # the conductor hung up: that is how a learner ends
        while True:
            requests = side.poll(timeout_s=None)
            given_up = {request.id for request in requests if request.method == "cancel"}
            for request in requests:
                # A step that has begun is finished; only one that still waits can be taken back.
                if request.id not in given_up:
                    _answer(side, worker, request)


if __name__ == "__main__":
    main()
