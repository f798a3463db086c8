"""What pid 1 of a container reads in /proc about the candidate's processes. Stdlib only: sent into the container."""

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_OF_PROCESSES = (b"AnonPages:", b"Shmem:")  # of a kernel that serves this container only


def used_bytes(how: str) -> int:
    """Memory that the container's processes use together.

    Args:
        how: "kernel" where the container has a kernel of its own (gVisor, a virtual machine) that counts it;
            "processes" adds up what each process does not share.
    """
    return _used_in_kernel() if how == "kernel" else _private_bytes()


def _used_in_kernel() -> int:
    with open("/proc/meminfo", "rb") as meminfo:
        return sum(int(line.split()[1]) << 10 for line in meminfo if line.startswith(_OF_PROCESSES))


def _private_bytes() -> int:
    num_pages = 0
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/statm", "rb") as statm:
                _, resident, shared, *_ = statm.read().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        num_pages += int(resident) - int(shared)
    return num_pages * _PAGE_BYTES


def parents_by_pid() -> "dict[int, int]":
    """Live processes of the container; the dead that wait to be reaped are left out."""
    parents = {}
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                state, parent = stat.read().rpartition(b")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in (b"Z", b"X"):
            parents[pid] = int(parent)
    return parents


def descends(pid: int, ancestors: "set[int]", parents: "dict[int, int]") -> bool:
    """Whether one of `ancestors` is the process itself or started it, directly or not."""
    while pid in parents:
        if pid in ancestors:
            return True
        pid = parents[pid]
    return False


def _pids() -> "list[int]":
    """All but pid 1, which is us."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
