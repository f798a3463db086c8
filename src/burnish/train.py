"""`burnish train`: one run from its recipe to its report. Wires the parts, owns the start, the phases and the end.

    load ──► evaluate held-out ──► train (conductor.py) ──► evaluate held-out ──► report

Ctrl-C ends the run after the step that is under way and commits it; a second one ends it at once, and a resume goes on
from the last commit. Whatever ends a run, its parts are closed here.
"""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from burnish import __version__
from burnish.conductor import Conductor
from burnish.config import RunConfig, config_digest
from burnish.errors import BoundaryError, UserError
from burnish.evaluate.measure import measure
from burnish.evaluate.result import EvalResult, read_result, write_result
from burnish.evaluate.suite import compare
from burnish.flow.journal import Journal, Tail, cut_tail, read_journal
from burnish.flow.ledger import ResumePoint, resume_point
from burnish.flow.manifest import Commits
from burnish.observe.emit import Event, attached, emit
from burnish.observe.events import EVENTS_FILE, EventLog, read_events
from burnish.observe.live import LiveView
from burnish.observe.report import render_terminal, write_report
from burnish.parts import Inputs, Parts, load_inputs, open_parts
from burnish.run_dir import RunDir
from burnish.store import RunStore
from burnish.weights.publish import whole_folder

INTERRUPTED = 130  # the shell's exit code for ctrl-C
REPLACEABLE = ("engine", "learner", "sandbox")  # whose death for good a new life of the run survives
MAX_FUTILE_LIVES = 2  # in a row, without a commit
EVAL_MARGIN = 0.75  # of the first evaluation's time, kept for the last one; a trained model answers more briefly


def train(config: RunConfig, *, run_dir: Path | None = None, resume: bool = False, force_config: bool = False) -> int:
    """Runs a recipe and answers the exit code: 0 done, 130 interrupted (and resumable).

    Raises UserError for a request that cannot be carried out, BoundaryError for a failure that ended the run.
    """
    console = Console()
    with ExitStack() as stack:
        history = _history(run_dir) if resume else ()
        stack.enter_context(attached(stack.enter_context(LiveView(console, history=history))))
        inputs = load_inputs(config)  # before there is a run directory: a wrong path shall leave nothing behind
        run = _open_run(config, run_dir, resume=resume, force_config=force_config)
        stack.callback(run.close)
        stack.enter_context(attached(stack.enter_context(EventLog(run.events))))
        console.print(f"run directory: {run.path}", highlight=False)
        reason = asyncio.run(_Session(config, inputs, run, resumed=resume).run())
    if reason == "interrupted":
        console.print(f"interrupted; continue with: burnish train ... --resume --run-dir {run.path}", highlight=False)
        return INTERRUPTED
    _print_end(console, run)
    return 0


def _open_run(config: RunConfig, run_dir: Path | None, *, resume: bool, force_config: bool) -> RunDir:
    if not resume:
        return RunDir.create(config, run_dir)
    if run_dir is None:
        raise UserError("which run is to be continued?", where="--run-dir")
    return RunDir.reopen(config, run_dir, force_config=force_config)


def _history(run_dir: Path | None) -> Sequence[Event]:
    events = (run_dir or Path()) / EVENTS_FILE
    return read_events(events) if events.is_file() else ()


