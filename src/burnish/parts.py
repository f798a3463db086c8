"""The parts of a run, opened in order and closed in reverse, whatever happens in between."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from burnish.attempts import AttemptRunner, OnStep
from burnish.config import RunConfig
from burnish.engine.base import Engine
from burnish.engine.local.client import LocalEngine
from burnish.engine.local.tokenizer import load_tokenizer
from burnish.engine.restart import RestartingEngine
from burnish.errors import UserError
from burnish.hardware import computable
from burnish.learn.client import Learner
from burnish.learn.codec import StepMetrics
from burnish.reward.grade import HiddenTests
from burnish.rollout.agent import CodeAgent
from burnish.rollout.loop import RolloutSetup
from burnish.rollout.progress import SandboxKeeper, SnapshotKeeper
from burnish.rollout.render import ChatRenderer, Renderer
from burnish.sandbox import make_backend
from burnish.sandbox.base import SandboxBackend
from burnish.sandbox.objects import ObjectStore
from burnish.store import RunStore
from burnish.tasks.load import load_tasks
from burnish.types import Batch, PolicyVersion, Sampling, Task, TaskSet
from burnish.weights.model_files import resolve_model


class StepTaker(Protocol):
    """What the conductor needs of a learner; `learn.client.Learner` says what each call raises."""

    async def step(self, batch: Batch) -> StepMetrics: ...
    async def publish(self, path: Path) -> None: ...
    async def save_checkpoint(self, path: Path) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything a run needs, alive."""

    config: RunConfig
    train: TaskSet
    heldout: TaskSet
    renderer: Renderer
    backend: SandboxBackend
    engine: Engine
    learner: StepTaker
    keeper: SandboxKeeper | None = None  # where training attempts save their sandboxes

    @cached_property
    def train_by_id(self) -> dict[str, Task]:
        return {task.id: task for task in self.train.tasks}

    @property
    def max_concurrent(self) -> int:
        return min(self.config.engine.num_slots, self.config.sandbox.max_live)

    def sampling(self, temperature: float) -> Sampling:
        agent = self.config.agent
        return Sampling(
            max_new_tokens=agent.max_new_tokens,
            temperature=temperature,
            stop_ids=self.renderer.stop_ids,
            stop_strings=CodeAgent.stop_strings,
        )

    def attempt_runner(
        self,
        *,
        tasks: TaskSet | None = None,
        temperature: float | None = None,
        label: str | None = None,
        on_step: OnStep | None = None,
    ) -> AttemptRunner:
        """Attempts at the training tasks, or at an evaluation's with its own temperature and label.

        With `on_step`, which hears of each finished step, attempts can be continued, and save their sandboxes.
        """
        config = self.config
        tasks = tasks or self.train
        setup = RolloutSetup(
            generate=self.engine.generate,
            backend=self.backend,
            renderer=self.renderer,
            agent=CodeAgent(),
            sampling=self.sampling(config.agent.temperature if temperature is None else temperature),
            max_turns=config.agent.max_turns,
            max_context_tokens=config.model.max_context_tokens,
            keeper=None if on_step is None else self.keeper,
        )
        return AttemptRunner(
            setup=setup,
            grader=HiddenTests(vault=tasks.vault, backend=self.backend, partial=config.reward.partial),
            max_retries=config.flow.max_attempt_retries,
            timeout_s=config.flow.attempt_timeout_s,
            label=label,
            on_step=on_step,
        )


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run starts from, checked before anything is written or started."""

    train: TaskSet
    heldout: TaskSet
    model_dir: Path


def load_inputs(config: RunConfig) -> Inputs:
    """Loads the tasks and finds the model; the built-in one is converted on first use.

    Raises UserError for tasks or a model that cannot be used.
    """
    return Inputs(
        train=load_tasks(config.tasks.train, bands=config.tasks.bands, max_tasks=config.tasks.max_tasks),
        heldout=load_tasks(config.tasks.heldout, bands=config.tasks.bands),
        model_dir=resolve_model(config.model.path),
    )


@contextlib.asynccontextmanager
async def open_parts(
    config: RunConfig, inputs: Inputs, *, store: RunStore, logs: Path, checkpoint: Path | None, version: PolicyVersion
) -> AsyncIterator[Parts]:
    """Starts sandboxes, engine and learner. `checkpoint` None starts from the model itself.

    Raises UserError for a model that cannot be served or trained, a BoundaryError for a part that does not start.
    """
    model_dir = inputs.model_dir
    renderer = ChatRenderer(load_tokenizer(model_dir))
    start_engine = partial(start_local_engine, config=config, log_path=logs / "engine.log")
    async with AsyncExitStack() as stack:
        backend = make_backend(config.sandbox.backend, audit=logs / "sandbox-audit.jsonl", listed=True)
        stack.push_async_callback(backend.close)
        for tasks in (inputs.train, inputs.heldout):
            await require_network(backend, tasks)
        engine_task = asyncio.create_task(
            RestartingEngine.start(start_engine, path=checkpoint or model_dir, version=version)
        )
        stack.push_async_callback(_close_engine, engine_task)
        learner = await Learner.start(
            model_dir,
            config=config.learner,
            model=config.model.model_copy(update={"dtype": computable(config.model.dtype, "cpu")}),
            max_lag=config.flow.max_lag,
            log_path=logs / "learner.log",
            resume_from=checkpoint,
        )
        stack.push_async_callback(learner.close)
        yield Parts(
            config=config,
            train=inputs.train,
            heldout=inputs.heldout,
            renderer=renderer,
            backend=backend,
            engine=await engine_task,
            learner=learner,
            keeper=await _keeper(backend, store),
        )


async def _keeper(backend: SandboxBackend, store: RunStore) -> SandboxKeeper | None:
    """Saves sandboxes in the run's store, where the backend can."""
    if "snapshot.export" not in await backend.capabilities():
        return None
    return SnapshotKeeper(
        backend,
        store_of=lambda attempt_id: ObjectStore.at(f"{store.url}/snapshots/{attempt_id}"),
        forget=lambda attempt_id: store.delete_under(f"snapshots/{attempt_id}"),
    )


async def require_network(backend: SandboxBackend, tasks: TaskSet) -> None:
    """Raises UserError when a task declares a network that the backend's sandboxes cannot have."""
    task = next((task for task in tasks.tasks if any(task.network.values())), None)
    if task is not None and "network_allowlist" not in await backend.capabilities():
        cause = f"task {task.id!r} declares a network, which the {backend.name} backend does not have"
        raise UserError(cause, where="sandbox.backend", fix="use the process backend, or tasks without `network`")


async def start_local_engine(path: Path, version: PolicyVersion, *, config: RunConfig, log_path: Path) -> LocalEngine:
    """The local engine as a recipe describes it, with the weights at `path`."""
    return await LocalEngine.start(
        path,
        dtype=computable(config.model.dtype, config.engine.device),
        device=config.engine.device,
        num_slots=config.engine.num_slots,
        num_threads=config.engine.num_threads,
        max_context_tokens=config.model.max_context_tokens,
        version=version,
        log_path=log_path,
        request_timeout_s=config.engine.request_timeout_s,
    )


async def _close_engine(starting: "asyncio.Task[RestartingEngine]") -> None:
    """Engine and learner start side by side, so an engine may have to be closed that nobody waited for."""
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await starting).close()
