"""A layer as a tar archive: always the same bytes for the same files, and the same on every kind of host.

Entries come in the order of a walk, so that each follows the directory that it is in, and the reader needs neither
paths nor memory. Owners are 0 for the system's files and 1000 for the sandbox's. What overlay means by a device 0/0 and
by its attributes is said by a character device 0/0 and by a record `BURNISH.opaque`: neither can be made by a program.
Holes are entries of GNU's sparse format 1.0. Left out: sockets (whatever they hid stays hidden), set-user-id and
set-group-id, access control lists, and with the machine's programs below, /etc, which every host writes anew.

Names with many components, attributes and holes beyond the bounds below cannot be packed.
"""

import errno
import os
import stat
import struct

from burnish.sandbox.process import trees

MAX_PATH_BYTES = 16 << 10  # each entry says its whole path: without a bound, nested directories make it a square
MAX_EXTENDED_BYTES = 4 << 20
MAX_EXTENTS = 1 << 20
BLOCK = 512
AGENT = 1000
ROOT = b"."
OPAQUE, XATTR, SPARSE = b"BURNISH.opaque", b"SCHILY.xattr.", b"GNU.sparse."
FILE, LINK, SYMLINK, WHITEOUT, DIRECTORY, PIPE, EXTENDED = b"0", b"1", b"2", b"3", b"5", b"6", b"x"
HEADER = struct.Struct("100s8s8s8s12s12s8sc100s6s2s32s32s8s8s155s12x")
_MAX_OCTAL = 0o77777777777
_BUFFER_BYTES = 1 << 20


def overlay_marks(*, rootless: bool) -> str:
    """How the names of overlay's own attributes begin."""
    return "user.overlay." if rootless else "trusted.overlay."


class _Writer:
    """Blocks of an archive, gathered before they are written."""

    def __init__(self, descriptor: int, *, rootless: bool) -> None:
        self._descriptor, self._rootless = descriptor, rootless
        self._buffer = bytearray()
        self._size = 0

    def write(self, data: "bytes | bytearray") -> None:
        self._buffer += data
        self._size += len(data)
        if len(self._buffer) >= _BUFFER_BYTES:
            self.flush()

    def pad(self) -> None:
        self.write(bytes(-self._size % BLOCK))

    def flush(self) -> None:
        view = memoryview(bytes(self._buffer))
        self._buffer.clear()
        while view:
            view = view[os.write(self._descriptor, view) :]

    def entry(
        self, kind: bytes, path: bytes, status: os.stat_result, records: "dict[bytes, bytes]", size: int, link: bytes
    ) -> None:
        """A header, after an extended one where the plain one cannot say it all."""
        seconds, nanoseconds = divmod(max(0, status.st_mtime_ns), 10**9)
        names = {b"path": path, b"linkpath": link}
        extended = records | {key: name for key, name in names.items() if len(name) > 100 or not name.isascii()}
        if nanoseconds or seconds > _MAX_OCTAL:
            extended[b"mtime"] = b"%d.%09d" % (seconds, nanoseconds)
        if size > _MAX_OCTAL:
            extended[b"size"] = b"%d" % size
        if extended:
            data = b"".join(_record(key, extended[key]) for key in sorted(extended))
            if len(data) > MAX_EXTENDED_BYTES:
                raise OSError(errno.E2BIG, f"attributes of more than {MAX_EXTENDED_BYTES} bytes")
            self.write(_header(EXTENDED, b"extended", 0o644, 0, len(data), 0, b""))
            self.write(data)
            self.pad()
        owner = 0 if status.st_uid == 0 and not self._rootless else AGENT
        self.write(_header(kind, path, status.st_mode & 0o1777, owner, size, seconds, link))


def _record(key: bytes, value: bytes) -> bytes:
    """`LENGTH KEY=VALUE\\n`, where the length counts itself."""
    rest = b" %s=%s\n" % (key, value)
    length = len(rest)
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def _header(kind: bytes, name: bytes, mode: int, owner: int, size: int, mtime: int, link: bytes) -> bytes:
    device = b"0000000" if kind == WHITEOUT else b""
    fields = [
        name[:100], b"%07o" % mode, b"%07o" % owner, b"%07o" % owner, b"%011o" % min(size, _MAX_OCTAL),
        b"%011o" % min(mtime, _MAX_OCTAL), b" " * 8, kind, link[:100], b"ustar", b"00", b"", b"", device, device, b"",
    ]  # fmt: skip
    fields[6] = b"%06o\0 " % sum(HEADER.pack(*fields))
    return HEADER.pack(*fields)


