"""Who may begin an attempt: as many as keep the engine busy, and no more than wait in vain.

    waiting attempts ──(fair between families, long ones first)──► admitted: generating ◄──► acting ──► over

An attempt holds a place at the engine only while it waits for tokens. While it acts in its sandbox, another one is
admitted, so that neither engine nor sandboxes idle because the other is full. How many places there are follows the
engine's load: one more while all are used and nobody waits long, less at once when requests queue or the cache of
keys and values is nearly full (additive increase, multiplicative decrease: Chiu and Jain, 1989).
"""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

CURRENT: "ContextVar[Permit | None]" = ContextVar("permit", default=None)
"""Of the attempt that this task carries out."""
KV_HIGH = 0.95  # of the cache; beyond it an engine begins to evict what it will need again
QUEUE_TARGET_S = 2.0  # a request that waits for longer has been admitted too early
DECREASE = 0.7
COOLDOWN_TICKS = 3  # a decrease takes as long to show


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineLoad:
    """What the controller looks at. None: the engine does not say.

    Example: EngineLoad(running=48, waiting=3, kv_use=0.7, queue_s=0.4)
    """

    running: int
    waiting: int
    kv_use: float | None = None  # share of the cache in [0, 1]
    queue_s: float | None = None  # how long the oldest waiting request has waited


class ConcurrencyController:
    """The number of attempts that may generate or wait to, between `lowest` and `highest`."""

    def __init__(self, *, start: int, lowest: int = 1, highest: int) -> None:
        """Raises ValueError unless 1 <= lowest <= highest."""
        if not 1 <= lowest <= highest:
            raise ValueError(f"1 <= lowest <= highest, got {lowest} and {highest}")
        self._lowest, self._highest = float(lowest), float(highest)
        self._limit = min(self._highest, max(self._lowest, float(start)))
        self._cooldown = 0

    @property
    def limit(self) -> int:
        return math.floor(self._limit)

    def observe(self, load: EngineLoad, *, is_used: bool) -> None:
        """One look at the engine. `is_used`: all places are taken; a limit that nobody reaches is not raised."""
        self._cooldown = max(0, self._cooldown - 1)
        is_congested = (load.kv_use or 0.0) > KV_HIGH or (load.queue_s or 0.0) > QUEUE_TARGET_S
        if is_congested:
            if not self._cooldown:
                self._limit = max(self._lowest, self._limit * DECREASE)
                self._cooldown = COOLDOWN_TICKS
        elif is_used:
            self._limit = min(self._highest, self._limit + 1.0)


class Permit:
    """One admitted attempt. It holds a place at the engine from its admission on, but for its `acting` times."""

    def __init__(self, admission: "Admission", family: str) -> None:
        self._admission, self._family = admission, family
        self.is_generating = True

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Around each wait for tokens. The attempt never waits for a place here: the engine's queue is there for it.
        Afterwards it works in its sandbox, and its place at the engine is free for another one."""
        if not self.is_generating:
            self.is_generating = True
            self._admission._moved(+1)
        try:
            yield
        finally:
            self.is_generating = False
            self._admission._moved(-1)

    def charge(self, tokens: int) -> None:
        """What the attempt has used counts against its family's turn."""
        self._admission._charge(self._family, tokens)


class Admission:
    """Admits attempts under a limit at the engine and one on live sandboxes.

    Families take turns by the tokens they have used, divided by their weights (start-time fair queueing): one that has
    used less is first, and one that comes late begins where the others are, not with a claim on the past. Among those
    that are ahead of the last by no more than one attempt, the family whose attempts take longest is first, since a
    long attempt that begins late is what a step waits for. Inside a family, who came first is first.
    """

    def __init__(
        self, controller: ConcurrencyController, *, max_live: int, weights: Mapping[str, float] | None = None
    ) -> None:
        """`weights` of families; 1.0 where none is given. Raises ValueError for one that is not above 0."""
        self._weights = dict(weights or {})
        if wrong := [name for name, weight in self._weights.items() if not weight > 0]:
            raise ValueError(f"the weight of {wrong[0]!r} must be above 0")
        self._controller, self._max_live = controller, max_live
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}
        self._expected_s: dict[str, float] = {}
        self._slack = 0.0  # the most that one attempt has used, by weight
        self._used: dict[str, float] = {}  # tokens by weight, in virtual time
        self._order = itertools.count()
        self.num_live = self.num_generating = 0

    @property
    def num_waiting(self) -> int:
        return sum(not future.done() for queue in self._waiting.values() for _, future in queue)

    @asynccontextmanager
    async def admit(self, family: str, *, expected_s: float = 0.0) -> AsyncIterator[Permit]:
        """Waits for a turn and holds it. Woken by attempts that act, end, or by a higher limit."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(family, deque())
        if not queue:  # it was away: no claim on what it did not ask for
            self._used[family] = max(self._used.get(family, 0.0), self._now())
        queue.append((next(self._order), future))
        self._expected_s[family] = expected_s
        self._admit_waiting()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # admitted in this very moment
                self._leave(generating=True)
            raise
        permit = Permit(self, family)
        try:
            yield permit
        finally:
            self._leave(generating=permit.is_generating)

    def observe(self, load: EngineLoad) -> None:
        """One look at the engine, a few seconds apart."""
        self._controller.observe(load, is_used=self.num_generating >= self._controller.limit)
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self.num_live < self._max_live and self.num_generating < self._controller.limit:
            future = self._next()
            if future is None:
                return
            self.num_live += 1
            self.num_generating += 1
            future.set_result(None)

    def _next(self) -> "asyncio.Future[None] | None":
        """Takes the attempt whose turn it is out of its family's queue."""
        for queue in self._waiting.values():
            while queue and queue[0][1].done():  # cancelled while it waited
                queue.popleft()
        families = [family for family, queue in self._waiting.items() if queue]
        if not families:
            return None
        turn = min(self._used[name] for name in families) + self._slack
        family = min(
            (name for name in families if self._used[name] <= turn),
            key=lambda name: (-self._expected_s[name], self._used[name], self._waiting[name][0][0]),
        )
        self._charge(family, 1)  # or a family without a finished attempt would take every place
        return self._waiting[family].popleft()[1]

    def _charge(self, family: str, tokens: int) -> None:
        used = tokens / self._weights.get(family, 1.0)
        self._used[family] = self._used.get(family, 0.0) + used
        self._slack = max(self._slack, used)

    def _now(self) -> float:
        """Virtual time: where the family stands that has used least among those that wait."""
        return min((self._used[name] for name, queue in self._waiting.items() if queue), default=0.0)

    def _moved(self, change: int) -> None:
        self.num_generating += change
        if change < 0:
            self._admit_waiting()

    def _leave(self, *, generating: bool) -> None:
        self.num_live -= 1
        self.num_generating -= generating
        self._admit_waiting()
