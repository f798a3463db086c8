"""One life of a sandbox, as its owner sees it: a supervisor over a stack of layers, reached by packets.

A snapshot or a return to one ends a life and begins the next; commands and files speak to the one that is.
"""

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import Sequence

from burnish.errors import SandboxError
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.wire import Message


class Generation:
    """Made by the backend, which also tells it when it has ended."""

    def __init__(self, name: str, stack: tuple[str, ...], sock: socket.socket, *, owns_output: bool) -> None:
        """`owns_output`: pipes must be given to the sandbox's uid, so that programs may reopen them."""
        self.name, self.stack = name, stack
        self.upper = -1  # a descriptor of the file system that holds what this life wrote
        self.listener = -1  # inside, for the proxy; until somebody takes it
        self.output_owner: int | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owns_output = owns_output
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[tuple[Message, list[int]]]] = {}
        self._death: SandboxError | None = None
        self._first_cause = ""
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
        for descriptor in (self.upper, self.listener):
            if descriptor >= 0:
                os.close(descriptor)
        self.upper = self.listener = -1
        if not self.ready.done():
            self.ready.set_exception(self.fresh_death())
            self.ready.exception()  # a creation that was given up has nobody to tell
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self.fresh_death())
        return self._first_cause

    def fresh_death(self) -> SandboxError:
        death = self._death
        if death is None:  # its socket has ended, and the host's word on why is on the way
            return SandboxError(f"sandbox {self.name}: it has ended")
        return SandboxError(death.cause, evidence=death.evidence)

    def post(self, request: Message) -> None:
        """Asks for something that has no answer."""
        self._channel.post(request)

    async def call(self, request: Message, fds: Sequence[int] = (), *, deadline_s: float) -> tuple[Message, list[int]]:
        """One request and its answer. Takes over `fds`. A call that is cancelled is cancelled inside too.

        Raises SandboxError when the sandbox has ended or ends meanwhile, TimeoutError without an answer in time.
        """
        if self._death is not None or not self._channel.is_open:
            for descriptor in fds:
                os.close(descriptor)
            raise self.fresh_death()
        number = next(self._ids)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[Message, list[int]]] = loop.create_future()
        self._waiting[number] = future
        self._channel.post({**request, "id": number}, fds)
        deadline = loop.call_later(deadline_s, _expire, future)
        try:
            return await future
        except asyncio.CancelledError:
            self._channel.post({"op": "cancel", "id": number})  # it goes on inside until its answer comes
            raise
        finally:
            deadline.cancel()

    def _on_message(self, message: Message, fds: list[int]) -> None:
        if "ready" in message:
            self.upper = fds.pop()
            self.listener = fds.pop() if fds else -1
            self.output_owner = message["ready"] if self._owns_output else None
            if not self.ready.done():
                self.ready.set_result(None)
            return
        if "failed" in message:
            self.bury(message["failed"])
            return
        future = self._waiting.pop(message["id"], None)
        if future is None or future.done():  # cancelled meanwhile
            for descriptor in fds:
                os.close(descriptor)
        else:
            future.set_result((message, fds))


def _expire(future: asyncio.Future[tuple[Message, list[int]]]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def describe_status(status: int) -> str:
    """A supervisor's end in words; `status` as of os.waitstatus_to_exitcode."""
    if status < 0:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    return f"exited with code {status}"