def pack(root: int, out: int, *, rootless: bool, leave_out: str) -> None:
    """Writes all of the directory `root` to `out`, but what is called `leave_out` at its top. Raises OSError."""
    _Packer(out, rootless=rootless).pack(root, leave_out)


class _Packer:
    """One layer on its way into an archive."""

    def __init__(self, out: int, *, rootless: bool) -> None:
        self._out = _Writer(out, rootless=rootless)
        self._opaque = overlay_marks(rootless=rootless) + "opaque"
        self._path: list[bytes] = []
        self._first_names: dict[int, bytes] = {}  # of files that have several

    def pack(self, root: int, leave_out: str) -> None:
        for kind, folder, name, status in trees.walk(root, leave_out=leave_out):
            if kind == trees.LEAF:
                self._leaf(folder, name, status)
            elif kind == trees.ENTER:
                if name:
                    self._path.append(os.fsencode(name))
                self._out.entry(DIRECTORY, self._path_to(), status, self._attributes(folder), 0, b"")
            elif name:
                self._path.pop()
        self._out.write(bytes(2 * BLOCK))
        self._out.flush()

    def _path_to(self, *name: bytes) -> bytes:
        path = b"/".join([*self._path, *name]) or ROOT
        if len(path) > MAX_PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, f"a path of more than {MAX_PATH_BYTES} bytes")
        return path

    def _attributes(self, file: int) -> "dict[bytes, bytes]":
        """A user's own, in the form that other tools read; overlay's mark of a directory that hides all below it."""
        records = {}
        for name in os.listxattr(file):
            if name == self._opaque and os.getxattr(file, name) == b"y":
                records[OPAQUE] = b"1"
            elif name.startswith("user.") and not name.startswith("user.overlay."):
                key = os.fsencode(name).replace(b"%", b"%25").replace(b"=", b"%3D")
                records[XATTR + key] = os.getxattr(file, name)
        return records

    def _leaf(self, folder: int, name: str, status: os.stat_result) -> None:
        path = self._path_to(os.fsencode(name))
        kind = stat.S_IFMT(status.st_mode)
        if status.st_nlink > 1 and kind in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO):  # overlay links its whiteouts
            first = self._first_names.setdefault(status.st_ino, path)
            if first != path:
                self._out.entry(LINK, path, status, {}, 0, first)
                return
        if kind == stat.S_IFREG:
            file = os.open(name, trees.FILE, dir_fd=folder)
            try:
                self._file(file, path, status)
            finally:
                os.close(file)
        elif kind == stat.S_IFLNK:
            self._out.entry(SYMLINK, path, status, {}, 0, os.fsencode(os.readlink(name, dir_fd=folder)))
        else:
            self._out.entry(PIPE if kind == stat.S_IFIFO else WHITEOUT, path, status, {}, 0, b"")

    def _file(self, file: int, path: bytes, status: os.stat_result) -> None:
        records, size = self._attributes(file), status.st_size
        found: list[tuple[int, int]] = []
        for extent in trees.extents(file, size):
            found.append(extent)
            if len(found) > MAX_EXTENTS:
                raise OSError(errno.EFBIG, f"a file with more than {MAX_EXTENTS} holes")
        holes = b""
        num_bytes = sum(end - begin for begin, end in found)
        if num_bytes < size:
            records |= {SPARSE + b"major": b"1", SPARSE + b"minor": b"0", SPARSE + b"name": path}
            records[SPARSE + b"realsize"] = b"%d" % size
            listed = [*found, (size, size)]  # the last one says where the file ends
            holes = b"".join([b"%d\n" % len(listed), *(b"%d\n%d\n" % (begin, end - begin) for begin, end in listed)])
            holes += bytes(-len(holes) % BLOCK)
        self._out.entry(FILE, path, status, records, len(holes) + num_bytes, b"")
        self._out.write(holes)
        for begin, end in found:
            while begin < end:
                data = os.pread(file, min(end - begin, _BUFFER_BYTES), begin)
                if not data:
                    raise OSError(errno.ESTALE, "a file was cut while it was read")
                self._out.write(data)
                begin += len(data)
        self._out.pad()
