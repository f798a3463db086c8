"""Reading a socket in bounds, and the SOCKS5 conversation on it."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.sandbox.network import socks
from burnish.sandbox.network.target import Ask, Refused
from burnish.sandbox.network.wire import Wire


@pytest.fixture
def pair() -> Iterator[tuple[Wire, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Wire(ours), theirs


async def test_reads_in_bounds(pair: tuple[Wire, socket.socket]) -> None:
    wire, peer = pair
    peer.sendall(b"\x05head\r\n\r\nbody and more")
    assert await wire.peek() == 5 and await wire.look(2) == b"\x05h"
    assert await wire.exactly(1) == b"\x05"
    assert await wire.until(b"\r\n\r\n", max_bytes=100) == b"head\r\n\r\n"
    assert await wire.exactly(4) == b"body"
    peer.close()
    assert await wire.read() == b" and more"
    assert await wire.read() == b"" and await wire.peek() is None and await wire.look(3) == b""


async def test_a_head_without_an_end_is_bounded(pair: tuple[Wire, socket.socket]) -> None:
    wire, peer = pair
    peer.sendall(b"x" * 50_000)
    with pytest.raises(Refused, match="more than 1000 bytes"):
        await wire.until(b"\r\n\r\n", max_bytes=1000)
    assert len(wire._ahead) < 10_000


async def test_a_mark_beyond_the_bound_does_not_count(pair: tuple[Wire, socket.socket]) -> None:
    wire, peer = pair
    peer.sendall(b"x" * 8 + b"\r\n\r\n")
    with pytest.raises(Refused):
        await wire.until(b"\r\n\r\n", max_bytes=11)
    assert await wire.until(b"\r\n\r\n", max_bytes=12)


async def test_a_mark_that_trickles_in_is_found(pair: tuple[Wire, socket.socket]) -> None:
    wire, peer = pair
    reading = asyncio.create_task(wire.until(b"\r\n\r\n", max_bytes=100))
    for byte in b"ab\r\n\r\n":
        peer.sendall(bytes((byte,)))
        await asyncio.sleep(0.001)
    assert await reading == b"ab\r\n\r\n"


@pytest.mark.parametrize("data", [b"", b"ab"])
async def test_an_early_end_is_refused(pair: tuple[Wire, socket.socket], data: bytes) -> None:
    wire, peer = pair
    peer.sendall(data)
    peer.close()
    with pytest.raises(Refused, match="hung up"):
        await wire.exactly(3)


async def test_a_fast_peer_does_not_keep_the_loop(pair: tuple[Wire, socket.socket]) -> None:
    """sock_recv returns at once when data is there, so a loop of reads would never let anybody else run."""
    wire, peer = pair
    peer.sendall(b"x" * 100_000)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    got = 0
    while got < 100_000:
        before = ticks
        got += len(await wire.read())
        assert ticks > before
    ticking.cancel()


def greeting(*methods: int) -> bytes:
    return bytes((5, len(methods), *methods))


def ask(kind: int, address: bytes, *, port: int = 443, command: int = 1, version: int = 5, reserved: int = 0) -> bytes:
    return bytes((version, command, reserved, kind)) + address + port.to_bytes(2)


async def talk(data: bytes) -> tuple[Ask | Refused, bytes]:
    """What becomes of what a client sends in one go, and the answers it got."""
    ours, peer = socket.socketpair()
    with ours, peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        outcome: Ask | Refused
        try:
            outcome = await socks.read_request(Wire(ours))
        except Refused as refused:
            outcome = refused
        ours.shutdown(socket.SHUT_WR)
        return outcome, peer.recv(1000)


@pytest.mark.parametrize(
    ("kind", "address", "target"),
    [
        (3, b"\x08PyPI.org", "pypi.org:443"), (1, bytes((10, 0, 0, 1)), "10.0.0.1:443"),
        (4, bytes(15) + b"\x01", "[::1]:443"),
        (4, bytes(10) + b"\xff\xff\x7f\x00\x00\x01", "127.0.0.1:443"), (3, b"\x073.3.3.3", "3.3.3.3:443"),
        (3, b"\x03::1", "[::1]:443"),
    ],
)  # fmt: skip
async def test_socks_requests(kind: int, address: bytes, target: str) -> None:
    outcome, answer = await talk(greeting(2, 0) + ask(kind, address))
    assert isinstance(outcome, Ask), outcome
    assert (str(outcome.target), outcome.protocol, answer) == (target, "socks5", b"\x05\x00")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (ask(3, b"\x08pypi.org", command=2), 7), (ask(3, b"\x08pypi.org", command=3), 7), (ask(2, b"\x08pypi.org"), 8),
        (ask(3, b"\x08pypi.org", version=4), 1), (ask(3, b"\x08pypi.org", reserved=1), 1), (ask(3, b"\x00"), 1),
        (ask(3, b"\x08pypi.org", port=0), 1), (ask(3, b"\x06pypi\xff\xff"), 1), (ask(3, b"\x062130.1"), 1),
        (ask(3, b"\x09a\r\nHost:b"), 1),
        (ask(3, b"\x0b[fe80::1%1]"), 1), (ask(3, b"\x0912345.678"), 1), (ask(3, b"\x0apypi.org\x00x"), 1),
        (ask(1, b"")[:5], 1),
    ],
)  # fmt: skip
async def test_bad_socks_requests_are_refused_properly(data: bytes, code: int) -> None:
    outcome, _ = await talk(greeting(0) + data)
    assert isinstance(outcome, Refused)
    assert socks.refusal(outcome) == bytes((5, code, 0, 1)) + bytes(6)


async def test_without_a_common_method_the_answer_is_ff() -> None:
    for methods in ((), (1, 2)):
        outcome, answer = await talk(greeting(*methods) + ask(3, b"\x08pypi.org"))
        assert isinstance(outcome, Refused) and answer == b"" and socks.refusal(outcome) == b"\x05\xff"


@given(st.binary(max_size=40))
async def test_any_bytes_are_an_ask_or_refused(data: bytes) -> None:
    for prefix in (b"", greeting(0), greeting(0) + b"\x05\x01\x00\x03"):
        await talk(prefix + data)
