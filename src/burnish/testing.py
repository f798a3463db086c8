"""Public fakes and builders for tests of burnish and of what is built on it. No torch, no sandbox host, no clock.

A fake passes the contract suite of the real part: `ScriptedEngine` that of engines, `MemoryBackend` that of sandboxes.
"""

import asyncio
import bisect
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from burnish.engine.base import EngineStats
from burnish.errors import EngineError, LearnerError
from burnish.learn.codec import StepMetrics
from burnish.rollout.render import Message
from burnish.sandbox.memory import MemoryBackend, MemorySandbox
from burnish.types import (
    Action,
    Attempt,
    Batch,
    Case,
    Completion,
    FinishReason,
    Group,
    Hidden,
    Measured,
    Outcome,
    PolicyVersion,
    Sampling,
    Step,
    Task,
    TaskSet,
    Trajectory,
    Vault,
)

__all__ = [
    "CharRenderer",
    "FakeClock",
    "FakeLearner",
    "MemoryBackend",
    "MemorySandbox",
    "PacedEngine",
    "ScriptedEngine",
    "make_attempt",
    "make_group",
    "make_task_set",
]

STOP_ID = 0  # CharRenderer's end of an answer


class CharRenderer:
    """One token per character, so that a test can read token ids. Stop token: 0."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return (STOP_ID,)

    def start(self, messages: Sequence[Message], /) -> tuple[int, ...]:
        return _ids("".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>")

    def follow_up(self, observation: str, /, *, ended: bool) -> tuple[int, ...]:
        return (*(() if ended else (STOP_ID,)), *_ids(f"<user>{observation}<assistant>"))

    def decode(self, token_ids: Sequence[int], /) -> str:
        return "".join(map(chr, filter(None, token_ids)))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


AnswerFn = Callable[[str, Sampling], str | Awaitable[str]]


class ScriptedEngine:
    """An engine whose answers are a function of the prompt's text. Raise EngineError in it to script a failure.

    Example: ScriptedEngine(lambda prompt, sampling: "```python\\ndef add(a, b):\\n    return a + b\\n```")
    """

    def __init__(self, answer: AnswerFn, *, version: PolicyVersion = 0) -> None:
        self._answer = answer
        self.version = version
        self.updates: list[tuple[Path, PolicyVersion]] = []
        self.num_requests = 0
        self._num_tokens = 0
        self._death: EngineError | None = None

    @property
    def death(self) -> EngineError | None:
        return self._death

    def die(self, cause: str = "worker process died: killed by signal 9") -> None:
        """From now on every request fails, as after a kill -9 of the engine process."""
        self._death = EngineError(cause)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, /) -> Completion:
        if self._death is not None:
            raise self._death
        if not prompt_ids:
            raise EngineError("empty prompt")
        self.num_requests += 1
        answer = self._answer(CharRenderer().decode(prompt_ids), sampling)
        text = answer if isinstance(answer, str) else await answer
        await asyncio.sleep(0)  # a real engine always lets others run
        if self._death is not None:
            raise self._death
        ids = (*_ids(text), STOP_ID)
        finish: FinishReason = "stop"
        if len(ids) > sampling.max_new_tokens:
            ids, finish = ids[: sampling.max_new_tokens], "length"
        self._num_tokens += len(ids)
        logprob = math.log(0.5)
        return Completion(
            token_ids=ids, logprobs=(logprob,) * len(ids), versions=(self.version,) * len(ids), finish=finish
        )

    async def update_weights(self, path: Path, version: PolicyVersion, /) -> None:
        self.version = version
        self.updates.append((path, version))

    async def stats(self) -> EngineStats:
        if self._death is not None:
            raise self._death
        return EngineStats(running=0, waiting=0, num_generated_tokens=self._num_tokens)

    async def kill(self, cause: str, /) -> None:
        self.die(f"worker process died: killed, since it hung: {cause}")

    async def close(self) -> None:
        self._death = self._death or EngineError("closed")


LengthFn = Callable[[Sampling], int]


class PacedEngine:
    """An engine with a fixed number of slots, each of which samples a fixed number of tokens a second.

    Weights are replaced between two tokens, as in a real engine: a token carries the version of the moment at which it
    was due. Raise EngineError in `length` to script a failure.

    Example: PacedEngine(lambda sampling: 40, num_slots=16, tokens_per_s=100.0)
    """

    def __init__(self, length: LengthFn, *, num_slots: int, tokens_per_s: float, version: PolicyVersion = 0) -> None:
        self._length, self._rate = length, tokens_per_s
        self._slots = asyncio.Semaphore(num_slots)
        self.num_slots = num_slots
        self._versions = [(-math.inf, version)]  # since when, which
        self._death: EngineError | None = None
        self._waiting: dict[object, float] = {}  # since when, oldest first
        self._num_tokens = self._running = 0
        self.busy_s = 0.0  # of all slots together, requests that ended

    @property
    def death(self) -> EngineError | None:
        return self._death

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, /) -> Completion:
        asked = object()
        self._waiting[asked] = time.monotonic()
        try:
            await self._slots.acquire()
        finally:
            del self._waiting[asked]
        began = time.monotonic()
        self._running += 1
        try:
            if self._death is not None:
                raise self._death
            num = min(self._length(sampling), sampling.max_new_tokens)
            await asyncio.sleep(num / self._rate)
            if self._death is not None:
                raise self._death
        finally:
            self._running -= 1
            self.busy_s += time.monotonic() - began
            self._slots.release()
        self._num_tokens += num
        versions = self._versions_of(began, time.monotonic(), num)
        return Completion(token_ids=(1,) * num, logprobs=(-0.5,) * num, versions=versions, finish="length")

    def _versions_of(self, began: float, ended: float, num: int) -> tuple[PolicyVersion, ...]:
        since = [at for at, _ in self._versions]
        moments = [began + (ended - began) * (place + 0.5) / num for place in range(num)]
        return tuple(self._versions[bisect.bisect_right(since, moment) - 1][1] for moment in moments)

    async def update_weights(self, path: Path, version: PolicyVersion, /) -> None:
        self._versions.append((time.monotonic(), version))

    async def stats(self) -> EngineStats:
        return EngineStats(
            running=self._running,
            waiting=len(self._waiting),
            num_generated_tokens=self._num_tokens,
            queue_s=max((time.monotonic() - since for since in self._waiting.values()), default=0.0),
        )

    async def kill(self, cause: str, /) -> None:
        self._death = EngineError(f"worker process died: killed, since it hung: {cause}")

    async def close(self) -> None:
        self._death = self._death or EngineError("closed")


@dataclass
class FakeLearner:
    """Takes every batch and remembers what it was given; refuses a token past the lag bound, as the real one does."""

    max_lag: int | None = None  # None: not checked
    version: PolicyVersion = 0
    fails_at: PolicyVersion | None = None
    step_s: float = 0.0
    batches: list[Batch] = field(default_factory=list)

    async def step(self, batch: Batch) -> StepMetrics:
        if batch.step == self.fails_at:
            raise LearnerError("worker process died: killed by signal 9")
        if batch.step != self.version:
            raise LearnerError(f"a batch for step {batch.step}, but the weights are version {self.version}")
        self._check_lag(batch)
        if self.step_s:
            await asyncio.sleep(self.step_s)
        self.batches.append(batch)
        self.version += 1
        return StepMetrics(
            version=self.version, loss=0.0, grad_norm=1.0, learning_rate=1e-5, entropy=0.5, logprob_gap_mean=0.0,
            logprob_gap_max=0.0, ratio_mean=1.0, ratio_max=1.0, clip_fraction=0.0,
            num_loss_tokens=batch.num_loss_tokens, num_newest_tokens=1, num_row_tokens=1, wall_s=self.step_s,
        )  # fmt: skip

    async def publish(self, path: Path) -> None:
        (path / "weights").write_text(str(self.version))

    async def save_checkpoint(self, path: Path) -> None:
        (path / "weights").write_text(str(self.version))

    def _check_lag(self, batch: Batch) -> None:
        if self.max_lag is None:
            return
        for row in batch.rows:
            for version, is_trained in zip(row.versions, row.loss_mask, strict=True):
                if is_trained and not batch.step - self.max_lag <= version <= batch.step:
                    raise LearnerError(f"a token of version {version} in the batch for step {batch.step}")


class FakeClock:
    """Seconds that pass only when told to.

    Example:
        >>> clock = FakeClock()
        >>> clock.advance(2.5)
        >>> clock()
        2.5
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds


