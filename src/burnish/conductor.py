"""The loops of a run, and where each piece of state becomes final.

     source ──Ticket──► dispatcher ──► rollout + grade ──Attempt──► journal
                            ▲ slot          ▲ tokens                   │
                            │               │                        Group
                          gate ◄─release─ publisher ◄─version─ learner ◄─── buffer

Four loops run at once. `Dispatcher.run` waits for a slot of the lag gate and is woken by the publisher; rollouts wait
for tokens and sandboxes; `_learn_loop` waits for a step's worth of finished groups and is woken by the buffer;
`_publish_loop` waits for a new version and is woken by the learner. At lag 0 they take turns: synchronous RL.

A run commits every `train.checkpoint_every` steps and when it ends: the checkpoint, then the journal, then a manifest
that names both and closes the groups they used. Whatever kills the run, a resume starts from the last manifest.
"""

import asyncio
import time
from collections.abc import Mapping

from burnish.bookkeeping import Bookkeeper, leftovers
from burnish.engine.base import EngineStats
from burnish.errors import BOUNDARIES, BoundaryError, first_cause
from burnish.flow.admission import Admission, ConcurrencyController, EngineLoad
from burnish.flow.buffer import GroupBuffer, Judged, StepGroups
from burnish.flow.dispatch import Dispatcher
from burnish.flow.gate import LagGate
from burnish.flow.group import GroupRules, Ticket
from burnish.flow.journal import Journal
from burnish.flow.ledger import ResumePoint
from burnish.flow.manifest import Commits
from burnish.flow.packing import make_batch
from burnish.flow.quarantine import Quarantine
from burnish.flow.source import TaskSource, group_index
from burnish.observe.emit import emit
from burnish.parts import Parts
from burnish.reward.advantage import advantages
from burnish.run_dir import RunDir
from burnish.step_report import StepTimes, tell_samples, tell_step
from burnish.types import Attempt, Measured, Unmeasured
from burnish.watch import EngineWatch
from burnish.weights.publish import checkpoint_folder, publish_version

QUARANTINE_GROUPS = 2  # so many groups' worth of attempts at one task unmeasured in a row is the task's doing
BREAKER_GROUPS = 2  # so many groups' worth of attempts unmeasured in a row is an outage, not bad luck


