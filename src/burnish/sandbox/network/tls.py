"""The server name of a TLS ClientHello (RFC 8446 section 4.1.2, RFC 6066 section 3), read strictly and in bounds.

What a server would read in another way than we do is refused and not guessed at. With an encrypted ClientHello this is
the outer name. What the encrypted part of a connection then says (the inner name, the Host header) is not seen.
"""

from typing import Protocol

from burnish.sandbox.network.target import Refused

HANDSHAKE_RECORD = 0x16
SERVER_HELLO_BYTES = 5 + 4 + 2 + 32  # of a ServerHello up to the end of its random
ALERT_ACCESS_DENIED = bytes.fromhex("15030300020231")  # a fatal alert, so that the client's error says why
MAX_RECORD_BYTES = (1 << 14) + 256  # encrypted ones are a little longer (RFC 8446 section 5.2)
MAX_HELLO_BYTES = 1 << 14
MAX_RECORDS = 64  # a hello is one record, or a few where somebody means to hide its name
_RETRY_RANDOM = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_HOST_NAME = 0


class ByteSource(Protocol):
    """Where bytes come from; `exactly` raises Refused at the end of the stream."""

    async def exactly(self, num_bytes: int) -> bytes: ...


async def read_client_hello(source: ByteSource) -> tuple[bytes, str | None]:
    """Reads records until the hello is whole. Returns them as they came, and the server name in them or None.

    Raises Refused for anything that is not a ClientHello alone in its records.
    """
    raw, message = bytearray(), bytearray()
    for _ in range(MAX_RECORDS):
        record = await read_record(source)
        if record[0] != HANDSHAKE_RECORD:
            raise _bad("a record of another type within")
        raw += record
        message += record[5:]
        if message[0] != _CLIENT_HELLO:
            raise _bad("another handshake message")
        if len(message) >= 4:
            end = 4 + int.from_bytes(message[1:4])
            if end > MAX_HELLO_BYTES:
                raise _bad(f"more than {MAX_HELLO_BYTES} bytes")
            if len(message) >= end:
                return bytes(raw), parse_client_hello(bytes(message))
    raise _bad(f"more than {MAX_RECORDS} records")


async def read_record(source: ByteSource) -> bytes:
    """One record of any type, with its header. Raises Refused."""
    header = await source.exactly(5)
    size = int.from_bytes(header[3:])
    if header[1] != 3 or not 0 < size <= MAX_RECORD_BYTES:
        raise _bad("a bad record")
    return header + await source.exactly(size)


def asks_for_retry(start: bytes) -> bool:
    """Whether a server's first `SERVER_HELLO_BYTES` are a HelloRetryRequest (RFC 8446 section 4.1.4)."""
    return start[:1] == bytes((HANDSHAKE_RECORD,)) and start.endswith(_RETRY_RANDOM)


def parse_client_hello(message: bytes) -> str | None:
    """The server name of a whole handshake message, as it stands there; None when there is none. Raises Refused."""
    cursor = _Cursor(message)
    if cursor.number(1) != _CLIENT_HELLO:
        raise _bad("another handshake message")
    hello = cursor.vector(3)
    cursor.expect_end()
    hello.take(2 + 32)  # version, random
    hello.vector(1)  # session id
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    if hello.at_end:
        return None
    extensions = hello.vector(2)
    hello.expect_end()
    name: str | None = None
    seen: set[int] = set()
    while not extensions.at_end:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind in seen:
            raise _bad("an extension twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            name = _parse_server_name(body)
    return name


def _parse_server_name(body: "_Cursor") -> str:
    names = body.vector(2)
    body.expect_end()
    kind, name = names.number(1), names.vector(2)
    names.expect_end()
    if kind != _HOST_NAME:
        raise _bad("a server name of another type")
    try:
        return name.rest().decode("ascii")
    except UnicodeDecodeError:
        raise _bad("a server name that is not ASCII") from None


def _bad(what: str) -> Refused:
    return Refused(f"a bad TLS ClientHello: {what}", kind="policy")


class _Cursor:
    """Reads bytes from the front; Refused where they end too early or too late."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, num_bytes: int) -> bytes:
        start, self._at = self._at, self._at + num_bytes
        if self._at > len(self._data):
            raise _bad("it ends too early")
        return self._data[start : self._at]

    def number(self, num_bytes: int) -> int:
        return int.from_bytes(self.take(num_bytes))

    def vector(self, length_bytes: int) -> "_Cursor":
        return _Cursor(self.take(self.number(length_bytes)))

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def expect_end(self) -> None:
        if not self.at_end:
            raise _bad("something stands after its end")