def make_task_set(num: int = 2) -> TaskSet:
    """Tasks `plus_0`, `plus_1`, ...: functions of one number that add 0, 1, ... to it."""
    tasks, hidden = [], {}
    for n in range(num):
        name = f"plus_{n}"
        tasks.append(
            Task(
                id=f"plus/{name}",
                family=f"plus{n % 2}",
                instruction=f"Write a Python function `{name}(x)` that returns x + {n}.",
                entry_point=name,
                examples=(Case(expr=f"{name}(1)", expected=str(1 + n)),),
            )
        )
        hidden[tasks[-1].id] = Hidden(
            task_id=tasks[-1].id,
            reference=f"def {name}(x):\n    return x + {n}\n",
            cases=(Case(expr=f"{name}(-5)", expected=str(n - 5)), Case(expr=f"{name}(10)", expected=str(10 + n))),
        )
    return TaskSet(name="plus", tasks=tuple(tasks), vault=Vault(hidden))


def make_attempt(
    *,
    id: str = "g000000.0",
    outcome: Outcome | None = None,
    prompt: Sequence[int] = (1, 2, 3),
    answers: Sequence[Sequence[int]] = ((4, 5),),
    versions: Sequence[PolicyVersion] = (0,),
    scores: Mapping[str, float] | None = None,
    reward: float = 1.0,
) -> Attempt:
    """An attempt with one step per answer; `versions[i]` sampled answer i, the last one all that follow."""
    steps = tuple(
        Step(
            prompt_ids=tuple(prompt) if number == 0 else (9, 9),
            output_ids=tuple(answer),
            logprobs=tuple(-0.1 * (place + 1) for place in range(len(answer))),
            versions=(versions[min(number, len(versions) - 1)],) * len(answer),
            finish="stop",
            action=Action(kind="code", text="pass"),
            observation="seen",
        )
        for number, answer in enumerate(answers)
    )
    trajectory = Trajectory(
        id=id, group_id=id.partition(".")[0], task_id="t/0", family="t", steps=steps, stop_reason="max_turns"
    )
    return Attempt(trajectory=trajectory, outcome=outcome or Measured(scores=dict(scores or {}), reward=reward))


def make_group(rewards: Sequence[float], *, id: str = "g000000", version: PolicyVersion = 0) -> Group:
    """A group with one measured attempt per reward, all sampled by `version`."""
    attempts = tuple(
        make_attempt(id=f"{id}.{member}", reward=reward, versions=(version,)) for member, reward in enumerate(rewards)
    )
    return Group(id=id, task_id="t/0", family="t", attempts=attempts)
