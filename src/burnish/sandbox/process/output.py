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


class Output:
    """The reading ends of a command's two pipes on the running loop. `writers` are the other ends, to be given away.

    The loop begins to listen after a moment only: most commands are done by then, and what they wrote lies in the pipe.
    """

    def __init__(self, limit: int) -> None:
        """`limit`: bytes kept of each."""
        self._readers = (_PipeReader(limit), _PipeReader(limit))
        self._later = asyncio.get_running_loop().call_later(_LISTEN_AFTER_S, self._listen)

    @property
    def writers(self) -> list[int]:
        """Of stdout and of stderr."""
        return [reader.writer for reader in self._readers]

    def finish(self) -> tuple[bytes, bytes, int]:
        """What was written until now, stdout and stderr, and how many bytes were dropped. The end of listening."""
        self._later.cancel()
        stdout, stderr = self._readers
        kept = stdout.finish(), stderr.finish()
        return *kept, stdout.num_dropped + stderr.num_dropped

    def close(self) -> None:
        self._later.cancel()
        for reader in self._readers:
            reader.close()

    def _listen(self) -> None:
        for reader in self._readers:
            reader.listen()


class _PipeReader:
    """One of them."""

    def __init__(self, limit: int) -> None:
        self._kept = HeadAndTail(limit)
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop: asyncio.AbstractEventLoop | None = None  # that listens

    @property
    def num_dropped(self) -> int:
        return self._kept.num_dropped

    def finish(self) -> bytes:
        """Takes what the pipe holds at this moment and not until its end: a descriptor that found its way to another
        process must not keep us.
        """
        if self._reader >= 0:
            (waiting,) = struct.unpack("i", fcntl.ioctl(self._reader, termios.FIONREAD, b"\0\0\0\0"))
            while waiting > 0 and (data := self._read()):
                waiting -= len(data)
        self.close()
        return self._kept.result()

    def close(self) -> None:
        if self._reader >= 0:
            if self._loop is not None:
                self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1

    def listen(self) -> None:
        self._loop = asyncio.get_running_loop()
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
