"""A person's terminal, inside a sandbox."""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
import tty
from collections.abc import Iterator, Sequence

from burnish.sandbox.base import ExecResult
from burnish.sandbox.process.box import ProcessBox, run_on_terminal

_CHUNK_BYTES = 64 << 10
_DRAIN_S = 0.05  # for the last of the output


async def attach(box: ProcessBox, argv: Sequence[str], *, timeout_s: float) -> ExecResult:
    """Runs a program with this process's terminal as its own, until it ends."""
    outer, inner = os.openpty()
    loop = asyncio.get_running_loop()
    ours = sys.stdin.fileno()
    try:
        with _raw_mode(ours):
            _copy_size(ours, outer)
            loop.add_signal_handler(signal.SIGWINCH, _copy_size, ours, outer)
            loop.add_reader(ours, _pass_on, ours, outer)
            loop.add_reader(outer, _pass_on, outer, sys.stdout.fileno())
            try:
                result = await run_on_terminal(box, argv, inner, timeout_s=timeout_s)
                await asyncio.sleep(_DRAIN_S)
                return result
            finally:
                loop.remove_reader(ours)
                loop.remove_reader(outer)
                loop.remove_signal_handler(signal.SIGWINCH)
    finally:
        os.close(outer)


def _pass_on(source: int, target: int) -> None:
    try:
        data = os.read(source, _CHUNK_BYTES)
    except OSError:  # the inner end has no user left
        data = b""
    if not data:
        asyncio.get_running_loop().remove_reader(source)
        return
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def _copy_size(source: int, target: int) -> None:
    if os.isatty(source):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _raw_mode(descriptor: int) -> Iterator[None]:
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed ahead is not lost
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
