"""Collecting a command's output: drained as it comes, so that it never blocks, and bounded, so that it never floods."""

import asyncio
import fcntl
import os
import struct
import termios

_CHUNK_BYTES = 64 << 10
_LISTEN_AFTER_S = 0.002


class HeadAndTail:
    """Keeps the first and the last half of what is added, at most `limit` bytes; counts what fell out between.

    Example:
        >>> kept = HeadAndTail(4)
        >>> kept.add(b"abcdefgh")
        >>> kept.result(), kept.num_dropped
        (b'abgh', 4)
    """

    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._num_total = 0

    def add(self, data: bytes) -> None:
        self._num_total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit + _CHUNK_BYTES:  # not on every chunk: deleting moves the rest
            del self._tail[: len(self._tail) - self._tail_limit]

    def result(self) -> bytes:
        start = max(0, len(self._tail) - self._tail_limit)
        return bytes(self._head + self._tail[start:])

    @property
    def num_dropped(self) -> int:
        return max(0, self._num_total - self._head_limit - self._tail_limit)


class PipeReader:
    """The reading end of a pipe on the running loop. `writer` is the other end, to be given away.

    The loop begins to listen after a moment only: most commands are done by then, and what they wrote lies in the pipe.
    """

    def __init__(self, limit: int) -> None:
        self._kept = HeadAndTail(limit)
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._listening = False
        self._later = self._loop.call_later(_LISTEN_AFTER_S, self._listen)

    def finish(self) -> tuple[bytes, int]:
        """What was written until now (output kept, bytes dropped), and the end of listening.

        Takes what the pipe holds at this moment and not until its end: a descriptor that found its way to another
        process must not keep us.
        """
        if self._reader >= 0:
            (waiting,) = struct.unpack("i", fcntl.ioctl(self._reader, termios.FIONREAD, b"\0\0\0\0"))
            while waiting > 0 and (data := self._read()):
                waiting -= len(data)
        self.close()
        return self._kept.result(), self._kept.num_dropped

    def close(self) -> None:
        if self._reader >= 0:
            self._later.cancel()
            if self._listening:
                self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1

    def _listen(self) -> None:
        self._listening = True
        self._loop.add_reader(self._reader, self._readable)

    def _readable(self) -> None:
        if self._read() == b"":
            self.close()  # every writer is gone

    def _read(self) -> bytes | None:
        """The next chunk, kept; empty at the end. None when the candidate emptied the pipe before us, as it may."""
        try:
            data = os.read(self._reader, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        self._kept.add(data)
        return data
