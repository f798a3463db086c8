"""The owner's end of a packet socket."""

import asyncio
import os
import socket
from pathlib import Path

from burnish.sandbox.process import wire
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.wire import Message


class Listener:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.num_ends = 0
        self.ended = asyncio.Event()
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel = Channel(ours, self.hear, self.end)

    def hear(self, message: Message, fds: list[int]) -> None:
        self.messages.append(message)

    def end(self) -> None:
        self.num_ends += 1
        self.ended.set()


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_what_does_not_fit_is_sent_later_and_in_order() -> None:
    listener = Listener()
    before = num_descriptors()
    for number in range(200):
        listener.channel.post({"number": number, "text": "x" * 10_000}, [os.open("/dev/null", os.O_RDONLY)])
    listener.theirs.setblocking(False)
    received: list[int] = []
    while len(received) < 200:
        try:
            message, fds = wire.receive(listener.theirs)
        except BlockingIOError:
            await asyncio.sleep(0)
            continue
        received.append(message["number"])
        os.close(fds[0])
    assert received == list(range(200))
    assert num_descriptors() == before
    listener.channel.close()
    listener.theirs.close()


async def test_the_end_is_told_once() -> None:
    listener = Listener()
    wire.send(listener.theirs, {"last": True})
    listener.theirs.close()
    async with asyncio.timeout(5):
        await listener.ended.wait()
    assert not listener.channel.is_open
    assert (listener.messages, listener.num_ends) == ([{"last": True}], 1)
    before = num_descriptors()
    listener.channel.post({"lost": True}, [os.open("/dev/null", os.O_RDONLY)])
    assert num_descriptors() == before
    listener.channel.close()
    assert listener.num_ends == 1


async def test_closing_drops_the_queue_and_its_descriptors() -> None:
    listener = Listener()
    before = num_descriptors()
    for _ in range(200):
        listener.channel.post({"text": "x" * 10_000}, [os.open("/dev/null", os.O_RDONLY)])
    listener.channel.close()
    listener.theirs.close()
    assert num_descriptors() == before - 2
    assert listener.num_ends == 0
