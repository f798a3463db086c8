"""Files of the sandbox, opened from inside it with the candidate's rights.

Paths are resolved in the sandbox's own mount namespace, so a link can lead nowhere else. Two doors stay shut all the
same, because this process is not the candidate: links of /proc that stand for open files ("magic links"), and files of
/proc itself, where `self` would mean the supervisor.
"""

import errno
import os
import stat

from burnish.sandbox.process import syscalls
from burnish.sandbox.process.template import HOME

_FILE_MODE, _DIRECTORY_MODE = 0o644, 0o755
_COPY_BYTES = 1 << 20
_READ_ONLY = "in a read-only system directory"


class Refused(Exception):
    """The answer is no, and this is why."""


def open_to_read(path: str, max_bytes: int, proc_device: int) -> "tuple[int, int]":
    """A descriptor of a regular file and its size. Raises Refused, or OSError from the path."""
    # not blocking: opening a FIFO or a device returns at once, and is then refused by its kind
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = _open_at_home(path, flags, syscalls.RESOLVE_NO_MAGICLINKS)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket
            raise Refused("not a regular file") from error
        raise
    try:
        status = os.fstat(descriptor)
        _require_regular(status, proc_device)
        if status.st_size > max_bytes:
            raise Refused(f"larger than {max_bytes} bytes ({status.st_size})")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def write(path: str, source: int) -> None:
    """Copies `source` into the file, made or emptied first, and its directories made. Raises Refused or OSError."""
    directory, name = _open_parent(path)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_NOCTTY
        resolve = syscalls.RESOLVE_NO_MAGICLINKS | syscalls.RESOLVE_NO_XDEV
        try:
            descriptor = syscalls.open_inside(directory, name, flags, _FILE_MODE, resolve=resolve)
        except OSError as error:
            raise Refused(_why_not_writable(error)) from error
    finally:
        os.close(directory)
    try:
        _require_regular(os.fstat(descriptor), proc_device=-1)
        while part := os.read(source, _COPY_BYTES):
            view = memoryview(part)
            while view:
                view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def exists(path: str) -> bool:
    """Whether something is there that the candidate could find by this path."""
    try:
        os.close(_open_at_home(path, os.O_PATH, syscalls.RESOLVE_NO_MAGICLINKS))
    except OSError:
        return False
    return True


def _open_at_home(path: str, flags: int, resolve: int) -> int:
    home = os.open(HOME if not path.startswith("/") else "/", os.O_PATH | os.O_DIRECTORY)
    try:
        return syscalls.open_inside(home, path, flags, resolve=resolve)
    finally:
        os.close(home)


def _open_parent(path: str) -> "tuple[int, str]":
    """A descriptor of the directory that shall hold the file, made as needed, and the file's name."""
    whole = path if path.startswith("/") else f"{HOME}/{path}"
    *folders, name = [part for part in whole.split("/") if part not in ("", ".")] or [""]
    if not name or name == ".." or path.endswith("/"):
        raise Refused("names a directory")
    here = os.open("/", os.O_PATH | os.O_DIRECTORY)
    own_device = os.fstat(here).st_dev
    try:
        for folder in folders:
            there = _enter_or_make(here, folder)
            os.close(here)
            here = there
        if os.fstat(here).st_dev != own_device:
            raise Refused(_READ_ONLY)
    except BaseException:
        os.close(here)
        raise
    return here, name


def _enter_or_make(here: int, folder: str) -> int:
    flags = os.O_PATH | os.O_DIRECTORY
    try:
        return syscalls.open_inside(here, folder, flags, resolve=syscalls.RESOLVE_NO_MAGICLINKS)
    except FileNotFoundError:
        os.mkdir(folder, _DIRECTORY_MODE, dir_fd=here)
        return syscalls.open_inside(here, folder, flags, resolve=syscalls.RESOLVE_NO_MAGICLINKS)


def _why_not_writable(error: OSError) -> str:
    if error.errno == errno.EXDEV:
        return _READ_ONLY
    if error.errno == errno.ENXIO:
        return "not a regular file"
    return os.strerror(error.errno or 0)


def _require_regular(status: os.stat_result, proc_device: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise Refused("is a directory")
    if not stat.S_ISREG(status.st_mode) or status.st_dev == proc_device:
        raise Refused("not a regular file")
