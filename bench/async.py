"""The flow under heavy-tailed attempts: how busy it keeps an engine, asynchronous against synchronous, and with faults.

    python bench/async.py [--quick]

The engine has a fixed number of slots and a fixed token rate; an attempt's length is log-normal with p99 thirty times
p50 (2 s and 60 s, scaled down), drawn by the request's seed, so that every mode has the same tasks with the same
lengths. Everything else is real: dispatcher, gate, buffer, journal, commits, conductor. The modes take turns. Each runs
for a number of optimizer steps, the first ones of which fill the pipeline and are not counted.
"""

import argparse
import asyncio
import dataclasses
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _bench import Bench
from burnish.attempts import AttemptRunner, OnStep
from burnish.conductor import Conductor
from burnish.config import AgentConfig, FlowConfig, ModelConfig, RunConfig, TrainConfig
from burnish.errors import EngineError, SandboxError
from burnish.flow.journal import Journal
from burnish.flow.ledger import ResumePoint
from burnish.flow.manifest import Commits
from burnish.flow.verify import verify_run
from burnish.observe.emit import Event, attached
from burnish.parts import Parts
from burnish.rollout.agent import Observed
from burnish.rollout.loop import RolloutSetup
from burnish.run_dir import RunDir
from burnish.sandbox.base import SandboxBox
from burnish.sandbox.memory import MemoryBackend
from burnish.testing import CharRenderer, FakeLearner, PacedEngine, make_task_set
from burnish.types import Action, Measured, Sampling, Task

