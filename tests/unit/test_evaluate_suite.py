"""Running a suite: what counts as a pass, what as unmeasured, how many run at once, what is told."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from burnish.errors import EngineError, SandboxError, UserError
from burnish.evaluate.result import EvalResult
from burnish.evaluate.suite import AttemptFn, Progress, evaluate
from burnish.observe.emit import Event, attached
from burnish.types import Attempt, Measured, Outcome, Sampling, Task, Trajectory, Unmeasured

SAMPLING = Sampling(max_new_tokens=8)
PASS = Measured(scores={"hidden_passed": 1.0}, reward=1.0)
FAIL = Measured(scores={"hidden_passed": 0.0}, reward=0.0)


def make_task(id: str) -> Task:
    return Task(id=id, family=id.split("/")[0], instruction=f"do {id}", entry_point="f")


def make_attempt(task: Task, outcome: Outcome) -> Attempt:
    trajectory = Trajectory(
        id=task.id, group_id="g", task_id=task.id, family=task.family, steps=(), stop_reason="max_turns"
    )
    return Attempt(trajectory=trajectory, outcome=outcome)


def always(outcome: Outcome) -> AttemptFn:
    async def attempt(task: Task, sample: int) -> Attempt:
        return make_attempt(task, outcome)

    return attempt


async def run(tasks: Sequence[Task], attempt: AttemptFn, samples: int = 1, concurrent: int = 4) -> EvalResult:
    return await evaluate(
        tasks,
        attempt,
        suite="s",
        label="after",
        sampling=SAMPLING,
        samples_per_task=samples,
        max_concurrent=concurrent,
    )


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (PASS, (1, 1)),
        (FAIL, (0, 1)),
        (Measured(scores={}, reward=1.0), (1, 1)),
        (Measured(scores={}, reward=0.99), (0, 1)),
        # a shaped reward neither makes a failure a pass nor the other way round
        (Measured(scores={"hidden_passed": 0.9}, reward=1.2), (0, 1)),
        (Measured(scores={"hidden_passed": 1.0}, reward=0.8), (1, 1)),
        (Unmeasured(boundary="sandbox", cause="died"), (0, 0)),
    ],
)
async def test_what_counts_as_a_pass(outcome: Outcome, counts: tuple[int, int]) -> None:
    record = (await run([make_task("a/0")], always(outcome))).tasks[0]
    assert (record.passed, record.measured) == counts
    assert record.attempted == 1


async def test_a_boundary_error_is_unmeasured_and_its_siblings_go_on() -> None:
    async def attempt(task: Task, sample: int) -> Attempt:
        if task.id == "a/0" and sample == 0:
            raise SandboxError("create: host died", evidence="signal 9")
        return make_attempt(task, PASS)

    result = await run([make_task("a/0"), make_task("b/0")], attempt, samples=2)
    assert [record.attempted for record in result.tasks] == [2, 2]
    assert [record.passed for record in result.tasks] == [1, 2]
    assert result.tasks[0].unmeasured == (
        Unmeasured(boundary="sandbox", cause="create: host died", evidence="signal 9"),
    )
    assert result.pass_rate == 1.0  # I1: the failure is in no rate but the one that says so
    assert result.pass_rate_of_attempted == 0.75


async def test_when_everything_breaks_there_is_no_pass_rate() -> None:
    async def attempt(task: Task, sample: int) -> Attempt:
        raise EngineError("dead")

    events: list[Event] = []
    with attached(events.append):
        result = await run([make_task("a/0"), make_task("b/0")], attempt)
    assert (result.pass_rate, result.ci95, result.wilson_ci95) == (None, None, None)
    assert events[-1]["pass_rate"] is None
    assert events[-1]["attempted"] == 2


@pytest.mark.parametrize("error", [UserError("no such model"), KeyError("a bug")])
async def test_any_other_error_ends_the_evaluation_as_it_came(error: Exception) -> None:
    cancelled = asyncio.Event()

    async def attempt(task: Task, sample: int) -> Attempt:
        if task.id == "a/1":
            raise error
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError("unreachable")

    with pytest.raises(type(error)) as caught:
        await run([make_task("a/0"), make_task("a/1")], attempt)
    assert caught.value is error
    assert cancelled.is_set()


async def test_cancelling_the_evaluation_cancels_its_attempts() -> None:
    num_running = 0
    all_started = asyncio.Event()

    async def attempt(task: Task, sample: int) -> Attempt:
        nonlocal num_running
        num_running += 1
        if num_running == 3:
            all_started.set()
        try:
            await asyncio.Event().wait()
        finally:
            num_running -= 1
        raise AssertionError("unreachable")

    evaluation = asyncio.create_task(run([make_task("a/0")], attempt, samples=3))
    await all_started.wait()
    evaluation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await evaluation
    assert num_running == 0


async def test_at_most_max_concurrent_at_once_and_each_sample_once() -> None:
    running = highest = 0
    seen: list[tuple[str, int]] = []

    async def attempt(task: Task, sample: int) -> Attempt:
        nonlocal running, highest
        seen.append((task.id, sample))
        running += 1
        highest = max(highest, running)
        for _ in range(1 + len(seen) % 3):  # attempts of unequal length
            await asyncio.sleep(0)
        running -= 1
        return make_attempt(task, PASS)

    tasks = [make_task(f"a/{i}") for i in range(5)]
    result = await run(tasks, attempt, samples=4, concurrent=3)
    assert highest == 3
    assert sorted(seen) == [(task.id, sample) for task in tasks for sample in range(4)]
    assert [record.task_id for record in result.tasks] == [task.id for task in tasks]


async def test_progress_and_end_are_told() -> None:
    events: list[Event] = []
    progress: list[Progress] = []
    outcomes: Iterator[Outcome] = iter([PASS, FAIL, Unmeasured(boundary="engine", cause="x")])

    async def attempt(task: Task, sample: int) -> Attempt:
        return make_attempt(task, next(outcomes))

    with attached(events.append):
        await evaluate(
            [make_task("a/0"), make_task("b/0"), make_task("c/0")],
            attempt,
            suite="builtin:heldout",
            label="before",
            sampling=SAMPLING,
            samples_per_task=1,
            max_concurrent=1,
            on_progress=progress.append,
        )
    assert progress == [
        Progress(done=1, total=3, measured=1, passed=1),
        Progress(done=2, total=3, measured=2, passed=1),
        Progress(done=3, total=3, measured=2, passed=1),
    ]
    assert [event["event"] for event in events] == ["eval.progress"] * 3 + ["eval.end"]
    end = {name: value for name, value in events[-1].items() if name not in ("t", "ci95")}
    assert end == {
        "event": "eval.end",
        "label": "before",
        "suite": "builtin:heldout",
        "attempted": 3,
        "measured": 2,
        "passed": 1,
        "pass_rate": 0.5,
    }


@pytest.mark.parametrize(
    ("tasks", "samples", "concurrent", "message"),
    [
        ([], 1, 1, "has no tasks"),
        (["a/0", "a/0"], 1, 1, "share an id"),
        (["a/0"], 0, 1, "samples_per_task: must be at least 1, not 0"),
        (["a/0"], 1, 0, "max_concurrent: must be at least 1, not 0"),
    ],
)
async def test_what_cannot_be_evaluated(tasks: list[str], samples: int, concurrent: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        await run([make_task(id) for id in tasks], always(PASS), samples, concurrent)
