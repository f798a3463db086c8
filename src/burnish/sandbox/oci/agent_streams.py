"""A command's streams as pid 1 of a container holds them. Stdlib only: this source is sent into the container."""

import fcntl
import os
import struct
import termios

from burnish.sandbox.process.output import HeadAndTail

_CHUNK_BYTES = 64 << 10


def open_stdin(data: bytes) -> int:
    """A descriptor that reads `data` and then ends."""
    if not data:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class OutputPipe:
    """A command's stdout or stderr: drained as it comes, the first and last half of it kept.

    `writer` is the other end, for the command; the caller closes it.
    """

    def __init__(self, limit: int) -> None:
        self._kept = HeadAndTail(limit)
        self.descriptor, self.writer = os.pipe()
        os.set_blocking(self.descriptor, False)

    def readable(self) -> bool:
        """Takes what is there; False at the end."""
        return self._read() != b""

    def finish(self) -> "tuple[bytes, int]":
        """What was written until now (output kept, bytes dropped).

        Takes what the pipe holds at this moment and not until its end: a process that outlives its killing must not
        keep us.
        """
        (waiting,) = struct.unpack("i", fcntl.ioctl(self.descriptor, termios.FIONREAD, b"\0\0\0\0"))
        while waiting > 0 and (data := self._read()):
            waiting -= len(data)
        os.close(self.descriptor)
        return self._kept.result(), self._kept.num_dropped

    def _read(self) -> "bytes | None":
        """The next chunk, kept; empty at the end. None when the candidate emptied the pipe before us, as it may."""
        try:
            data = os.read(self.descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        self._kept.add(data)
        return data