class Conductor:
    """One life of a run, from its committed step to its end."""

    def __init__(self, parts: Parts, run: RunDir, *, point: ResumePoint, commits: Commits, journal: Journal) -> None:
        """`point` is what earlier lives left open and closed."""
        self._parts, self._run, self._journal = parts, run, journal
        self._config = config = parts.config
        self.step = point.step
        self.running = False
        self._committed_step, self._checkpoint = point.step, point.checkpoint
        self._quarantine = Quarantine(threshold=QUARANTINE_GROUPS * config.flow.group_size, tasks=point.quarantine)
        self._books = Bookkeeper(
            journal, commits, max_lag=config.flow.max_lag, life=point.life, quarantine=self._quarantine.tasks
        )
        self._gate = LagGate(
            groups_per_step=config.flow.groups_per_step, max_lag=config.flow.max_lag, version=point.step
        )
        self._buffer = GroupBuffer(
            groups_per_step=config.flow.groups_per_step,
            max_lag=config.flow.max_lag,
            advantage_fn=lambda rewards: advantages(rewards, estimator=config.learner.advantage),
            on_closed=self._on_dropped,
            max_step_tokens=config.flow.max_step_tokens,
            num_needed=config.flow.group_size if config.flow.short_groups == "drop" else 2,
        )
        max_live = config.sandbox.max_live
        self._admission = Admission(
            ConcurrencyController(start=min(config.engine.num_slots, max_live), highest=max_live),
            max_live=max_live,
            weights=config.flow.family_weights,
        )
        self._attempt = parts.attempt_runner(on_step=self._books.step)
        self._attempt.published(point.step)
        self._dispatcher = Dispatcher(
            source=TaskSource(len(parts.train.tasks), seed=config.seed, closed=point.closed),
            tasks=parts.train.tasks,
            gate=self._gate,
            rules=GroupRules(
                group_size=config.flow.group_size,
                oversample=config.flow.oversample,
                max_refills=config.flow.max_refills,
                seed=config.seed,
            ),
            admission=self._admission,
            attempt=self._attempt,
            on_begin=self._books.begin,
            on_attempt=self._on_attempt,
            on_group=self._buffer.put,
            opened=point.groups,
            room=journal.room,
            quarantine=self._quarantine,
        )
        self._watch = EngineWatch(
            parts.engine, stall_timeout_s=config.engine.stall_timeout_s, on_stats=self._on_engine_stats
        )
        self._published: asyncio.Queue[tuple[int, list[int]]] = asyncio.Queue()
        self._num_unmeasured_in_a_row = 0
        self._stop = asyncio.Event()

    @property
    def committed_step(self) -> int:
        return self._committed_step

    def stop(self) -> None:
        """Ends the run after the step that is under way; what is done is committed."""
        self._stop.set()

    async def run(self, *, deadline: float | None) -> str:
        """Trains until the last step, `deadline` (monotonic seconds) or `stop()`; answers which of them ended it.

        Raises the BoundaryError that ended the run. The last commit then stands as it was.
        """
        self.running = True
        try:
            async with asyncio.TaskGroup() as loops:
                dispatching = loops.create_task(self._dispatcher.run(), name="dispatch")
                others = [
                    loops.create_task(self._journal.run(), name="journal"),
                    loops.create_task(self._publish_loop(), name="publish"),
                    loops.create_task(self._watch.run(), name="watch"),
                ]
                reason = await self._learn_loop(deadline)
                await self._published.join()  # whoever evaluates next wants the last version
                dispatching.cancel()
                await asyncio.wait({dispatching})  # its attempts have stopped before the books are closed
                await self._commit(ended=None if reason == "interrupted" else reason)
                for task in others:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise first_cause(failures) from failures
        finally:
            self.running = False
        return reason

    async def _learn_loop(self, deadline: float | None) -> str:
        """Batch, step, publish, journal, commit. Waits for finished groups; woken by the buffer."""
        step_s = 0.0
        while self.step < self._config.train.num_steps:
            if deadline is not None and time.monotonic() + step_s > deadline:
                return "time_limit"
            began = time.monotonic()
            groups = await self._next_groups()
            if groups is None:
                return "interrupted"
            await self._learn(groups, began)
            step_s = max(0.7 * step_s, time.monotonic() - began)
            if self.step % self._config.train.checkpoint_every == 0:
                await self._commit()
        return "completed"

    async def _next_groups(self) -> StepGroups | None:
        """The next step's groups; None when the run is to stop."""
        flow = self._config.flow
        patience_s = flow.attempt_timeout_s * (flow.max_attempt_retries + 2)
        taking = asyncio.create_task(self._buffer.take(version=self.step, timeout_s=patience_s))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return None if self._stop.is_set() else await taking
        finally:
            taking.cancel()
            stopping.cancel()
            await asyncio.gather(taking, stopping, return_exceptions=True)

    async def _learn(self, groups: StepGroups, began: float) -> None:
        """One optimizer step, written down before anybody may build on it."""
        config, learner = self._config, self._parts.learner
        oldest = self.step - config.flow.max_lag
        batch = make_batch(groups.trained, step=self.step, temperature=config.agent.temperature, oldest=oldest)
        taken = time.monotonic()
        metrics = await learner.step(batch)
        learned = time.monotonic()
        self.step += 1
        self._books.trained(groups, self.step, oldest=oldest)
        with publish_version(self._run.weights, self.step) as folder:
            await learner.publish(folder)
        closed = [group_index(judged.group.id) for judged in (*groups.trained, *groups.dropped)]
        self._published.put_nowait((self.step, closed))
        published = time.monotonic()
        for judged in groups.dropped:
            _tell_drop(judged)
        times = StepTimes(
            wait_s=taken - began, learn_s=learned - taken, publish_s=published - learned, wall_s=published - began
        )
        tell_step(self.step, groups, metrics, times)
        tell_samples(self.step, groups, self._parts.train_by_id, self._parts.renderer)

    async def _publish_loop(self) -> None:
        """New weights to the engine, then new slots to the dispatcher. Waits for a version; woken by the learner."""
        while True:
            version, closed = await self._published.get()
            began = time.monotonic()
            await self._parts.engine.update_weights(self._run.weights / f"v{version:06d}", version)
            emit("publish", version=version, wall_s=time.monotonic() - began)
            flow = self._config.flow
            self._attempt.published(version, oldest=version - flow.max_lag if flow.overdue == "recut" else None)
            num_left = (self._config.train.num_steps - version) * flow.groups_per_step
            self._gate.num_slots = min(self._gate.num_slots, num_left)  # no step will want more
            self._gate.release(closed)
            self._gate.published(version)
            self._published.task_done()

    async def _commit(self, *, ended: str | None = None) -> None:
        """Checkpoint first, then what makes it count. `ended`: the run is over, and so is every group."""
        if self.step == self._committed_step and ended is None:
            return
        began = time.monotonic()
        name = f"step-{self.step:06d}" if self.step != self._committed_step else self._checkpoint
        if name != self._checkpoint:
            keep = (
                self._config.train.keep_checkpoints + 1
            )  # the committed one must outlive the moment before the commit
            with checkpoint_folder(self._run.checkpoints, self.step, keep=keep) as folder:
                await self._parts.learner.save_checkpoint(folder)
        if ended is not None:
            for judged in leftovers(self._buffer.take_rest(), self._dispatcher.open_groups()):
                self._books.dropped(judged)
                _tell_drop(judged)
        await self._books.commit(step=self.step, checkpoint=name, ended=ended)
        if name != self._checkpoint:
            emit("checkpoint", step=self.step, path=f"checkpoints/{name}", wall_s=time.monotonic() - began)
        self._committed_step, self._checkpoint = self.step, name

    def _on_attempt(self, ticket: Ticket, attempt: Attempt) -> None:
        self._books.end(attempt)
        self._quarantine.hear(attempt)
        if isinstance(attempt.outcome, Measured):
            self._num_unmeasured_in_a_row = 0
            return
        if attempt.trajectory.stop_reason == "cancelled":
            return
        self._num_unmeasured_in_a_row += 1
        if self._num_unmeasured_in_a_row >= BREAKER_GROUPS * self._config.flow.group_size:
            raise _named(attempt.outcome, self._num_unmeasured_in_a_row)

    def _on_engine_stats(self, stats: EngineStats) -> None:
        self._admission.observe(
            EngineLoad(running=stats.running, waiting=stats.waiting, kv_use=stats.kv_use, queue_s=stats.queue_s)
        )

    def _on_dropped(self, judged: Judged) -> None:
        """A group that ends outside a step gives its slot back at once."""
        self._books.dropped(judged)
        _tell_drop(judged)
        self._gate.release([group_index(judged.group.id)])


def _tell_drop(judged: Judged) -> None:
    emit("drop", reason=judged.drop, num=len(judged.group.attempts), group_id=judged.group.id)


def _named(outcome: Unmeasured, num: int) -> BoundaryError:
    """The error of an outage: the boundary and the cause of its last failure."""
    kinds: Mapping[str, type[BoundaryError]] = {kind.boundary: kind for kind in BOUNDARIES}
    kind = kinds.get(outcome.boundary, BoundaryError)
    return kind(f"{num} attempts in a row could not be measured; the last: {outcome.cause}", evidence=outcome.evidence)