UTILISATION_BAR, SPEEDUP_BAR, FAULTY_BAR, JOURNAL_BAR = 0.95, 2.5, 0.90, 0.98
NUM_SLOTS, TOKENS_PER_S = 16, 200.0
MEDIAN_S, SIGMA = 0.1, math.log(30) / 2.326  # p50, and p99 = 30 x p50
GROUPS_PER_STEP, GROUP_SIZE, MAX_LAG = 4, 8, 4
LEARN_S = 0.05
WARM_STEPS = 8
DEAD_SANDBOXES, FAILED_REQUESTS = 0.05, 0.02


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One way to run the same tasks.

    Example: Mode(name="async", max_lag=4)
    """

    name: str
    max_lag: int
    faults: bool = False
    journal: bool = True


def length(sampling: Sampling) -> int:
    """Tokens of an attempt, by its seed."""
    assert sampling.seed is not None
    duration_s = MEDIAN_S * math.exp(random.Random(sampling.seed).gauss(0.0, SIGMA))
    return max(1, round(duration_s * TOKENS_PER_S))


class Faults:
    """Breaks requests and sandboxes by chance, each in the middle of its work."""

    def __init__(self, *, active: bool) -> None:
        self._chance = random.Random(7)
        self._active = active
        self.num_engine = self.num_sandbox = 0

    def length(self, sampling: Sampling) -> int:
        if self._active and self._chance.random() < FAILED_REQUESTS:
            self.num_engine += 1
            raise EngineError("request failed: connection reset")
        return length(sampling)

    def sandbox(self) -> None:
        if self._active and self._chance.random() < DEAD_SANDBOXES:
            self.num_sandbox += 1
            raise SandboxError("sandbox died")


class OneShot:
    """An agent whose every answer is an action; acting only fails."""

    stop_strings = ()

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def open(self, task: Task, /) -> Any:
        return [{"role": "user", "content": task.id}]

    def parse(self, text: str, /) -> Action:
        return Action(kind="code", text=text)

    async def act(self, box: SandboxBox, task: Task, action: Action, /) -> Observed:
        self._faults.sandbox()
        return Observed(text="", passed_visible=False)


class CoinGrader:
    """Half of the attempts pass."""

    def __init__(self) -> None:
        self._chance = random.Random(3)

    async def grade(self, task: Task, solution: str | None, /) -> Measured:
        return Measured(scores={}, reward=float(self._chance.random() < 0.5))


class BenchParts(Parts):
    """Parts whose attempts are one paced turn."""

    def attempt_runner(self, *, on_step: OnStep | None = None, **_: Any) -> AttemptRunner:
        setup = RolloutSetup(
            generate=self.engine.generate,
            backend=self.backend,
            renderer=self.renderer,
            agent=OneShot(FAULTS[0]),
            sampling=dataclasses.replace(self.sampling(1.0), stop_strings=()),
            max_turns=1,
            max_context_tokens=self.config.model.max_context_tokens,
        )
        return AttemptRunner(setup=setup, grader=CoinGrader(), max_retries=2, timeout_s=600, on_step=on_step)


FAULTS = [Faults(active=False)]


class NoJournal(Journal):
    """Takes records and forgets them."""

    def append(self, record: Any) -> None:
        pass


async def play(mode: Mode, *, num_steps: int, folder: Path) -> Mapping[str, float]:
    """One run of a mode; its figures after the pipeline is filled."""
    FAULTS[0] = faults = Faults(active=mode.faults)
    engine = PacedEngine(faults.length, num_slots=NUM_SLOTS, tokens_per_s=TOKENS_PER_S)
    config = RunConfig(
        name="bench",
        model=ModelConfig(max_context_tokens=1 << 20),
        agent=AgentConfig(max_turns=1, max_new_tokens=1 << 19),
        flow=FlowConfig(groups_per_step=GROUPS_PER_STEP, group_size=GROUP_SIZE, max_lag=mode.max_lag),
        train=TrainConfig(num_steps=10**6, checkpoint_every=10),
    )
    tasks = make_task_set(40)
    learner = FakeLearner(max_lag=mode.max_lag, step_s=LEARN_S)
    parts = BenchParts(
        config=config.model_copy(update={"engine": config.engine.model_copy(update={"num_slots": NUM_SLOTS})}),
        train=tasks, heldout=tasks, renderer=CharRenderer(), backend=MemoryBackend(), engine=engine, learner=learner,
    )  # fmt: skip
    run = RunDir.create(config, folder / mode.name)
    store = run.open_store(None)
    marks: list[tuple[float, float, int]] = []  # at a step's end: time, busy seconds, tokens trained or measured
    attempts = [0, 0]  # measured, and those of them that a failure was given a reward for

    def hear(event: Event) -> None:
        if event["event"] == "attempt.end":
            attempts[0] += event["reward"] is not None
            attempts[1] += event["reward"] is not None and event["boundary"] is not None
        if event["event"] == "step.end":
            marks.append((time.monotonic(), engine.busy_s, attempts[0]))
            if event["step"] >= num_steps + WARM_STEPS:
                conductor.stop()

    kind = Journal if mode.journal else NoJournal
    async with kind(store, next_segment=1) as journal:
        conductor = Conductor(parts, run, point=ResumePoint(), commits=await Commits.read(store), journal=journal)
        with attached(hear):
            await conductor.run(deadline=None)
    run.close()
    found = await verify_run(store) if mode.journal else None
    (began, busy_0, done_0), (ended, busy_1, done_1) = marks[WARM_STEPS - 1], marks[-1]
    wall_s = ended - began
    sizes = {len(batch.trajectory_ids) for batch in learner.batches}
    return {
        "utilisation": (busy_1 - busy_0) / wall_s / NUM_SLOTS,
        "attempts_per_s": (done_1 - done_0) / wall_s,
        "steps_per_s": (len(marks) - WARM_STEPS) / wall_s,
        "failures_scored": attempts[1],
        "findings": len(found.findings) if found else 0,
        "faults": faults.num_engine + faults.num_sandbox,
        "largest_batch": max(sizes),
    }


async def measure(bench: Bench, *, num_steps: int, num_rounds: int) -> None:
    modes = [
        Mode(name="async", max_lag=MAX_LAG),
        Mode(name="sync", max_lag=0),
        Mode(name="faulty", max_lag=MAX_LAG, faults=True),
        Mode(name="unjournalled", max_lag=MAX_LAG, journal=False),
    ]
    found: dict[str, list[Mapping[str, float]]] = {mode.name: [] for mode in modes}
    for _ in range(num_rounds):
        for mode in modes:
            with tempfile.TemporaryDirectory(prefix="burnish-async-") as folder:
                steps = num_steps if mode.max_lag else max(4, num_steps // 3)
                found[mode.name].append(await play(mode, num_steps=steps, folder=Path(folder)))

    def median(mode: str, figure: str) -> float:
        return statistics.median(round[figure] for round in found[mode])

    for mode in modes:
        for figure in ("utilisation", "attempts_per_s", "steps_per_s"):
            bar = UTILISATION_BAR if (mode.name, figure) == ("async", "utilisation") else None
            unit = "of slot seconds" if figure == "utilisation" else "/s"
            bench.report(f"{mode.name}_{figure}", median(mode.name, figure), unit, bar=bar)
    rate = {mode.name: median(mode.name, "attempts_per_s") for mode in modes}
    bench.report("async_over_sync", rate["async"] / rate["sync"], "x", bar=SPEEDUP_BAR)
    bench.report("faulty_over_async", rate["faulty"] / rate["async"], "x", bar=FAULTY_BAR)
    bench.report("journalled_over_not", rate["async"] / rate["unjournalled"], "x", bar=JOURNAL_BAR)
    bench.report("faults", sum(r["faults"] for r in found["faulty"]), "faults")
    for figure in ("failures_scored", "findings"):
        worst = max(r[figure] for mode in modes for r in found[mode.name])
        bench.report(figure, worst, "", bar=0, want="max")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    bench = Bench("async")
    asyncio.run(measure(bench, num_steps=15 if options.quick else 60, num_rounds=1 if options.quick else 3))
    sys.exit(bench.exit_code)
