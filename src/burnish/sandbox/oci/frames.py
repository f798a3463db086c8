"""What travels between the owner and a container's agent: frames over two pipes. Shared by both ends.

A frame is two lengths, a JSON object of the first length, and raw bytes of the second.
"""

import json
import struct
from typing import Any

Message = dict[str, Any]

_LENGTHS = struct.Struct("!II")
MAX_BYTES = (1 << 32) - 1  # what a length can say


def pack(message: Message, payload: "bytes | bytearray | memoryview" = b"") -> bytes:
    """One frame. Raises ValueError for one that no length can describe."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if max(len(body), len(payload)) > MAX_BYTES:
        raise ValueError(f"a frame of {len(body)} + {len(payload)} bytes is too long")
    return b"".join((_LENGTHS.pack(len(body), len(payload)), body, payload))


class Parser:
    """Cuts a stream of bytes into frames.

    Example:
        >>> parser = Parser(100)
        >>> parser.feed(pack({"a": 1}, b"xy")[:-1]), parser.next_frame()
        (None, None)
        >>> parser.feed(b"y"), parser.next_frame()
        (None, ({'a': 1}, b'xy'))
    """

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: the longest frame that is believed."""
        self._most_bytes = most_bytes
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    def next_frame(self) -> "tuple[Message, bytes] | None":
        """The next whole frame, if it has arrived. Raises ValueError when what arrives is not one."""
        if len(self._data) < _LENGTHS.size:
            return None
        body_bytes, payload_bytes = _LENGTHS.unpack_from(self._data)
        middle = _LENGTHS.size + body_bytes
        end = middle + payload_bytes
        if end > self._most_bytes:
            raise ValueError(f"a frame of {end} bytes, more than {self._most_bytes}")
        if len(self._data) < end:
            return None
        message = json.loads(self._data[_LENGTHS.size : middle])
        if not isinstance(message, dict):
            raise ValueError("a frame that holds no object")
        payload = bytes(self._data[middle:end])
        del self._data[:end]
        return message, payload
