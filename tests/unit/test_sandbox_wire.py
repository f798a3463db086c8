"""Packets and descriptors."""

import os
import socket
from collections.abc import Iterator

import pytest

from burnish.sandbox.process import wire

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [0, 10, wire.INLINE_BYTES, 3 << 20])
def test_a_message_of_any_size_arrives_with_its_descriptors(pair: Pair, size: int) -> None:
    message = {"text": "x" * size, "odd": "\udcff\n"}
    content = wire.memfd("test", b"content")
    wire.send(pair[0], message, [content])
    os.close(content)
    received, fds = wire.receive(pair[1])
    assert received == message
    assert [os.read(descriptor, 100) for descriptor in fds] == [b"content"]
    assert not os.get_inheritable(fds[0])
    os.close(fds[0])


def test_messages_keep_their_order(pair: Pair) -> None:
    for number in range(20):
        wire.send(pair[0], {"number": number})
    assert [wire.receive(pair[1])[0]["number"] for _ in range(20)] == list(range(20))


def test_the_end_is_an_eof(pair: Pair) -> None:
    pair[0].close()
    with pytest.raises(EOFError):
        wire.receive(pair[1])


def test_a_full_queue_blocks_nobody(pair: Pair) -> None:
    pair[0].setblocking(False)
    with pytest.raises(BlockingIOError):
        for _ in range(10_000):
            wire.send(pair[0], {"text": "x" * 10_000})


def test_reading_stops_at_the_limit() -> None:
    content = wire.memfd("test", bytes(5000))
    assert len(wire.read_all(content, 100)) == 100
    assert len(wire.read_all(content, 1 << 20)) == 4900
    os.close(content)
