"""What programs read in /proc in place of the machine's: their own memory and processors, and nothing of its secrets.

/proc as a whole is mounted read-only in a sandbox. So /proc/sys, /proc/irq, /proc/sysrq-trigger and the like need no
mask of their own, which they did need where the host is root without capabilities, as in a container: its sandboxes are
that root to files, and core_pattern would have been theirs to write. What can still be read and is nobody's business is
covered, file by file, with an empty one:

    keys        names the keys of the host's user and session (kernel keyrings know no namespaces but user namespaces)
    owner-only  (timer_list, slabinfo, vmallocinfo, kpagecount, ...) where the sandbox's user owns them, see above
    kallsyms    and modules, where the machine shows kernel addresses to everybody
    cmdline     how the machine was started, which may hold a secret; interrupts, which tell when others type or work

The rest needs none: kcore and kmsg ask for capabilities, sched_debug and latency_stats are no longer there or for root,
acpi, scsi, bus, fs and irq, partitions and diskstats show what hardware there is and no content. Each mask takes a
mount of every sandbox.
"""

import os
import stat

_ADDRESSES = ("kallsyms", "modules")
_TELL_TALE = ("cmdline", "interrupts", "keys", "key-users", "timer_list", "sched_debug", "latency_stats")
_PARANOID_ENOUGH = 2  # of kernel.perf_event_paranoid: below it, everybody sees addresses when kptr_restrict is 0
_MADE = "/made"
_MAX_FILES = 256  # kept for limits seen lately; what a sandbox has mounted stays there for it
_MEMINFO_ZERO = ("Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree", "Dirty", "Writeback",
                 "Shmem", "Slab", "SReclaimable", "SUnreclaim")  # fmt: skip
_STAT_COLUMNS = 10


def masked_files(*, user_owns_proc: bool) -> "list[str]":
    """Names in /proc to be covered. Called where the machine's /proc is."""
    named = (*_TELL_TALE, *(_ADDRESSES if _everybody_sees_addresses() else ()))
    files = [entry for entry in os.scandir("/proc") if entry.is_file(follow_symlinks=False)]
    for_all = {entry.name for entry in files if entry.stat().st_mode & stat.S_IROTH}
    return sorted(entry.name for entry in files if (entry.name in named if entry.name in for_all else user_owns_proc))


def _everybody_sees_addresses() -> bool:
    try:
        with (
            open("/proc/sys/kernel/perf_event_paranoid", "rb") as paranoid,
            open("/proc/sys/kernel/kptr_restrict", "rb") as restrict,
        ):
            return int(paranoid.read()) < _PARANOID_ENOUGH and int(restrict.read()) == 0
    except OSError:  # a kernel without performance events asks for the capability
        return False


def meminfo(memory_bytes: int) -> str:
    """/proc/meminfo of a machine with this much memory, all of it free: what is in use is not tracked."""
    values = dict.fromkeys(("MemTotal", "MemFree", "MemAvailable"), memory_bytes >> 10)
    values.update(dict.fromkeys(_MEMINFO_ZERO, 0))
    return "".join(f"{name + ':':<15} {value:>8} kB\n" for name, value in values.items())


def processors(num_processors: int, machine: str) -> str:
    """/proc/stat of a machine with so many processors, all idle since it started. `machine`: the real one."""
    zeros = " 0" * _STAT_COLUMNS
    lines = [f"cpu {zeros}", *(f"cpu{number}{zeros}" for number in range(num_processors))]
    lines += [line for line in machine.splitlines() if line.startswith("btime ")]
    lines += ["intr 0", "ctxt 0", "processes 0", "procs_running 1", "procs_blocked 0"]
    return "\n".join([*lines, ""])


class ShownFiles:
    """The host's side: makes the files where sandboxes find them, one for each value and not one for each sandbox.

    /made is writable for the host only; /shown is the same folder, read-only, and what sandboxes bind from.
    """

    def __init__(self) -> None:
        self._names: dict[str, None] = {}  # in the order in which they were made

    def need(self, memory_bytes: int, num_processors: "int | None") -> "dict[str, str]":
        """Where in /proc each goes -> its name in /shown. `num_processors`: None leaves the machine's."""
        wanted = {"meminfo": f"meminfo-{memory_bytes}"}
        if num_processors is not None:
            wanted["stat"] = f"stat-{num_processors}"
        for target, name in wanted.items():
            if name not in self._names:
                self._make(name, meminfo(memory_bytes) if target == "meminfo" else self._stat(num_processors or 1))
        return wanted

    def _stat(self, num_processors: int) -> str:
        with open("/proc/stat", "rb") as file:  # the codecs of other encodings lie in what the host has left
            return processors(num_processors, file.read().decode())

    def _make(self, name: str, content: str) -> None:
        if len(self._names) >= _MAX_FILES:
            oldest = next(iter(self._names))
            os.unlink(f"{_MADE}/{oldest}")
            del self._names[oldest]
        with open(f"{_MADE}/{name}", "wb") as file:
            file.write(content.encode())
        self._names[name] = None
