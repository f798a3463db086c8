"""Which sandboxes there are on this machine: one small file per owner, in a folder of the user's own.

`run` in the cache folder, and not the runtime directory of a login: that one is removed when its user logs out, while
a training goes on. A file is named after its owner's boot of the machine, pid namespace, pid, start time and a number,
and an owner counts as alive by (pid, start time), never by its pid alone; one of another boot, which may be another
machine with the same home, or of another pid namespace cannot be judged, and is forgotten after a month of silence.
What is torn, not ours or not a plain file is nobody's record. Nothing here follows a link.

No record keeps a sandbox alive: sandboxes end with their owner, whatever ends it.
"""

import contextlib
import functools
import itertools
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.errors import UserError
from burnish.sandbox.images.location import default_store_dir
from burnish.sandbox.process.cgroups import start_time

MAX_RECORD_BYTES = 4 << 20
_FORGOTTEN_S = 30 * 24 * 3600.0
_NAME = re.compile(r"([0-9a-f]{8})-(\d{1,20})-(\d{1,10})-(\d{1,20})-(\d{1,10})\.(json|sock|new)", re.ASCII)
_numbers = itertools.count()


def registry_dir() -> Path:
    """Where the records lie."""
    return default_store_dir().parent / "run"


@dataclass(frozen=True, order=True, slots=True)
class OwnerName:
    """Whose a record is. Example: OwnerName("3f0c1a2b", 4026531836, 4711, 123456, 0)"""

    boot: str  # of the machine; pid namespaces have the same numbers on all of them
    pid_namespace: int
    pid: int
    start_time: int  # clock ticks after boot
    number: int  # of the owners in one process

    def __str__(self) -> str:
        return f"{self.boot}-{self.pid_namespace}-{self.pid}-{self.start_time}-{self.number}"

    @classmethod
    def here(cls) -> "OwnerName":
        """A new one for this process."""
        started = start_time(os.getpid())
        assert started is not None
        return cls(_own_boot(), own_namespace(), os.getpid(), started, next(_numbers))

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, and is that one."""
        return self.is_here and start_time(self.pid) == self.start_time

    @property
    def is_dead(self) -> bool:
        """Not the opposite of alive: the life of another boot or pid namespace cannot be judged from here."""
        return self.is_here and start_time(self.pid) != self.start_time

    @property
    def is_here(self) -> bool:
        """Whether its pid means anything to us."""
        return (self.boot, self.pid_namespace) == (_own_boot(), own_namespace())


def own_namespace() -> int:
    """The number of this process's pid namespace."""
    return Path("/proc/self/ns/pid").stat().st_ino


@functools.cache
def _own_boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What an owner wrote last."""

    owner: OwnerName
    sandboxes: tuple[dict[str, Any], ...]  # id, created, image, limits, trajectory, each as `checked` leaves it


@contextlib.contextmanager
def opened(folder: Path, *, make: bool) -> Iterator[int]:
    """A descriptor of the folder, which only we may enter.

    Raises UserError when it is somebody else's or cannot be made, FileNotFoundError when there is none and `make` is
    False.
    """
    try:
        if make:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"no place for records: {error.strerror}", where=str(folder), fix=_FIX) from error
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise UserError("others have a hold on it", where=str(folder), fix=_FIX)
        yield descriptor
    finally:
        os.close(descriptor)


_FIX = "make it a directory of your own with mode 700, or set BURNISH_CACHE to another folder"


def write(folder: int, owner: OwnerName, sandboxes: list[dict[str, Any]]) -> None:
    """Replaces the owner's record. Raises OSError."""
    new = f"{owner}.new"
    descriptor = os.open(
        new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
    )
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        json.dump({"sandboxes": sandboxes}, file, separators=(",", ":"))
    os.rename(new, f"{owner}.json", src_dir_fd=folder, dst_dir_fd=folder)


def remove(folder: int, owner: OwnerName) -> None:
    """All files of an owner. Links are removed, not followed."""
    for ending in ("json", "sock", "new"):
        with contextlib.suppress(OSError):
            os.unlink(f"{owner}.{ending}", dir_fd=folder)


def owners(folder: int) -> list[OwnerName]:
    """Everybody who has a file here, alive or not."""
    found = (_NAME.fullmatch(name) for name in os.listdir(folder))
    return sorted({OwnerName(match[1], *map(int, match.groups()[1:5])) for match in found if match})


def reap(folder: int) -> int:
    """Removes what dead owners left; how many there were."""
    dead = [owner for owner in owners(folder) if owner.is_dead or _is_forgotten(folder, owner)]
    for owner in dead:
        remove(folder, owner)
    return len(dead)


def _is_forgotten(folder: int, owner: OwnerName) -> bool:
    """Whether an owner that cannot be judged from here has written nothing for long."""
    if owner.is_here:
        return False
    for ending in ("json", "sock", "new"):
        with contextlib.suppress(FileNotFoundError):
            written = os.stat(f"{owner}.{ending}", dir_fd=folder, follow_symlinks=False).st_mtime
            if written > time.time() - _FORGOTTEN_S:
                return False
    return True


def read(folder: int, owner: OwnerName) -> Record | None:
    """An owner's record; None when there is none that can be believed."""
    try:
        descriptor = os.open(f"{owner}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > MAX_RECORD_BYTES:
            return None
        data = os.read(descriptor, MAX_RECORD_BYTES)
    finally:
        os.close(descriptor)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    sandboxes = checked(content.get("sandboxes")) if isinstance(content, dict) else None
    return None if sandboxes is None else Record(owner=owner, sandboxes=sandboxes)


def checked(sandboxes: Any) -> tuple[dict[str, Any], ...] | None:
    """A list of sandboxes as another process told it; None when it has not the form."""
    if not isinstance(sandboxes, list):
        return None
    for one in sandboxes:
        if not isinstance(one, dict) or not (
            isinstance(one.get("id"), str)
            and isinstance(one.get("created"), int | float)
            and isinstance(one.get("image"), str)
            and isinstance(one.get("limits"), dict)
            and isinstance(one.get("trajectory"), str | None)
        ):
            return None
    return tuple(sandboxes)


def address(folder: int, name: str) -> str:
    """A socket's address by the descriptor of its folder: a path may be too long for one."""
    return f"/proc/self/fd/{folder}/{name}"
