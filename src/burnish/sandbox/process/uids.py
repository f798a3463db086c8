"""User ids of the sandboxes of a privileged host, and whether a host is one."""

import errno
import os
from collections import deque

from burnish.sandbox.process import syscalls

# Uids for sandboxes of a privileged host: above those that systemd hands to containers, below 2**31.
FIRST_UID, UIDS_PER_HOST, NUM_HOSTS = 1_900_000_000, 4096, 50_000
_NEEDED_TO_BE_PRIVILEGED = (
    syscalls.CAP_SYS_ADMIN, syscalls.CAP_SETUID, syscalls.CAP_SETGID, syscalls.CAP_CHOWN, syscalls.CAP_NET_ADMIN,
)  # fmt: skip


class Uids:
    """One uid for each living family."""

    def __init__(self, first: int) -> None:
        self._free = deque(range(first, first + UIDS_PER_HOST))
        self._taken: dict[str, list[int]] = {}  # family -> uid, number of sandboxes and layers

    def take(self, family: str) -> int:
        """Counts one member more; the uid. Raises OSError when too many families live."""
        if family not in self._taken:
            if not self._free:
                raise OSError(errno.EAGAIN, f"{UIDS_PER_HOST} families of sandboxes are alive")
            self._taken[family] = [self._free.popleft(), 0]
        entry = self._taken[family]
        entry[1] += 1
        return entry[0]

    def give_back(self, family: str) -> None:
        """One member less. The uid goes to the end of the queue with the last."""
        entry = self._taken[family]
        entry[1] -= 1
        if entry[1] == 0:
            del self._taken[family]
            self._free.append(entry[0])


def is_rootless() -> bool:
    """Whether we lack what a privileged host needs: capabilities, and uids that we may hand out."""
    held = syscalls.effective_capabilities()
    if os.geteuid() != 0 or not all(held >> number & 1 for number in _NEEDED_TO_BE_PRIVILEGED):
        return True
    with open("/proc/self/uid_map", "rb") as uid_map:  # a container's root may be root of a few thousand uids only
        ranges = [tuple(map(int, line.split())) for line in uid_map]
    last = FIRST_UID + NUM_HOSTS * UIDS_PER_HOST - 1
    return not any(first <= FIRST_UID and last < first + length for first, _, length in ranges)