class _Session:
    """The phases of one life of a run."""

    def __init__(self, config: RunConfig, inputs: Inputs, run: RunDir, *, resumed: bool) -> None:
        self._config, self._inputs, self._run, self._resumed = config, inputs, run, resumed
        self._began = time.monotonic()
        self._conductor: Conductor | None = None
        self._interrupts = 0
        self._main: asyncio.Task[str] | None = None

    async def run(self) -> str:
        """Answers why the run ended: completed, time_limit or interrupted. Emits `run.end` in every case."""
        self._main = asyncio.current_task()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._on_interrupt)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._on_interrupt)
        emit(
            "run.start",
            run=self._run.path.name,
            seed=self._config.seed,
            digest=config_digest(self._config),
            num_steps=self._config.train.num_steps,
            time_limit_s=self._config.train.time_limit_s,
            version=__version__,
            model=self._config.model.path,
        )
        reason, cause = "failed", None
        try:
            reason = await self._lives()
        except asyncio.CancelledError:
            if self._interrupts == 0:
                raise
            reason = "interrupted"
        except (BoundaryError, UserError) as error:
            cause = str(error)
            raise
        finally:
            step = self._conductor.step if self._conductor else 0
            emit("run.end", reason=reason, cause=cause, step=step, wall_s=time.monotonic() - self._began)
        return reason

    async def _lives(self) -> str:
        """The phases, begun again from the last commit when a part died for good that another one can take the place
        of. Raises what ended the run: also such a death, when lives end without having committed anything."""
        futile = 0
        while True:
            step = self._conductor.step if self._conductor else 0
            try:
                return await self._phases()
            except BoundaryError as error:
                committed = self._conductor.committed_step if self._conductor else 0
                futile = 0 if committed > step else futile + 1
                if error.boundary not in REPLACEABLE or futile > MAX_FUTILE_LIVES or self._conductor is None:
                    raise
                emit("run.life", boundary=error.boundary, cause=error.cause, step=committed)
                self._resumed = True

    async def _phases(self) -> str:
        emit("phase", name="load")
        store = self._run.open_store(self._config.store)
        commits = await Commits.read(store)
        point = await self._resume_point(store, commits)
        checkpoint = self._run.checkpoints / point.checkpoint if point.checkpoint else None
        async with open_parts(
            self._config, self._inputs, store=store, logs=self._run.logs, checkpoint=checkpoint, version=point.step
        ) as parts:
            before = await self._evaluate(parts, "before")
            emit("phase", name="train")
            async with await Journal.open(store) as journal:
                if self._resumed:
                    await _begin_life(point, journal)
                self._conductor = Conductor(parts, self._run, point=point, commits=commits, journal=journal)
                reason = await self._conductor.run(deadline=self._deadline(before.wall_s))
            if reason == "interrupted":
                return reason
            after = await self._evaluate(parts, "after")
            emit("phase", name="report")
            with whole_folder(self._run.path, "model", keep=1, durable=True) as folder:
                await parts.learner.publish(folder)
            self._write_summary(before, after)
        return reason

    async def _resume_point(self, store: RunStore, commits: Commits) -> ResumePoint:
        """Where the run goes on; its beginning for a new one. Cuts what a crash left half-written."""
        if not self._resumed:
            return ResumePoint()
        tail = Tail()
        point = await resume_point(read_journal(store, tail), commits.manifests)
        if tail.torn:
            emit("journal.cut", segment=tail.torn)
            await cut_tail(store, tail)
        return point

    def _deadline(self, eval_s: float) -> float | None:
        limit_s = self._config.train.time_limit_s
        return None if limit_s is None else self._began + limit_s - EVAL_MARGIN * eval_s

    async def _evaluate(self, parts: Parts, label: str) -> EvalResult:
        """The held-out suite; the result of an earlier life is read back instead of measured again."""
        path = self._run.path / f"eval-{label}.json"
        emit("phase", name=f"eval_{label}")
        if path.exists():
            return read_result(path)
        config = self._config.evaluate
        result = await measure(
            parts.heldout,
            parts.attempt_runner(tasks=parts.heldout, temperature=config.temperature, label=label),
            label=label,
            samples_per_task=config.samples_per_task,
            max_concurrent=parts.max_concurrent,
            seed=self._config.seed,
        )
        write_result(result, path)
        return result

    def _write_summary(self, before: EvalResult, after: EvalResult) -> None:
        assert self._conductor is not None
        self._run.write_json(
            "summary.json",
            {
                **compare(before, after).summary(),
                "num_steps": self._conductor.step,
                "wall_s": round(time.monotonic() - self._began, 1),
                "seed": self._config.seed,
            },
        )

    def _on_interrupt(self) -> None:
        """First: end after this step, or at once where nothing would be lost. Then: at once. Then: no matter what."""
        self._interrupts += 1
        if self._interrupts > 2:
            os._exit(INTERRUPTED)  # workers and sandboxes notice that their owner is gone
        if self._interrupts == 1 and self._conductor is not None and self._conductor.running:
            self._conductor.stop()
        elif self._main is not None:
            self._main.cancel()


async def _begin_life(point: ResumePoint, journal: Journal) -> None:
    """Writes down what this life will not use before anything else happens in it."""
    point.write(journal)
    await journal.flush()
    emit("run.resume", step=point.step, num_dropped=point.num_voided)
    for reason, ids in point.voided.items():
        emit("drop", reason=reason, num=len(ids), group_id=None)


def _print_end(console: Console, run: RunDir) -> None:
    report = write_report(run.path)
    console.print(render_terminal(run.path))
    console.print(f"report: {report}", highlight=False)
