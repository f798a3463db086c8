"""Moving bytes between the two sides of a connection, and the look at the first of them.

One chunk is read and sent before the next is read, in each direction, so a slow side slows the other and nothing piles
up. The end of one direction is passed on and leaves the other open.
"""

import asyncio

from burnish.sandbox.network.target import Ask, Refused, Target, make_target
from burnish.sandbox.network.tls import (
    HANDSHAKE_RECORD,
    SERVER_HELLO_BYTES,
    asks_for_retry,
    read_client_hello,
    read_record,
)
from burnish.sandbox.network.wire import Wire

TLS_PORT = 443  # the first bytes to a name on this port must be a ClientHello


class Relay:
    """One connection's traffic, counted."""

    def __init__(self, client: Wire, upstream: Wire, ask: Ask, *, handshake_s: float, idle_s: float) -> None:
        self._client, self._upstream, self._ask = client, upstream, ask
        self._handshake_s, self._idle_s = handshake_s, idle_s
        self._idle = asyncio.timeout(None)
        self._retry: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.bytes_up = 0
        self.bytes_down = 0

    async def run(self) -> None:
        """Returns when both sides are done; a plain request is when the server is.

        Raises Refused (a wrong server name, a silent or vanished client) and OSError (a side that was reset).
        """
        try:
            async with asyncio.timeout(self._idle_s) as self._idle, asyncio.TaskGroup() as group:
                up = group.create_task(self._up())
                await self._down()
                if self._ask.body_bytes is not None:
                    up.cancel()  # the answer is complete; whatever the client still sends belongs to nothing
        except* (Refused, OSError) as group_error:
            # A refusal is a verdict; that the other direction broke at the same time is no news.
            errors = group_error.exceptions
            raise next((error for error in errors if isinstance(error, Refused)), errors[0]) from None

    async def _up(self) -> None:
        await self._send_up(self._ask.opening)
        if self._ask.body_bytes is not None:
            await self._send_body(self._ask.body_bytes)
            return
        if self._ask.target.address is None:
            await self._begin_tunnel()
        while data := await self._client.read():
            await self._send_up(data)
        self._upstream.end()

    async def _down(self) -> None:
        if self._ask.body_bytes is None and self._ask.target.address is None:
            first = await self._upstream.peek()
            start = await self._upstream.look(SERVER_HELLO_BYTES) if first == HANDSHAKE_RECORD else b""
            self._retry.set_result(asks_for_retry(start))
        while data := await self._upstream.read():
            self._moved()
            self.bytes_down += len(data)
            await self._client.send(data)
        self._client.end()

    async def _begin_tunnel(self) -> None:
        """Lets the start of a tunnel to a name through, once it is known to speak to that name.

        A server may ask for a second ClientHello, and would take another name from that one.
        """
        first = await self._client.peek()
        if first != HANDSHAKE_RECORD:
            if self._ask.target.port == TLS_PORT and first is not None:
                raise Refused(f"{self._ask.target} was sent something other than TLS", kind="policy")
            return
        await self._send_up(await self._read_hello())
        if await self._retry:
            while (await self._client.peek()) not in (HANDSHAKE_RECORD, None):  # early data that the server skips
                await self._send_up(await read_record(self._client))
            await self._send_up(await self._read_hello())

    async def _read_hello(self) -> bytes:
        target = self._ask.target
        try:
            async with asyncio.timeout(self._handshake_s):
                raw, name = await read_client_hello(self._client)
        except TimeoutError:
            raise Refused("a TLS ClientHello that was not finished in time", kind="timeout") from None
        if name is None or not _same_name(name, target):
            raise Refused(f"the TLS server name is not {target.host}", kind="policy")
        return raw

    async def _send_up(self, data: bytes) -> None:
        self._moved()
        self.bytes_up += len(data)
        await self._upstream.send(data)

    async def _send_body(self, left: int) -> None:
        """Exactly the request's body: a second request behind it would be one that nobody judged."""
        while left:
            data = (await self._client.read())[:left]
            if not data:
                raise Refused("the client hung up in the middle of its request")
            left -= len(data)
            await self._send_up(data)

    def _moved(self) -> None:
        if not self._idle.expired():  # else the end is under way, and this is a last step before it arrives here
            self._idle.reschedule(asyncio.get_running_loop().time() + self._idle_s)


def _same_name(name: str, target: Target) -> bool:
    try:
        return make_target(name, target.port) == target
    except Refused:
        return False
