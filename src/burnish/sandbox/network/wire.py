"""A stream socket with a small read-ahead, for both sides of the proxy.

Plain sockets and not asyncio's streams: a pump that reads one chunk and sends it before it reads the next needs no
buffers, so that backpressure is the kernel's and a slow reader costs one chunk.
"""

import asyncio
import contextlib
import socket
import struct

from burnish.sandbox.network.target import Refused

CHUNK_BYTES = 64 << 10
_HANDSHAKE_CHUNK_BYTES = 4 << 10
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 s


class Wire:
    """One side of a connection. Takes the socket over; `close` or `reset` ends it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._ahead = bytearray()

    async def read(self) -> bytes:
        """What is there, at most a chunk; waits for the first byte. Empty at the end of the stream."""
        if self._ahead:
            data = bytes(self._ahead)
            self._ahead.clear()
            return data
        return await self._receive(CHUNK_BYTES)

    async def peek(self) -> int | None:
        """The next byte, which stays; None at the end of the stream."""
        return next(iter(await self.look(1)), None)

    async def look(self, num_bytes: int) -> bytes:
        """The next bytes, which stay; fewer at the end of the stream."""
        while len(self._ahead) < num_bytes and await self._fill():
            pass
        return bytes(self._ahead[:num_bytes])

    async def exactly(self, num_bytes: int) -> bytes:
        """The next bytes. Raises Refused when the stream ends before."""
        while len(self._ahead) < num_bytes:
            await self._fill_or_refuse()
        return self._take(num_bytes)

    async def until(self, mark: bytes, *, max_bytes: int) -> bytes:
        """Up to and with `mark`. Raises Refused when the stream ends before, or after `max_bytes` without it."""
        searched = 0
        while (at := self._ahead.find(mark, searched, max_bytes)) < 0:
            if len(self._ahead) >= max_bytes:
                raise Refused(f"a request head of more than {max_bytes} bytes", kind="length")
            searched = max(0, len(self._ahead) - len(mark) + 1)  # never the same bytes twice, however they trickle in
            await self._fill_or_refuse()
        return self._take(at + len(mark))

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    def end(self) -> None:
        """Says that nothing more will be sent; the other direction stays open."""
        with contextlib.suppress(OSError):  # the other side is gone already
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Closes so that the other side sees an error and never takes what it got for the whole."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.sock.close()

    async def _receive(self, num_bytes: int) -> bytes:
        # sock_recv does not wait when data is there. Without a pause, a pump between two fast sides keeps the loop.
        await asyncio.sleep(0)
        return await asyncio.get_running_loop().sock_recv(self.sock, num_bytes)

    async def _fill(self) -> bool:
        data = await self._receive(_HANDSHAKE_CHUNK_BYTES)
        self._ahead += data
        return bool(data)

    async def _fill_or_refuse(self) -> None:
        if not await self._fill():
            raise Refused("the client hung up in the middle of its request")

    def _take(self, num_bytes: int) -> bytes:
        data = bytes(self._ahead[:num_bytes])
        del self._ahead[:num_bytes]
        return data
