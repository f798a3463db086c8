"""Reads and builds trees of files that candidates wrote: of any depth, with two descriptors, along no path and no link.

A candidate may nest directories deeper than a path can name or a process can open. So a walk holds the directory that
it is in and goes back by "..", which it believes only when it finds the directory that it came from.
"""

import errno
import os
import stat
from collections.abc import Iterator

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
ENTER, LEAVE, LEAF = 0, 1, 2
_BUFFER_BYTES = 1 << 20

Step = tuple[int, int, str, os.stat_result]


class _Level:
    """A directory on the way from the root to where a walk is."""

    def __init__(self, name: str, folder: int) -> None:
        self.name, self.status = name, os.fstat(folder)
        self.names = sorted(os.listdir(folder), key=os.fsencode, reverse=True)  # those still to come, last first


def walk(root: int, *, leave_out: str = "") -> Iterator[Step]:
    """Everything below the directory `root`, and it itself (its name is ""), in the order of names. One name at the
    top can be left out.

    Yields (ENTER, descriptor, name, status) and (LEAVE, ...) with the directory's own descriptor, and (LEAF, ...) with
    that of the directory that holds it; they are good until the next step. Raises OSError.
    """
    here = os.open(".", FOLDER, dir_fd=root)
    try:
        levels = [_Level("", here)]
        yield ENTER, here, "", levels[0].status
        while True:
            level = levels[-1]
            if not level.names:
                yield LEAVE, here, level.name, level.status
                levels.pop()
                if not levels:
                    return
                here = _replace(here, _above(here, levels[-1].status))
                continue
            name = level.names.pop()
            if name == leave_out and len(levels) == 1:
                continue
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                here = _replace(here, os.open(name, FOLDER, dir_fd=here))
                levels.append(_Level(name, here))
                yield ENTER, here, name, levels[-1].status
            else:
                yield LEAF, here, name, status
    finally:
        os.close(here)


def _replace(old: int, new: int) -> int:
    os.close(old)
    return new


def _above(folder: int, expected: os.stat_result) -> int:
    above = os.open("..", FOLDER, dir_fd=folder)
    found = os.fstat(above)
    if (found.st_dev, found.st_ino) != (expected.st_dev, expected.st_ino):
        os.close(above)
        raise OSError(errno.ESTALE, "the files were moved while they were read")
    return above


class Builder:
    """Makes a tree in the order of a walk. Nobody else writes to it. Raises OSError."""

    def __init__(self, root: int) -> None:
        """`root`: descriptor of an empty directory, which stays the caller's."""
        self.here = os.open(".", FOLDER, dir_fd=root)  # the directory that the next name is made in

    def enter(self, name: str) -> None:
        """Makes a directory; what follows is made in it."""
        os.mkdir(name, 0o700, dir_fd=self.here)
        self.go_into(name)

    def go_into(self, name: str) -> None:
        """What follows is made in a directory that is there."""
        self.here = _replace(self.here, os.open(name, FOLDER, dir_fd=self.here))

    def leave(self) -> int:
        """Back to the directory above. Returns a descriptor of the one that is complete, which is the caller's."""
        done, self.here = self.here, os.open("..", FOLDER, dir_fd=self.here)
        return done

    def open_file(self, name: str) -> int:
        """A new file, to be written to; the descriptor is the caller's."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=self.here)

    def close(self) -> None:
        os.close(self.here)


def copy(source: int, target: int, links: int) -> None:
    """Copies a tree as it is: overlay's whiteouts and attributes, hard links, holes.

    `target` and `links` are empty directories of one file system; `links` holds, by number, a name of each file that
    has several, so that none of them has to be found again, and is empty at the end.
    """
    builder = Builder(target)
    try:
        for kind, folder, name, status in walk(source):
            if kind == ENTER:
                if name:
                    builder.enter(name)
            elif kind == LEAVE:
                made = builder.leave() if name else os.dup(builder.here)
                try:
                    copy_xattrs(folder, made)
                    copy_status(made, status)
                finally:
                    os.close(made)
            else:
                copy_leaf(builder, folder, name, status, links)
    finally:
        builder.close()
    for name in os.listdir(links):
        os.unlink(name, dir_fd=links)


def copy_leaf(builder: Builder, folder: int, name: str, status: os.stat_result, links: int) -> None:
    """Copies what is no directory to where the builder is; `links` as in `copy`. Raises OSError."""
    target, number = builder.here, str(status.st_ino)
    if status.st_nlink > 1:
        try:
            os.link(number, name, src_dir_fd=links, dst_dir_fd=target, follow_symlinks=False)
            return
        except FileNotFoundError:
            pass  # the first of its names
    if stat.S_ISREG(status.st_mode):
        source = os.open(name, FILE, dir_fd=folder)
        try:
            copied = builder.open_file(name)
            try:
                copy_content(source, copied)
                copy_xattrs(source, copied)
                copy_status(copied, status)
            finally:
                os.close(copied)
        finally:
            os.close(source)
    else:
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=folder), name, dir_fd=target)
        else:  # pipes, sockets, whiteouts
            os.mknod(name, status.st_mode, status.st_rdev, dir_fd=target)
        set_status_of(target, name, status.st_uid, status.st_gid, status.st_mode, status.st_mtime_ns)
    if status.st_nlink > 1:
        os.link(name, number, src_dir_fd=target, dst_dir_fd=links, follow_symlinks=False)


def extents(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data: (offset, end). The rest are holes. Raises OSError."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        end = min(os.lseek(file, begin, os.SEEK_HOLE), size)
        if begin < end:
            yield begin, end


def copy_content(source: int, target: int) -> None:
    """Copies a file with its holes. Raises OSError."""
    size = os.fstat(source).st_size
    for begin, end in extents(source, size):
        os.lseek(target, begin, os.SEEK_SET)
        while begin < end:
            moved = os.sendfile(target, source, begin, min(end - begin, _BUFFER_BYTES))
            if not moved:
                raise OSError(errno.ESTALE, "a file was cut while it was read")
            begin += moved
    os.ftruncate(target, size)


def copy_xattrs(source: int, target: int) -> None:
    """Of one open file or directory to another. Raises OSError."""
    for name in os.listxattr(source):
        os.setxattr(target, name, os.getxattr(source, name))


def copy_status(target: int, status: os.stat_result) -> None:
    """Owner, mode and times of an open file or directory. Raises OSError."""
    os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def set_status_of(folder: int, name: str, uid: int, gid: int, mode: int, mtime_ns: int) -> None:
    """Owner, mode and time of what is no file and no directory, without opening it. Raises OSError."""
    os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(mode):  # nobody else is here who could have put a link in its place
        os.chmod(name, stat.S_IMODE(mode), dir_fd=folder)
    os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)
