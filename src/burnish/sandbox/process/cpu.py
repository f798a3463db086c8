"""The CPU time of a sandbox: what its programs have used, and which processors they are shown. Stdlib only."""

import math
import os
import resource
import time

from burnish.sandbox.process.processes import read_all

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class GroupClock:
    """Seconds that the processes of a control group have used, those that are gone included, this one's left out."""

    is_exact = True
    pause_s = 0.005  # between two looks, at least

    def __init__(self, directory: int, *, version_2: bool) -> None:
        """Raises OSError when the group does not tell."""
        self._version_2 = version_2
        name = "cpu.stat" if version_2 else "cpuacct.usage"
        self._descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)

    def read_s(self) -> float:
        own = time.process_time()  # first: reading it brings the group's account up to date
        text = os.pread(self._descriptor, 64, 0)
        if self._version_2:  # begins with "usage_usec 12345"
            return int(text.split(None, 2)[1]) / 1e6 - own
        return int(text) / 1e9 - own


class SampledClock:
    """The same without a control group, from /proc.

    What is lost: processes that end between two looks and whose parent does not want to hear of it.
    """

    is_exact = False
    pause_s = 0.02
    _proc = -1

    def read_s(self) -> float:
        if self._proc < 0:  # when the first command begins, and not later: programs may close / to us
            self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
        num_ticks = 0
        for pid, stat in read_all(self._proc, "stat"):
            if pid != 1:
                fields = stat.rpartition(b")")[2].split()
                num_ticks += sum(map(int, fields[11:15]))  # its own, and of the children that it has waited for
        return reaped.ru_utime + reaped.ru_stime + num_ticks * _TICK_S


class CpuTime:
    """What commands use, and whether it is too much. Without a clock nothing is known and nothing is bounded."""

    def __init__(self, clock: "GroupClock | SampledClock | None", limit_s: "float | None") -> None:
        self._clock, self._limit_s = clock, limit_s
        self._next_look = 0.0
        self._num_processors = len(os.sched_getaffinity(0))

    @property
    def is_exact(self) -> bool:
        return self._clock is not None and self._clock.is_exact

    def begin(self) -> float:
        """At the start of a command; to be given back to the others as `before`."""
        self._next_look = 0.0
        return self._clock.read_s() if self._clock is not None else 0.0

    def since(self, before: float) -> float:
        return max(0.0, self._clock.read_s() - before) if self._clock is not None else 0.0

    def patience_s(self) -> float:
        """How long nobody needs to look."""
        return max(0.0, self._next_look - time.monotonic()) if self._limit_s is not None else math.inf

    def over(self, starts: "dict[int, float]") -> "list[int]":
        """Of running commands, pid -> `before`, those that have used too much. Looks when `patience_s` is over."""
        if self._limit_s is None or self._clock is None or not starts or self.patience_s() > 0:
            return []
        now_s = self._clock.read_s()
        left_s = self._limit_s - max(now_s - before for before in starts.values())
        # nobody uses it up faster than on all processors at once
        pause_s = max(self._clock.pause_s, left_s / self._num_processors)
        self._next_look = time.monotonic() + pause_s
        return [pid for pid, before in starts.items() if now_s - before >= self._limit_s]


def num_shown(num_cpus: "float | None") -> "int | None":
    """How many processors a sandbox is to see; None for all."""
    if num_cpus is None or num_cpus > len(os.sched_getaffinity(0)) - 1:
        return None
    return math.ceil(num_cpus)


def pick_processors(number: int, num_cpus: float) -> "set[int]":
    """As many processors as `num_cpus` needs, for sandbox `number`: neighbours get the next ones.

    They are what `nproc` and language run-times count. They bound nothing: a program may ask for others, and has its
    quota there too.
    """
    available = sorted(os.sched_getaffinity(0))
    num_wanted = min(len(available), math.ceil(num_cpus))
    return {available[(number * num_wanted + index) % len(available)] for index in range(num_wanted)}
