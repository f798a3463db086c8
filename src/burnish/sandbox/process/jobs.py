"""Work on layers that takes long, each in a forked child of the host, which goes on serving meanwhile.

A job has the host's mounts and rights, and of its descriptors only those it is for: above all not the lifeline, or a
job that outlived the host would keep the sandboxes alive. The kernel kills it when the host ends. It says in a file in
memory what it found or what went wrong; a job that said nothing and did not exit with 0 was killed.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from burnish.sandbox.process import syscalls
from burnish.sandbox.process.wire import Message

_REPORT_BYTES = 2000
_REFUSED = 2  # the exit code of a job that did


class Refused(Exception):  # noqa: N818
    """What a job was given cannot be accepted; the message says why."""


class Jobs:
    """Those that run."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[str, int]] = {}  # pid -> name, descriptor of its report

    @property
    def pids(self) -> "tuple[int, ...]":
        return tuple(self._running)

    def start(self, job: str, work: Callable[[], str], keep: Sequence[int]) -> None:
        """Forks a child that does the work with the descriptors of `keep` and exits. Raises OSError."""
        parent = os.getpid()
        report = os.memfd_create("job", os.MFD_CLOEXEC)
        try:
            pid = os.fork()
        except OSError:
            os.close(report)
            raise
        if pid == 0:
            _live(work, (*keep, report), report, parent)
        self._running[pid] = job, report

    def cancel(self, job: str) -> None:
        """Ends it, if it runs; it finishes as one that was killed."""
        for pid, (name, _) in self._running.items():
            if name == job:
                os.kill(pid, signal.SIGKILL)

    def close_descriptors(self) -> None:
        """For a process that was forked from the host and has no business here."""
        for _, report in self._running.values():
            os.close(report)

    def finish(self, pid: int, code: int) -> Message:
        """Of a child that has ended: what its owner is told."""
        job, report = self._running.pop(pid)
        text = os.pread(report, _REPORT_BYTES, 0).decode(errors="replace")
        os.close(report)
        cause = text or (f"it was killed by signal {-code}" if code < 0 else f"it exited with {code}")
        return {
            "done": job, "cause": cause if code else "", "is_refused": code == _REFUSED, "result": "" if code else text,
        }  # fmt: skip


def _live(work: Callable[[], str], keep: Sequence[int], report: int, parent: int) -> None:
    """The child, to its end."""
    code = 1
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:  # else the host died before the signal was armed
            _close_all_but(keep)
            os.write(report, work().encode())
            code = 0
    except Refused as refusal:
        code = _REFUSED
        os.write(report, str(refusal).encode(errors="replace"))
    except OSError as error:
        os.write(report, (error.strerror or str(error)).encode(errors="replace"))
    except BaseException as error:  # noqa: BLE001 (the last frame of this process: say it in the host's log, then go)
        os.write(report, type(error).__name__.encode())
        sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _close_all_but(keep: Sequence[int]) -> None:
    first = 3  # what the host prints to stays open
    for descriptor in sorted(keep):
        if first < descriptor:  # os.closerange(0, 0) closes everything
            os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
