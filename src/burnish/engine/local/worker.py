"""The engine's process: `python -m burnish.engine.local.worker`, started by `LocalEngine`.

Between two tokens it looks for messages; without work it sleeps in `poll` until one comes. An exception of `step` is
not caught: the state of the batch is unknown then, so the process ends and every pending request fails with the
traceback.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from burnish.engine.local.core import EngineCore
from burnish.engine.local.model import load_model
from burnish.engine.local.tokenizer import load_tokenizer
from burnish.errors import UserError
from burnish.ipc import Request, WorkerSide
from burnish.types import Completion, Sampling

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class LazyDecoder:
    """Loads the tokenizer when the first request with stop strings comes; most runs stop at token ids and never do."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir
        self._tokenizer: Any = None

    def __call__(self, token_ids: Sequence[int]) -> str:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._model_dir)
        text: str = self._tokenizer.decode(list(token_ids), clean_up_tokenization_spaces=False)
        return text


class Worker:
    """Answers the calls of `LocalEngine`: load, generate, update_weights, stats."""

    def __init__(self, side: WorkerSide) -> None:
        self._side = side
        self._core: EngineCore | None = None
        self._methods: dict[str, Callable[..., Any]] = {
            "load": self._load,
            "update_weights": self._update_weights,
            "stats": self._stats,
        }

    def run(self) -> None:
        """Until the conductor hangs up."""
        while True:
            busy = self._core is not None and self._core.busy
            try:
                requests = self._side.poll(timeout_s=0 if busy else None)
            except EOFError:
                return
            for request in requests:
                self._answer(request)
            if self._core is not None:
                for finished in self._core.step():
                    self._side.reply(finished.request_id, completion_to_json(finished.completion))

    def _answer(self, request: Request) -> None:
        try:
            if request.method == "cancel":
                self._loaded().cancel(request.id)
            elif request.method == "generate":
                sampling = sampling_from_json(request.params["sampling"])
                self._loaded().add(request.id, request.params["prompt_ids"], sampling)
            else:
                self._side.reply(request.id, self._methods[request.method](**request.params))
        except Exception as error:  # noqa: BLE001 (a request that fails is answered; the process serves the others)
            self._side.fail(request.id, error)

    def _loaded(self) -> EngineCore:
        if self._core is None:
            raise RuntimeError("no model is loaded")
        return self._core

    def _load(
        self,
        *,
        model_dir: str,
        dtype: str,
        device: str,
        num_slots: int,
        num_threads: int,
        max_context_tokens: int,
        version: int,
    ) -> dict[str, Any]:
        torch.set_num_threads(num_threads)
        folder = Path(model_dir)
        try:
            self._core = EngineCore(
                load_model(folder, dtype=DTYPES[dtype], device=device),
                num_slots=num_slots,
                max_context_tokens=max_context_tokens,
                version=version,
                decode=LazyDecoder(folder),
            )
        except UserError as error:
            return {"user_error": {"cause": error.cause, "where": error.where, "fix": error.fix}}
        return {}

    def _update_weights(self, *, path: str, version: int) -> None:
        self._loaded().update_weights(Path(path), version)

    def _stats(self) -> dict[str, Any]:
        core = self._loaded()
        return {
            "running": core.num_running,
            "waiting": core.num_waiting,
            "num_generated_tokens": core.num_generated_tokens,
            "queue_s": core.queue_s,
        }


def sampling_from_json(fields: dict[str, Any]) -> Sampling:
    """JSON has no tuples."""
    tuples: dict[str, Any] = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Sampling(**fields | tuples)


def completion_to_json(completion: Completion) -> dict[str, Any]:
    """The fields of a completion; read back by `LocalEngine.generate`."""
    return {name: getattr(completion, name) for name in completion.__slots__}


if __name__ == "__main__":
    Worker(WorkerSide()).run()
