"""Files of a container, found by pid 1 step by step. Stdlib only: this source is sent into the container.

The caller has taken the candidate's rights. What openat2 does for the `process` backend is done by hand here, because
gVisor and older kernels do not have it: every component is opened without following links, links are read and walked,
and nothing below /proc is entered, where `self` would mean this process.
"""

import errno
import os
import stat

CHUNK_BYTES = 1 << 20  # a file travels in frames of this size
_FILE_MODE, _DIRECTORY_MODE = 0o644, 0o755
_MAX_LINKS = 40  # as the kernel
_ENTER = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CAREFUL = os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC


class Refused(Exception):
    """The answer is no, and this is why."""


def read(home: str, path: str, offset: int, max_bytes: int) -> "tuple[int, bytes]":
    """The size of a regular file and a part of it that starts at `offset`. Raises Refused, OSError or ValueError."""
    parent, name = _locate(home, path)
    try:
        descriptor = os.open(name or ".", os.O_RDONLY | _CAREFUL, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket
            raise Refused("not a regular file") from error
        raise
    finally:
        os.close(parent)
    try:
        size = _require_regular(descriptor).st_size
        if size > max_bytes:
            raise Refused(f"larger than {max_bytes} bytes ({size})")
        return size, os.pread(descriptor, CHUNK_BYTES, offset)
    finally:
        os.close(descriptor)


def write(home: str, path: str, offset: int, data: bytes) -> None:
    """Puts `data` at `offset`; at 0 the file is made or emptied first, and its directories are made."""
    parent, name = _locate(home, path, make=True)
    if not name or path.endswith("/"):
        os.close(parent)
        raise Refused("names a directory")
    fresh = os.O_CREAT | os.O_TRUNC if offset == 0 else 0
    try:
        descriptor = os.open(name, os.O_WRONLY | fresh | _CAREFUL, _FILE_MODE, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise Refused("not a regular file") from error
        raise
    finally:
        os.close(parent)
    try:
        _require_regular(descriptor)
        view = memoryview(data)
        while view:
            num_written = os.pwrite(descriptor, view, offset)
            view, offset = view[num_written:], offset + num_written
    finally:
        os.close(descriptor)


def exists(home: str, path: str) -> bool:
    """Whether something is there that the candidate could find by this path; what is in /proc is not told."""
    try:
        parent, name = _locate(home, path)
    except (OSError, Refused):
        return False
    try:
        os.stat(name or ".", dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    finally:
        os.close(parent)
    return True


def _locate(home: str, path: str, *, make: bool = False) -> "tuple[int, str]":
    """A descriptor of the directory that a path ends in, and the name there, which is no link ("" for the directory).

    The name need not exist. `make`: directories on the way are made as needed.
    """
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    todo = [part for part in reversed(os.path.join(home, path).split("/")) if part not in ("", ".")]
    here, num_links, name = os.open("/", _ENTER | os.O_DIRECTORY), 0, ""
    proc = os.stat("/proc").st_dev
    try:
        while todo:
            name = todo.pop()
            if os.fstat(here).st_dev == proc:
                raise Refused("not a regular file")
            if name != ".." and (target := _link(here, name)) is not None:
                num_links += 1
                if num_links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                todo += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                if target.startswith("/"):
                    os.close(here)
                    here = os.open("/", _ENTER | os.O_DIRECTORY)
            elif todo or name == "..":
                here = _enter(here, name, make)
            else:
                return here, name
    except BaseException:
        os.close(here)
        raise
    return here, ""


def _link(here: int, name: str) -> "str | None":
    """Where a link points; None for anything else, and for what is not there."""
    try:
        return os.readlink(name, dir_fd=here)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _enter(here: int, name: str, make: bool) -> int:
    """The directory below, in place of the one above, which is closed."""
    try:
        there = os.open(name, _ENTER | os.O_DIRECTORY, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(name, _DIRECTORY_MODE, dir_fd=here)
        there = os.open(name, _ENTER | os.O_DIRECTORY, dir_fd=here)
    os.close(here)
    return there


def _require_regular(descriptor: int) -> os.stat_result:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise Refused("is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise Refused("not a regular file")
    return status
