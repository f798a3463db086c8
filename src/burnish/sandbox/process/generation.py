"""One life of a sandbox, as its owner sees it: a supervisor over a stack of layers, reached by packets.

A snapshot or a return to one ends a life and begins the next; commands and files speak to the one that is.
"""

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import Callable, Sequence

from burnish.errors import SandboxError
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.wire import Message

ANSWER_GRACE_S = 10.0  # a supervisor that is this late with an answer is counted as dead
_FREE_AFTER_S = 1.0  # one that is this late gets help, every so often


class _Call:
    """One that waits for its answer until its deadline; in the last seconds before it, `on_late` is called."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_late: Callable[[], None]) -> None:
        self.answer: asyncio.Future[tuple[Message, list[int]]] = loop.create_future()
        self._loop, self._on_late = loop, on_late
        self._deadline = 0.0
        self._clock: asyncio.TimerHandle | None = None

    def start_clock(self, seconds: float) -> None:
        self._deadline = self._loop.time() + seconds
        self._clock = self._loop.call_at(self._deadline - ANSWER_GRACE_S + _FREE_AFTER_S, self._ring)

    def stop_clock(self) -> float:
        """The seconds that were left."""
        assert self._clock is not None
        self._clock.cancel()
        return self._deadline - self._loop.time()

    def _ring(self) -> None:
        now = self._loop.time()
        if self.answer.done():
            return
        if now >= self._deadline:
            self.answer.set_exception(TimeoutError())
        else:
            self._on_late()
            self._clock = self._loop.call_at(min(now + _FREE_AFTER_S, self._deadline), self._ring)


class Generation:
    """Made by the backend, which also tells it when it has ended."""

    def __init__(
        self,
        name: str,
        stack: tuple[str, ...],
        sock: socket.socket,
        *,
        owns_output: bool,
        on_late: Callable[[], None],
        serve: Callable[[int], None] | None,
    ) -> None:
        """
        Args:
            owns_output: pipes must be given to the sandbox's uid, so that programs may reopen them.
            on_late: the supervisor is late with an answer; ends what a candidate may have put in its way.
            serve: takes over the listening socket inside, of a sandbox that has a network.
        """
        self.name, self.stack = name, stack
        self.upper = -1  # a descriptor of the file system that holds what this life wrote
        self.output_owner: int | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owns_output, self._on_late, self._serve = owns_output, on_late, serve
        self._ids = itertools.count(1)
        self._waiting: dict[int, _Call] = {}
        self._death: SandboxError | None = None
        self._first_cause = ""
        self._frozen: list[tuple[_Call, float]] = []  # and the seconds that each had left
        self._channel = Channel(sock, self._on_message, lambda: None)  # the host tells the backend why it ended

    @property
    def is_idle(self) -> bool:
        """Nothing was asked that is not answered, so nothing of the candidate's runs inside."""
        return not self._waiting

    @property
    def is_dead(self) -> bool:
        return self._death is not None

    def bury(self, cause: str, *, evidence: str = "") -> str:
        """It is over: whoever waits, and whoever calls from now on, hears why. Returns the first cause."""
        if self._death is None:
            self._death = SandboxError(f"sandbox {self.name}: {cause}", evidence=evidence)
            self._first_cause = cause
        self._channel.close()
        if self.upper >= 0:
            os.close(self.upper)
            self.upper = -1
        if not self.ready.done():
            self.ready.set_exception(self.fresh_death())
            self.ready.exception()  # a creation that was given up has nobody to tell
        for call in self._waiting.values():
            if not call.answer.done():
                call.answer.set_exception(self.fresh_death())
        return self._first_cause

    def fresh_death(self) -> SandboxError:
        death = self._death
        if death is None:  # its socket has ended, and the host's word on why is on the way
            return SandboxError(f"sandbox {self.name}: it has ended")
        return SandboxError(death.cause, evidence=death.evidence)

    async def call(self, request: Message, fds: Sequence[int] = (), *, deadline_s: float) -> tuple[Message, list[int]]:
        """One request and its answer. Takes over `fds`. A call that is cancelled is cancelled inside too.

        Raises SandboxError when the sandbox has ended or ends meanwhile, TimeoutError without an answer in time.
        """
        if self._death is not None or not self._channel.is_open:
            for descriptor in fds:
                os.close(descriptor)
            raise self.fresh_death()
        number = next(self._ids)
        call = _Call(asyncio.get_running_loop(), self._on_late)
        self._waiting[number] = call
        self._channel.post({**request, "id": number}, fds)
        call.start_clock(deadline_s)
        try:
            return await call.answer
        except asyncio.CancelledError:
            self._channel.post({"op": "cancel", "id": number})  # it goes on inside until its answer comes
            raise
        finally:
            call.stop_clock()

    async def freeze(self, *, deadline_s: float) -> None:
        """Stops all processes inside, and the deadlines of the calls that wait for them. `thaw` follows in any case.

        Raises SandboxError when they do not stop, and what `call` raises.
        """
        waiting = tuple(self._waiting.values())
        self._frozen = [(call, call.stop_clock()) for call in waiting if not call.answer.done()]
        answer, _ = await self.call({"op": "freeze"}, deadline_s=deadline_s)
        if "no" in answer:
            raise SandboxError(f"sandbox {self.name}: {answer['no']}")

    async def thaw(self, *, deadline_s: float) -> None:
        """Lets them go on, with the time that they had left.

        Raises SandboxError when they did not stand still meanwhile, and what `call` raises.
        """
        try:
            answer, _ = await self.call({"op": "thaw"}, deadline_s=deadline_s)
        finally:
            for call, left_s in self._frozen:
                if not call.answer.done():
                    call.start_clock(left_s)
            self._frozen = []
        if "no" in answer:
            raise SandboxError(f"sandbox {self.name}: {answer['no']}")

    def _on_message(self, message: Message, fds: list[int]) -> None:
        if "ready" in message:
            self.upper = fds.pop()
            if self._serve is not None:
                self._serve(fds.pop())
            self.output_owner = message["ready"] if self._owns_output else None
            if not self.ready.done():
                self.ready.set_result(None)
            return
        if "failed" in message:
            self.bury(message["failed"])
            return
        call = self._waiting.pop(message["id"], None)
        if call is None or call.answer.done():  # cancelled meanwhile
            for descriptor in fds:
                os.close(descriptor)
        else:
            call.answer.set_result((message, fds))


def describe_status(status: int) -> str:
    """A supervisor's end in words; `status` as of os.waitstatus_to_exitcode."""
    if status < 0:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    return f"exited with code {status}"
