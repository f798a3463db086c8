"""The owner's ends of a container's stdin and stdout, on an asyncio loop. Sending never waits: the rest is queued."""

import asyncio
import os
from collections.abc import Callable

from burnish.sandbox.oci.frames import Message, Parser

_CHUNK_BYTES = 256 << 10


class FramePipes:
    """Calls `on_frame(message, payload)` for every frame, and `on_end(why)` once when the other side is gone."""

    def __init__(
        self,
        reader: int,
        writer: int,
        *,
        most_bytes: int,
        on_frame: Callable[[Message, bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        """Takes over both descriptors. A frame longer than `most_bytes`, or none at all, is the end."""
        self._reader, self._writer, self._on_frame, self._on_end = reader, writer, on_frame, on_end
        self._parser = Parser(most_bytes)
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()
        self._open = True
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)
        self._loop.add_reader(reader, self._readable)

    @property
    def is_open(self) -> bool:
        return self._open

    def post(self, data: bytes) -> None:
        """Sends in order. Lost when the other side is gone: the reading side meets the same end and reports it."""
        if not self._open:
            return
        if not self._unsent:
            self._loop.add_writer(self._writer, self._writable)
        self._unsent += data

    def close(self) -> None:
        """Hangs up; `on_end` is not called for it. Idempotent."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._reader)
            self._loop.remove_writer(self._writer)
            os.close(self._reader)
            os.close(self._writer)

    def _writable(self) -> None:
        try:
            del self._unsent[: os.write(self._writer, self._unsent[:_CHUNK_BYTES])]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent.clear()
        if not self._unsent:
            self._loop.remove_writer(self._writer)

    def _readable(self) -> None:
        try:
            data = os.read(self._reader, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._end("")
            return
        self._parser.feed(data)
        try:
            while self._open and (frame := self._parser.next_frame()) is not None:
                self._on_frame(*frame)
        except (ValueError, KeyError, TypeError) as error:
            self._end(f"it does not keep to the protocol: {error}")

    def _end(self, why: str) -> None:
        self.close()
        self._on_end(why)
