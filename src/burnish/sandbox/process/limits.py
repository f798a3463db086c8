"""Which limit did a command hit? Asked by the supervisor after every command, from counters it holds open."""

import os

from burnish.sandbox.process.cgroups import Cgroups, Limit
from burnish.sandbox.process.cpu import CpuTime, GroupClock, SampledClock
from burnish.sandbox.process.processes import read_all

_NEVER, _NORMAL, _FIRST = b"-1000", b"0", b"1000"


class Counter:
    """One line "key number" of a control group's events file; `moved` since the last look."""

    def __init__(self, directory: int, limit: Limit) -> None:
        self._descriptor = os.open(limit.events_file, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        self._key = limit.events_key.encode() + b" "
        self._last = self._read()

    def moved(self) -> bool:
        before, self._last = self._last, self._read()
        return self._last > before

    def _read(self) -> int:
        for line in os.pread(self._descriptor, 4096, 0).splitlines():
            if line.startswith(self._key):
                return int(line[len(self._key) :])
        return 0


class Peak:
    """The most memory that a control group has held since `begin`; None where the kernel does not tell."""

    def __init__(self, directory: int, limit: Limit) -> None:
        self._descriptor, self._restarts = -1, False
        # version 2 had no such file before Linux 5.19, and could not start anew before 6.12
        for flags in (os.O_RDWR, os.O_RDONLY):
            try:
                self._descriptor = os.open(limit.peak_file, flags | os.O_CLOEXEC, dir_fd=directory)
                self._restarts = flags == os.O_RDWR
                break
            except OSError:
                continue

    @property
    def is_known(self) -> bool:
        return self._descriptor >= 0 and self._restarts

    def begin(self) -> None:
        if self.is_known:
            try:
                os.pwrite(self._descriptor, b"0", 0)
            except OSError:
                self._restarts = False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self) -> "int | None":
        return int(os.pread(self._descriptor, 32, 0)) if self.is_known else None


class Meter:
    """The limits of one sandbox, and this supervisor's standing with the out-of-memory killer.

    The supervisor is counted with its sandbox, but must outlive it: a program inherits the score that its starter has
    at that moment, so the supervisor changes its own around every start. With CAP_SYS_RESOURCE it is exempt otherwise;
    without, it is an ordinary process otherwise and what it starts is killed first.
    """

    def __init__(
        self,
        counters: "dict[str, Counter]",
        peak: "Peak | None",
        clock: "GroupClock | SampledClock | None",
        oom_score: int,
        *,
        may_be_exempt: bool,
        samples_memory: bool,
    ) -> None:
        """`oom_score`: a descriptor of this process's /proc/self/oom_score_adj. `samples_memory`: no control group
        bounds it, so the supervisor looks itself, every so often, whether it is more than `memory_bytes`."""
        self.counters = counters
        self.oom_killed = False  # since `begin`, as of the last `limit_hit`
        self._peak = peak
        self.clock = clock
        self.cpu = CpuTime(clock, None)  # until the limit is known
        self.samples_memory = samples_memory
        self.memory_bytes = 0  # set before the first command
        self._oom_score = oom_score
        self._own, self._started = (_NEVER, _NORMAL) if may_be_exempt else (_NORMAL, _FIRST)
        self.protect()

    def begin(self) -> None:
        """Forgets what happened. While nothing runs nothing happens, so this need not wait for the next command."""
        self.oom_killed = False
        for counter in self.counters.values():
            counter.moved()
        if self._peak is not None:
            self._peak.begin()

    def peak_memory_bytes(self) -> "int | None":
        return self._peak.read() if self._peak is not None else None

    def limit_hit(self) -> "str | None":
        """ "memory", "pids", "disk" or None: the first that was hit since `begin`."""
        hits = [name for name, counter in self.counters.items() if counter.moved()]
        self.oom_killed = self.oom_killed or "memory" in hits
        if hits:
            return hits[0]
        space = os.statvfs("/")
        return "disk" if space.f_bavail == 0 or space.f_favail == 0 else None

    def protect(self) -> None:
        os.write(self._oom_score, self._own)

    def expose(self) -> None:
        """For the time of starting a program."""
        os.write(self._oom_score, self._started)


def used_bytes(proc: int, enough: int) -> int:
    """Memory of all processes of the pid namespace but pid 1, what they share with files left out.

    Quick: what several share counts for each of them. Only when that is more than `enough`, every page counts once.
    `proc` is a descriptor of /proc.
    """
    quick = _sum(proc, "status", (b"RssAnon:", b"RssShmem:"))
    return quick if quick <= enough else min(quick, _sum(proc, "smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:")))


def _sum(proc: int, file: str, keys: "tuple[bytes, bytes]") -> int:
    """Bytes, of lines `key number kB`."""
    num_kb = 0
    for pid, text in read_all(proc, file):
        if pid != 1:
            num_kb += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(keys))
    return num_kb << 10


def knows_peak(groups: Cgroups) -> bool:
    """Whether this kernel tells the peak of memory anew for every command."""
    if "memory" not in groups.controllers:
        return False
    probe = groups.create("probe")
    try:
        peak = Peak(probe["memory"], groups.limits["memory"])
        peak.begin()
        is_known = peak.is_known
        peak.close()
        return is_known
    finally:
        for descriptor in set(probe.values()):
            os.close(descriptor)
        groups.remove("probe")
