"""The conductor's handle on the learner process. Imports no torch."""

from pathlib import Path
from typing import Any

from burnish.config import LearnerConfig, ModelConfig
from burnish.errors import LearnerError, StoreError, UserError
from burnish.ipc import WorkerProcess
from burnish.learn.codec import StepMetrics, batch_to_json, metrics_from_json
from burnish.types import Batch, PolicyVersion

START_DEADLINE_S = 600.0  # importing torch and reading the weights, from a cold disk
WRITE_DEADLINE_S = 600.0
ENVIRONMENT = {
    # Tensors of tens of megabytes come and go all the time. By default glibc gives each back to the kernel and faults
    # it in again page by page, a tenth to a fifth of the step's time. Huge pages where the kernel leaves the choice.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736",
    # OpenMP threads wait for each other by spinning. When anything else wants the core, the spinning thread keeps it
    # from the one that is waited for, and a step can take ten times as long. A short spin costs little and avoids that.
    "GOMP_SPINCOUNT": "20000",
}


class Learner:
    """Optimizer steps, published weights and checkpoints, in a process of its own. One call at a time.

    Example:
        learner = await Learner.start(model_dir, config=config.learner, model=config.model, max_lag=0, log_path=log)
        metrics = await learner.step(batch)
        with publish_version(run / "weights", learner.version) as path:
            await learner.publish(path)
    """

    def __init__(self, worker: WorkerProcess, config: LearnerConfig) -> None:
        self._worker = worker
        self._config = config
        self._version: PolicyVersion = 0

    @classmethod
    async def start(
        cls,
        model_dir: Path,
        *,
        config: LearnerConfig,
        model: ModelConfig,
        max_lag: int,
        log_path: Path,
        resume_from: Path | None = None,
    ) -> "Learner":
        """Starts the process and loads `model_dir`, or the checkpoint `resume_from` with its optimizer state.

        Raises UserError for a folder that holds no model, LearnerError when the process died or cannot train this
        architecture, StoreError when the checkpoint is torn.
        """
        for folder in (model_dir, resume_from):
            if folder is not None and not (folder / "config.json").is_file():
                raise UserError("no model here: config.json is missing", where=str(folder))
        worker = await WorkerProcess.start(
            "burnish.learn.worker", error=LearnerError, log_path=log_path, env=ENVIRONMENT
        )
        learner = cls(worker, config)
        params = {
            "model_dir": str(resume_from or model_dir),
            "config": config.model_dump(),
            "model": model.model_dump(),
            "max_lag": max_lag,
            "resume_from": None if resume_from is None else str(resume_from),
        }
        try:
            await learner._call("start", params, deadline_s=START_DEADLINE_S)
        except BaseException:  # cancellation too: nobody else knows of the process yet
            await learner.close()
            raise
        return learner

    @property
    def version(self) -> PolicyVersion:
        """Number of committed optimizer steps."""
        return self._version

    @property
    def pid(self) -> int:
        return self._worker.pid

    async def step(self, batch: Batch) -> StepMetrics:
        """One optimizer step; `version` is one higher after it.

        Raises LearnerError when the batch is refused (wrong step, a token beyond the lag bound, a malformed row), when
        something is not finite, on death or deadline. A refused batch leaves the learner as it was.
        """
        result = await self._call("step", {"batch": batch_to_json(batch)}, deadline_s=self._config.step_timeout_s)
        return metrics_from_json(result)

    async def publish(self, path: Path) -> None:
        """Writes the current weights in the working dtype, config and tokenizer into the folder `path`. Not atomic."""
        await self._call("publish", {"path": str(path)}, deadline_s=WRITE_DEADLINE_S)

    async def save_checkpoint(self, path: Path) -> None:
        """Writes float32 weights in Hugging Face format, optimizer state and version into `path`. Not atomic."""
        await self._call("save_checkpoint", {"path": str(path)}, deadline_s=WRITE_DEADLINE_S)

    async def load(self, path: Path) -> None:
        """Goes back (or forward) to a checkpoint. Raises StoreError when it is torn."""
        await self._call("load", {"path": str(path)}, deadline_s=START_DEADLINE_S)

    async def close(self) -> None:
        """Ends the process. Idempotent. A step that runs gets a few seconds, then it is killed."""
        await self._worker.close()

    async def _call(self, method: str, params: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
        try:
            result: dict[str, Any] = await self._worker.call(method, params, deadline_s=deadline_s)
        except LearnerError as error:
            # A full disk met by the learner is still the store's failure: the innermost wall is the address.
            prefix = f"{StoreError.__name__}: {StoreError.boundary}: "
            if error.cause.startswith(prefix):
                raise StoreError(error.cause.removeprefix(prefix), evidence=error.evidence) from error
            raise
        self._version = result["version"]
        return result
