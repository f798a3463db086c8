"""Stopping all processes of a sandbox while its files are copied. By signals, which its programs can undo.

What a program does about it must not pass for a moment that never was: at the end it shows whether any process had the
processor meanwhile.
"""

import contextlib
import os
import signal
import time

from burnish.sandbox.process.processes import read_all, stat_of_all

INSIST_MS = 5.0  # a program whose timer wakes it is stopped again after so long
_STOPPING_S, _POLL_S = 1.0, 0.001


class Standstill:
    """From `begin` to `end` nothing of the sandbox should run but pid 1, which calls this."""

    def __init__(self, proc: int) -> None:
        """`proc` is a descriptor of /proc."""
        self._proc = proc
        self.since = time.monotonic()
        # Only those that ran before may go on after.
        self._stopped_before = {pid for pid, (state, _) in stat_of_all(proc).items() if state in (b"T", b"t")}
        self._used: dict[int, int] = {}

    def begin(self) -> bool:
        """Whether, within a moment, no process runs or could wake up.

        One that is about to stop may wake another with its last instruction, so they are told again until all stand
        still. One in the state "D" counts as stopped: it waits for a child that shares its memory and was stopped
        before exec.
        """
        deadline = time.monotonic() + _STOPPING_S
        while True:
            self.insist()
            if not any(state in b"RS" for pid, (state, _) in stat_of_all(self._proc).items() if pid != 1):
                self._used = self._processor_time()
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)

    def insist(self) -> None:
        """Stops again whoever was woken."""
        with contextlib.suppress(ProcessLookupError):  # nobody is there
            os.kill(-1, signal.SIGSTOP)

    def end(self) -> bool:
        """Lets them go on. Whether nothing had run since `begin` returned."""
        stood = self._processor_time() == self._used
        for pid in stat_of_all(self._proc):
            if pid != 1 and pid not in self._stopped_before:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        return stood

    def _processor_time(self) -> "dict[int, int]":
        """Nanoseconds by process, all its threads together; empty where the kernel does not count them."""
        used: dict[int, int] = {}
        for pid in stat_of_all(self._proc):
            if pid != 1:
                with contextlib.suppress(OSError):
                    threads = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
                    try:
                        used[pid] = sum(int(line.split()[0]) for _, line in read_all(threads, "schedstat"))
                    finally:
                        os.close(threads)
        return used
