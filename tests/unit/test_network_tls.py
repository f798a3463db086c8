"""The server name of a ClientHello: real ones, hostile ones, and any bytes."""

import contextlib
import functools
import ssl
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.sandbox.network.target import Refused
from burnish.sandbox.network.tls import (
    MAX_HELLO_BYTES,
    MAX_RECORDS,
    SERVER_HELLO_BYTES,
    asks_for_retry,
    parse_client_hello,
    read_client_hello,
)


class Bytes:
    """A source of bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def exactly(self, num_bytes: int) -> bytes:
        if len(self.data) < num_bytes:
            raise Refused("the end")
        taken, self.data = self.data[:num_bytes], self.data[num_bytes:]
        return taken


def vector(length_bytes: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return len(body).to_bytes(length_bytes) + body


def number(value: int, num_bytes: int = 2) -> bytes:
    return value.to_bytes(num_bytes)


def sni(name: bytes, kind: int = 0) -> bytes:
    return number(0) + vector(2, vector(2, bytes((kind,)), vector(2, name)))


def hello(*extensions: bytes, tail: bytes = b"") -> bytes:
    fields = b"\x03\x03" + bytes(32) + vector(1, bytes(32)) + vector(2, b"\x13\x01") + vector(1, b"\0")
    return b"\x01" + vector(3, fields, vector(2, *extensions) if extensions else b"", tail)


def records(message: bytes, *sizes: int) -> bytes:
    out, at = b"", 0
    for size in (*sizes, len(message)):
        part, at = message[at : at + size], at + size
        out += b"\x16\x03\x01" + vector(2, part) if part else b""
    return out


@functools.cache
def real_hello(name: str | None, *, minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = minimum
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


@pytest.mark.parametrize("minimum", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_real_hello(minimum: ssl.TLSVersion) -> None:
    raw = real_hello("files.pythonhosted.org", minimum=minimum)
    source = Bytes(raw + b"more")
    assert await read_client_hello(source) == (raw, "files.pythonhosted.org")
    assert source.data == b"more"
    assert (await read_client_hello(Bytes(real_hello(None))))[1] is None


@pytest.mark.parametrize("sizes", [(1,), (1, 1, 1), (3,), (4,), (5, 40), (60,), (1,) * 60])
async def test_a_hello_in_many_records(sizes: tuple[int, ...]) -> None:
    raw = records(hello(sni(b"a.example")), *sizes)
    assert await read_client_hello(Bytes(raw)) == (raw, "a.example")


def test_a_hello_without_extensions_has_no_name() -> None:
    assert parse_client_hello(hello()) is None
    assert parse_client_hello(hello(number(10) + vector(2))) is None


def test_with_an_encrypted_hello_it_is_the_outer_name() -> None:
    assert parse_client_hello(hello(number(0xFE0D) + vector(2, bytes(200)), sni(b"outer.example"))) == "outer.example"


SPLIT = records(hello(sni(b"a.example")), 20)
TWO_NAMES = number(0) + vector(2, vector(2, b"\0", vector(2, b"a.example"), b"\0", vector(2, b"b.example")))


@pytest.mark.parametrize(
    "message",
    [
        hello(sni(b"a.example"), sni(b"a.example")), hello(sni(b"a.example"), sni(b"b.example")), hello(TWO_NAMES),
        hello(sni(b"a.example", kind=1)), hello(sni(b"\xff")), hello(sni(b"a.example"), tail=b"x"),
        hello(sni(b"a.example")) + b"x", hello(sni(b"a.example"))[:-1], hello(number(0) + vector(2)),
        hello(number(0) + vector(2, vector(2))), b"\x02" + hello(sni(b"a.example"))[1:], b"", b"\x01",
        hello(number(10) + vector(2), number(10) + vector(2), sni(b"a.example")),
        hello(number(0) + vector(2, sni(b"a")[4:], b"x")),
    ],
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused(message: bytes) -> None:
    with pytest.raises(Refused):
        parse_client_hello(message)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\x16", b"\x16\x03\x01\x00\x00", b"\x16\x02\x00" + vector(2, hello()),
        b"\x80" + real_hello("a.example")[1:],
        records(hello(sni(b"a.example")) + hello(sni(b"b.example"))),  # a second message behind the first
        SPLIT[:25] + b"\x14\x03\x01\x00\x01\x01" + SPLIT[25:],  # another record between its two
        b"\x16\x03\x01\x80\x00" + bytes(1 << 15), records(hello(number(9) + vector(2, bytes(MAX_HELLO_BYTES)))),
        records(hello(sni(b"a.example")), *[1] * MAX_RECORDS), b"\x16\x03\x01\x00\x01\x02" * 70,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)  # fmt: skip
async def test_hostile_records_are_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        await read_client_hello(Bytes(raw))


async def test_reading_stops_at_the_bound() -> None:
    source = Bytes(b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(1 << 20))
    with pytest.raises(Refused):
        await read_client_hello(source)
    assert len(source.data) > 1 << 19


@given(st.binary(max_size=300))
def test_any_message_gives_a_name_or_a_refusal(data: bytes) -> None:
    for message in (data, b"\x01" + vector(3, data), hello(data), hello(number(0) + vector(2, data)), hello(sni(data))):
        with contextlib.suppress(Refused):
            name = parse_client_hello(message)
            assert name is None or name.isascii()


@given(st.integers(0, 600), st.integers(0, 255), st.lists(st.integers(1, 50), max_size=8))
async def test_a_real_hello_with_one_byte_changed(at: int, byte: int, sizes: list[int]) -> None:
    message = bytearray(real_hello("a.example")[5:])
    message[at % len(message)] = byte
    with contextlib.suppress(Refused):
        await read_client_hello(Bytes(records(bytes(message), *sizes)))


@given(st.integers(0, 600))
async def test_a_cut_hello_is_refused(at: int) -> None:
    raw = real_hello("a.example")
    with pytest.raises(Refused):
        await read_client_hello(Bytes(raw[: at % len(raw)]))


def test_a_retry_request_is_told_from_a_server_hello() -> None:
    random = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
    start = b"\x16\x03\x03\x00\x58\x02\x00\x00\x54\x03\x03"
    assert len(start + random) == SERVER_HELLO_BYTES
    assert asks_for_retry(start + random)
    assert not asks_for_retry(start + bytes(32)) and not asks_for_retry(b"") and not asks_for_retry(random)


def test_an_address_as_server_name_is_read_as_text() -> None:
    assert parse_client_hello(hello(sni(str(ip_address("10.0.0.1")).encode()))) == "10.0.0.1"
