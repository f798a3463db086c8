"""Commands that were cloned and did not become their program, which their supervisor waits for without a deadline.

Until exec, a new process shares the supervisor's memory, and the kernel lets nobody interrupt that wait. But it has the
candidate's uid already: another process of the sandbox may stop it at that moment, or hold a lease on the program that
it is about to open. The supervisor then neither answers nor keeps time; so the host, when the owner misses an answer,
ends such a process from outside, and the supervisor goes on.
"""

import contextlib
import os
import signal
import time

_USUAL_S = 0.5  # more than a start takes on a busy machine
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def end_unstarted(supervisor: int) -> None:
    """Kills the children of a supervisor that have not become a program within a moment."""
    latest = time.clock_gettime(time.CLOCK_BOOTTIME) - _USUAL_S
    with contextlib.suppress(OSError):  # whoever ends meanwhile needs no help
        own = _command_line(supervisor)
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    parent, started_s = _parent_and_start(name)
                    if parent == supervisor and started_s < latest and _command_line(name) == own:
                        os.kill(int(name), signal.SIGKILL)


def _parent_and_start(pid: str) -> "tuple[int, float]":
    with open(f"/proc/{pid}/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    return int(fields[1]), int(fields[19]) / _TICKS_PER_S


def _command_line(pid: "int | str") -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as words:
        return words.read()
