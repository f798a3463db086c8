"""Bounded output."""

import asyncio
import os

from hypothesis import given
from hypothesis import strategies as st

from burnish.sandbox.process.output import HeadAndTail, Output


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(0, 100))
def test_head_and_tail_of_the_whole_stream_are_kept(parts: list[bytes], limit: int) -> None:
    kept = HeadAndTail(limit)
    for part in parts:
        kept.add(part)
    whole = b"".join(parts)
    head, tail = limit - limit // 2, limit // 2
    expected = whole if len(whole) <= limit else whole[:head] + whole[len(whole) - tail :]
    assert kept.result() == expected
    assert kept.num_dropped == len(whole) - len(expected)


def test_memory_stays_bounded() -> None:
    kept = HeadAndTail(1000)
    for _ in range(200):
        kept.add(bytes(64 << 10))
    assert len(kept._head) + len(kept._tail) < 1 << 18
    assert kept.num_dropped == (200 * 64 << 10) - 1000


def close_writers(output: Output) -> None:
    for writer in output.writers:
        os.close(writer)


async def test_a_pipe_is_drained_while_it_is_written() -> None:
    output = Output(10)
    await asyncio.to_thread(os.write, output.writers[1], b"x" * 1_000_000)  # many times what a pipe holds
    close_writers(output)
    assert output.finish() == (b"", b"x" * 10, 999_990)


async def test_an_open_writer_does_not_keep_us() -> None:
    output = Output(10)
    os.write(output.writers[0], b"here")
    assert output.finish() == (b"here", b"", 0)
    close_writers(output)


async def test_a_pipe_that_somebody_else_emptied_is_no_error() -> None:
    output = Output(10)
    assert output._readers[0]._read() is None
    close_writers(output)
    assert output.finish() == (b"", b"", 0)
