"""One message per packet over a unix SEQPACKET socket: a JSON object and descriptors. Shared by all three ends.

A message too long for a packet travels in a memfd whose descriptor comes first. Whoever receives owns the descriptors.
"""

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

INLINE_BYTES = 48 << 10  # well under the default socket buffer, so that a packet never fails for its size
MAX_FDS = 16
_LONG = b"\0"
# As plain numbers: an operation on the enums of `socket` takes microseconds and touches a hundred kilobytes, of which
# each sandbox would then have a copy of its own.
_LEVEL, _RIGHTS = int(socket.SOL_SOCKET), int(socket.SCM_RIGHTS)
_CLOEXEC, _NO_SIGNAL = int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_NOSIGNAL)
_CUT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_SPACE = socket.CMSG_SPACE(MAX_FDS * 4)
# json.dumps and json.loads would make or choose theirs for every message
_encode, _decode = json.JSONEncoder(separators=(",", ":")).encode, json.JSONDecoder().decode


def memfd(name: str, data: "bytes | bytearray | memoryview") -> int:
    """An anonymous file that holds `data`, rewound."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_all(descriptor: int, limit: int) -> bytes:
    """Up to `limit` bytes from the descriptor's position on."""
    parts = []
    while limit > 0 and (part := os.read(descriptor, min(limit, 1 << 20))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def send(sock: socket.SocketType, message: Message, fds: Sequence[int] = ()) -> None:
    """Sends one message; the descriptors stay the caller's.

    Raises EOFError when the other side is gone, BlockingIOError when the queue is full.
    """
    body = _encode(message).encode()
    if len(body) <= INLINE_BYTES:
        _send(sock, body, fds)
        return
    long = memfd("burnish-message", body)
    try:
        _send(sock, _LONG, [long, *fds])
    finally:
        os.close(long)


def _send(sock: socket.SocketType, body: bytes, fds: Sequence[int]) -> None:
    ancillary = [(_LEVEL, _RIGHTS, array.array("i", fds))] if fds else []
    try:
        sock.sendmsg([body], ancillary, _NO_SIGNAL)
    except ConnectionError as error:
        raise EOFError(str(error)) from error


def receive(sock: socket.SocketType) -> tuple[Message, list[int]]:
    """The next message. Raises EOFError when the other side is gone, BlockingIOError when nothing is there."""
    try:
        body, ancillary, flags, _ = sock.recvmsg(INLINE_BYTES, _SPACE, _CLOEXEC)
    except ConnectionError as error:
        raise EOFError(str(error)) from error
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == _LEVEL and kind == _RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if not body:
        raise EOFError("the other side closed the connection")
    if flags & _CUT:
        for descriptor in fds:
            os.close(descriptor)
        raise EOFError("a packet was cut")
    owned = fds.tolist()
    if body == _LONG:
        long = owned.pop(0)
        try:
            body = read_all(long, 1 << 30)
        finally:
            os.close(long)
    message: Message = _decode(body.decode())
    return message, owned
