"""What /proc says about all processes of a sandbox. Read by its pid 1, through a descriptor of /proc: the candidate may
have closed the root directory to it."""

import os
from collections.abc import Iterator


def read_all(proc: int, file: str) -> "Iterator[tuple[int, bytes]]":
    """The pid and such a file of every process, or of every thread where `proc` is a process's "task" folder.

    Those that end meanwhile are left out.
    """
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                descriptor = os.open(f"{name}/{file}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
            except (FileNotFoundError, ProcessLookupError):
                continue
            with open(descriptor, "rb") as content:
                try:
                    found = content.read()
                except ProcessLookupError:
                    continue
            yield int(name), found


def stat_of_all(proc: int) -> "dict[int, tuple[bytes, int]]":
    """State and parent of every process."""
    found = {}
    for pid, stat in read_all(proc, "stat"):
        state, parent = stat.rpartition(b")")[2].split()[:2]
        found[pid] = state, int(parent)
    return found


def parents_of_all(proc: int) -> "dict[int, int]":
    """Parents of the live ones; the dead that wait to be reaped are left out."""
    return {pid: parent for pid, (state, parent) in stat_of_all(proc).items() if state not in (b"Z", b"X")}
