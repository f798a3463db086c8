"""A directory as entries. It may be written to meanwhile: no link in it is followed, a file that shrinks is told."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath

from burnish.errors import UserError
from burnish.sandbox.images.entries import MAX_DEPTH, MAX_TIME_NS, Budget, Entry, Kind, Path
from burnish.sandbox.images.tree import FOLDER_FLAGS, names_in, user_xattrs

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS: dict[int, Kind] = {
    stat.S_IFDIR: "dir", stat.S_IFREG: "file", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo",
    stat.S_IFCHR: "device", stat.S_IFBLK: "device",
}  # fmt: skip


def read_folder(source: FilePath, budget: Budget) -> Iterator[Entry]:
    """The entries of a directory, itself first. Hard links stay hard links.

    Other file systems mounted inside are left empty, sockets are left out; both are counted in `budget.skipped`.

    Raises UserError for a folder that cannot be read or is too deep.
    """
    root = os.open(source, FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        status = os.fstat(root)
        yield _entry((), "dir", status, xattrs=_xattrs(root))
        yield from _inside(root, (), status.st_dev, {}, budget)
    finally:
        os.close(root)


def _inside(folder: int, path: Path, device: int, links: dict[int, Path], budget: Budget) -> Iterator[Entry]:
    if len(path) >= MAX_DEPTH:
        raise UserError(f"folders deeper than {MAX_DEPTH}", where=_shown(path))
    for name in names_in(folder):
        here = (*path, name)
        status = os.lstat(name, dir_fd=folder)
        kind = _KINDS.get(stat.S_IFMT(status.st_mode))
        if kind is None:
            budget.skipped["sockets"] += 1
        elif kind == "dir":
            inner = _open(folder, name, FOLDER_FLAGS, here)
            try:
                yield _entry(here, kind, status, xattrs=_xattrs(inner))
                if status.st_dev == device:
                    yield from _inside(inner, here, device, links, budget)
                else:
                    budget.skipped["mounts"] += 1
            finally:
                os.close(inner)
        elif status.st_nlink > 1 and status.st_ino in links:
            yield _entry(here, "hardlink", status, hardlink=links[status.st_ino])
        else:
            links |= {status.st_ino: here} if status.st_nlink > 1 else {}
            yield from _leaf(folder, name, here, kind, status, budget)


def _leaf(folder: int, name: bytes, here: Path, kind: Kind, status: os.stat_result, budget: Budget) -> Iterator[Entry]:
    if kind == "symlink":
        yield _entry(here, kind, status, symlink=os.readlink(name, dir_fd=folder))
    elif kind != "file":
        yield _entry(here, kind, status)
    else:
        descriptor = _open(folder, name, _READ_FLAGS, here)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UserError("changed while it was read", where=_shown(here), fix="stop what writes there")
            budget.take_bytes(status.st_size)
            yield _entry(here, kind, status, read=lambda size: os.read(descriptor, size), xattrs=_xattrs(descriptor))
        finally:
            os.close(descriptor)


def _entry(
    path: Path,
    kind: Kind,
    status: os.stat_result,
    *,
    symlink: bytes = b"",
    hardlink: Path = (),
    read: Callable[[int], bytes] = lambda _: b"",
    xattrs: dict[str, bytes] | None = None,
) -> Entry:
    return Entry(
        path=path,
        kind=kind,
        mode=status.st_mode & 0o1777,
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=min(max(status.st_mtime_ns, 0), MAX_TIME_NS),
        size=status.st_size if kind == "file" else 0,
        read=read,
        symlink=symlink,
        hardlink=hardlink,
        xattrs=xattrs or {},
    )


def _open(folder: int, name: bytes, flags: int, here: Path) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as problem:
        raise UserError(f"cannot be read: {problem.strerror}", where=_shown(here)) from problem


def _xattrs(descriptor: int) -> dict[str, bytes]:
    return {name: os.getxattr(descriptor, name) for name in user_xattrs(descriptor)}


def _shown(path: Path) -> str:
    return os.fsdecode(b"/".join(path)) or "."
