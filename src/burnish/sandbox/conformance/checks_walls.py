"""Walls, tried by direct system calls (probes.py): what a candidate that knows the kernel finds closed."""

from burnish.sandbox.conformance import probes
from burnish.sandbox.conformance.suite import Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check

_WORLDLY_FILE_SYSTEMS = {
    "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "bpf", "pstore", "efivarfs", "mqueue",
    "binfmt_misc", "hugetlbfs", "fusectl", "fuse",
}  # fmt: skip
_ABOUT_THE_MACHINE = (
    "cmdline", "interrupts", "keys", "key-users", "timer_list", "sched_debug", "latency_stats", "scsi/scsi",
    "acpi/wakeup", "asound/cards",
)  # fmt: skip
_KERNEL_ADDRESSES = """
import json
try:
    with open("/proc/kallsyms") as names:
        print(json.dumps(sum(int(line.split()[0], 16) != 0 for line in names)))
except OSError:
    print(0)
"""


@check("python", "confinement")
async def dangerous_system_calls_are_refused(bench: Bench) -> None:
    """Mounts, namespaces, tracing, keys, bpf, perf, userfaultfd, io_uring, modules, kexec, handles and the clock."""
    answers = await bench.probe(probes.CALLS)
    allowed = {name: number for name, number in answers.items() if number not in probes.WALLS}
    expect(len(answers) > 50 and not allowed, f"not refused (errno): {allowed}")


@check("python", "confinement")
async def odd_socket_families_are_refused(bench: Bench) -> None:
    """Only unix and internet sockets exist: no netlink, packet, vsock, XDP, or what a kernel will bring next."""
    answers = await bench.probe(probes.FAMILY_PROBE)
    open_families = [name for name, number in answers.items() if number not in (probes.NO_SUCH_FAMILY, *probes.WALLS)]
    known = {str(family) for family in probes.FAMILIES}
    expect(set(open_families) <= known, f"possible: {sorted(set(open_families) - known)}")
    expect("1" in open_families, "not even unix sockets can be made: the probe does not work")


@check("python", "confinement")
async def calls_of_32_bit_programs_end_the_program(bench: Bench) -> None:
    """The filter's numbers are those of one architecture, so the door of another is shut."""
    if (await bench.box.commands.run(["uname", "-m"])).stdout != b"x86_64\n":
        return
    result = await bench.box.commands.run(["python3", "-I", "-c", probes.FOREIGN_CALL])
    # gVisor takes the number for one of 64-bit programs, which the filter knows, and has no such file to write to
    expect(result.signal is not None or result.stdout.startswith(b"-"), f"such a call was answered: {tail(result)}")


@check("python", "isolation")
async def the_supervisor_is_out_of_reach(bench: Bench) -> None:
    """Pid 1 cannot be read, limited, slowed, traced or entered."""
    answers = await bench.probe(probes.SUPERVISOR)
    done = [name for name, number in answers.items() if number == 0]
    expect(len(answers) > 40 and not done, f"possible: {done}")
    expect((await bench.box.commands.run(["true"])).ok, "the sandbox did not answer afterwards")


@check("python", "isolation")
async def kernel_settings_are_closed(bench: Bench) -> None:
    """No file of /proc/sys, /sys and the like can be opened for writing, and kernel memory not even for reading."""
    answers = await bench.probe(probes.SETTINGS)
    expect(answers == {"number of files": 0}, f"can be opened: {answers}")
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/fs/binfmt_misc/register", "/sys/fs/cgroup/release_agent"):
        result = await bench.sh(f"true >> {path}")  # nothing is written: on a backend that lets it, the machine is real
        expect(not result.ok, f"{path} was opened for writing")


@check("shell", "isolation")
async def file_systems_of_the_kernel_are_not_mounted(bench: Bench) -> None:
    """No sysfs, control groups, debugfs, binfmt_misc and their like, where settings of the machine could hide."""
    if bench.backend.level != "process":
        return  # they are those of a kernel of its own
    result = await bench.sh("cat /proc/self/mounts")
    kinds = {line.split()[2] for line in result.stdout.decode().splitlines()}
    expect(bool(kinds) and not kinds & _WORLDLY_FILE_SYSTEMS, f"mounted: {sorted(kinds & _WORLDLY_FILE_SYSTEMS)}")


@check("shell", "isolation")
async def the_machine_is_not_described(bench: Bench) -> None:
    """How it was started, its keys, interrupts and timers: files of /proc that no program needs say nothing."""
    if bench.backend.level != "process":
        return  # they are about a machine that does not exist
    told = [name for name in _ABOUT_THE_MACHINE if (await bench.sh(f"head -c 64 /proc/{name}")).stdout]
    expect(not told, f"can be read: {told}")


@check("python", "isolation")
async def kernel_addresses_are_not_told(bench: Bench) -> None:
    """The kernel's list of symbols shows zeros, if it is there at all."""
    shown = await bench.probe(_KERNEL_ADDRESSES)
    expect(shown == 0, f"{shown} addresses are shown")


@check("python", "isolation", "confinement")
async def there_is_no_terminal(bench: Bench) -> None:
    """No controlling terminal, and a call that pushes characters into one is refused whatever it is used on."""
    answers = await bench.probe(probes.TERMINAL)
    pushing = {name: number for name, number in answers.items() if name.startswith("TIOC")}
    expect(len(pushing) == 3 and all(number in probes.WALLS for number in pushing.values()), f"errno: {pushing}")
    opened = [name for name, number in answers.items() if number == 0]
    expect(not opened, f"possible: {opened}")


CHECKS = _registry.all()
