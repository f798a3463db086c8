"""The asyncio side of the local engine: a `GenerateFn` whose model lives in a process of its own."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from burnish.engine.base import EngineStats
from burnish.errors import BoundaryError, EngineError, UserError
from burnish.ipc import WorkerProcess
from burnish.types import Completion, PolicyVersion, Sampling

LOAD_DEADLINE_S = 600.0  # a large model from a cold disk
OMP_ENV = {"GOMP_SPINCOUNT": "20000"}
"""How long a worker thread spins at a barrier before it sleeps. Sandboxes want the same cores: with the default, a
thread spins for one that is not scheduled (5 times slower beside one busy process); without spinning, decoding on two
quiet cores is a quarter slower."""


class LocalEngine:
    """A transformers causal LM on the CPU or one GPU, with continuous batching. See `burnish.engine.base.Engine`.

    Example:
        engine = await LocalEngine.start(model_dir, dtype="bfloat16", device="cpu", num_slots=48, num_threads=None,
            max_context_tokens=1024, log_path=run_dir / "engine.log", request_timeout_s=300)
        completion = await engine.generate(prompt_ids, Sampling(max_new_tokens=96))
        await engine.close()
    """

    def __init__(self, worker: WorkerProcess, *, request_timeout_s: float) -> None:
        self._worker = worker
        self._request_timeout_s = request_timeout_s
        self._closed = False

    @classmethod
    async def start(
        cls,
        model_dir: Path,
        *,
        dtype: Literal["bfloat16", "float32"],
        device: str,
        num_slots: int,
        num_threads: int | None,
        max_context_tokens: int,
        log_path: Path,
        request_timeout_s: float,
        version: PolicyVersion = 0,
    ) -> "LocalEngine":
        """Starts the process and loads the model.

        Args:
            num_slots: sequences decoded together; more requests wait.
            num_threads: None is every core this process may use.
            max_context_tokens: prompt and completion together.
            version: what the weights in `model_dir` are called.

        Raises UserError for a model that cannot be served, EngineError when the process fails.
        """
        threads = num_threads or len(os.sched_getaffinity(0))
        worker = await WorkerProcess.start(
            "burnish.engine.local.worker",
            error=EngineError,
            log_path=log_path,
            env={"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", **OMP_ENV},
        )
        engine = cls(worker, request_timeout_s=request_timeout_s)
        params = {
            "model_dir": str(model_dir),
            "dtype": dtype,
            "device": device,
            "num_slots": num_slots,
            "num_threads": threads,
            "max_context_tokens": max_context_tokens,
            "version": version,
        }
        try:
            answer = await worker.call("load", params, deadline_s=LOAD_DEADLINE_S)
            if "user_error" in answer:
                raise UserError(answer["user_error"].pop("cause"), **answer["user_error"])
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def pid(self) -> int:
        """The engine process."""
        return self._worker.pid

    @property
    def death(self) -> BoundaryError | None:
        """Why the process is gone; None while it lives."""
        return self._worker.death

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, /) -> Completion:
        """Continues one prompt. Cancelling the caller frees the slot within a token.

        Raises EngineError for a request that cannot be served (empty prompt, one that fills the context, a token id
        outside the vocabulary), a missed deadline, and a dead or closed engine.
        """
        params = {"prompt_ids": list(prompt_ids), "sampling": dataclasses.asdict(sampling)}
        answer = await self._call("generate", params)
        return Completion(
            token_ids=tuple(answer["token_ids"]),
            logprobs=tuple(answer["logprobs"]),
            versions=tuple(answer["versions"]),
            finish=answer["finish"],
        )

    async def update_weights(self, path: Path, version: PolicyVersion, /) -> None:
        """Loads a folder's safetensors between two tokens.

        Running requests go on with the keys and values that they have; their later tokens carry `version`. Raises
        EngineError, with the old weights still in place, when the folder does not hold the same model's weights.
        """
        await self._call("update_weights", {"path": str(path), "version": version})

    async def stats(self) -> EngineStats:
        """Raises EngineError when the engine is gone."""
        return EngineStats(**await self._call("stats", {}))

    async def kill(self, cause: str, /) -> None:
        """See `Engine.kill`."""
        await self._worker.kill(cause)

    async def close(self) -> None:
        """Ends the process. Idempotent; requests still running fail with EngineError."""
        self._closed = True
        await self._worker.close()

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        if self._closed:
            raise EngineError(f"{method}: the engine is closed")
        return await self._worker.call(method, params, deadline_s=self._request_timeout_s)
