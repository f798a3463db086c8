"""Frames between an owner and a container's agent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.sandbox.oci.frames import Message, Parser, pack

MESSAGES = st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=3)


@given(st.lists(st.tuples(MESSAGES, st.binary(max_size=50)), max_size=5), st.integers(1, 40))
def test_frames_arrive_however_the_stream_is_cut(sent: list[tuple[Message, bytes]], step: int) -> None:
    stream = b"".join(pack(*frame) for frame in sent)
    parser, received = Parser(1 << 20), []
    for start in range(0, len(stream), step):
        parser.feed(stream[start : start + step])
        while (frame := parser.next_frame()) is not None:
            received.append(frame)
    assert received == sent


@pytest.mark.parametrize("stream", [b"\xff" * 8, pack({"a": 1}, b"x" * 100)])
def test_a_frame_longer_than_agreed_is_refused_before_it_is_kept(stream: bytes) -> None:
    parser = Parser(100)
    parser.feed(stream[:8])
    with pytest.raises(ValueError, match="more than 100"):
        parser.next_frame()


@pytest.mark.parametrize("body", [b"[]", b"nonsense", b"\xff\xfe"])
def test_a_frame_that_holds_no_object_is_refused(body: bytes) -> None:
    parser = Parser(100)
    parser.feed(len(body).to_bytes(4, "big") + bytes(4) + body)
    with pytest.raises(ValueError):
        parser.next_frame()
