"""The owner's end of a packet socket, on an asyncio loop. Sending never waits; what does not fit yet is queued."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from burnish.sandbox.process import wire
from burnish.sandbox.process.wire import Message


class Channel:
    """Calls `on_message(message, descriptors)` for every packet, and `on_end()` once when the other side is gone."""

    def __init__(
        self, sock: socket.socket, on_message: Callable[[Message, list[int]], None], on_end: Callable[[], None]
    ) -> None:
        self._socket, self._on_message, self._on_end = sock, on_message, on_end
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Message, Sequence[int]]] = deque()
        self._open = True
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def is_open(self) -> bool:
        return self._open

    def post(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Sends in order. Takes over the descriptors and closes them once sent. Lost when the other side is gone."""
        if not self._open:
            _close_all(fds)
        elif self._queue or not self._try_send(message, fds):
            if not self._queue:
                self._loop.add_writer(self._socket.fileno(), self._writable)
            self._queue.append((message, fds))

    def close(self) -> None:
        """Hangs up; `on_end` is not called for it. Idempotent."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        while self._queue:
            _close_all(self._queue.popleft()[1])

    def _try_send(self, message: Message, fds: Sequence[int]) -> bool:
        try:
            wire.send(self._socket, message, fds)
        except BlockingIOError:
            return False
        except EOFError:
            pass  # the reading side meets the same end and reports it
        _close_all(fds)
        return True

    def _writable(self) -> None:
        while self._queue:
            if not self._try_send(*self._queue[0]):
                return
            self._queue.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            message, fds = wire.receive(self._socket)
        except BlockingIOError:
            return
        except EOFError:
            self.close()
            self._on_end()
            return
        self._on_message(message, fds)


def _close_all(fds: Sequence[int]) -> None:
    for descriptor in fds:
        os.close(descriptor)
