"""An archive of `archive.py`, from whoever it comes, as a new layer.

Only what `pack` writes is understood, in the order in which it writes it: an entry's directory is the one that is open
or one that contains it. So no path is ever followed but that of a hard link's other name, and that one directory by
directory. Whatever is there already, or named otherwise, is refused. The job has the layer as its root directory, and
the layer's file system bounds what it can hold.
"""

import errno
import os
import stat
from typing import BinaryIO

from burnish.sandbox.process import archive, trees
from burnish.sandbox.process.archive import BLOCK
from burnish.sandbox.process.jobs import Refused

_CHUNK_BYTES = 1 << 20
_MAX_NS = (1 << 63) - 1
_KINDS = (
    archive.FILE, archive.LINK, archive.SYMLINK, archive.WHITEOUT, archive.DIRECTORY, archive.PIPE,
)  # fmt: skip
# what a name, a link or a size can make the file system answer; all else is this machine's trouble
_REFUSALS = {
    errno.EEXIST, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ENOENT, errno.EMLINK, errno.ELOOP,
    errno.ENOTDIR, errno.EISDIR, errno.EPERM, errno.EFBIG, errno.ERANGE, errno.E2BIG, errno.ENOTSUP,
}  # fmt: skip
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Owners:
    """Who the files of a layer belong to on this host."""

    def __init__(self, system: int, agent: int, *, rootless: bool, fixed_root: bool) -> None:
        self.system, self.agent, self.rootless = system, agent, rootless
        self.fixed_root = fixed_root  # the top directory is as every sandbox's: anybody may add, nobody replace


class _Entry:
    """What the headers say about one thing."""

    def __init__(self, header: bytes, extended: "dict[bytes, bytes]") -> None:
        (name, mode, uid, _, size, mtime, checksum, kind, link, magic, version, _, _, major, minor, prefix) = (
            archive.HEADER.unpack(header)
        )
        plain = header[:148] + b" " * 8 + header[156:]
        if (magic, version, prefix.strip(b"\0")) != (b"ustar\0", b"00", b"") or _octal(checksum) != sum(plain):
            raise Refused("damaged: not a header of a layer's archive")
        self.kind: bytes = kind
        self.path: bytes = extended.get(b"path", name.rstrip(b"\0"))
        if kind == archive.DIRECTORY:
            self.path = self.path.removesuffix(b"/")  # as other tools write it
        self.link = extended.get(b"linkpath", link.rstrip(b"\0"))
        self.mode, self.is_system = _octal(mode) & 0o1777, _octal(uid) == 0
        self.size = _number(extended, b"size", _octal(size))
        self.mtime_ns = _nanoseconds(extended.get(b"mtime", b"%d" % _octal(mtime)))
        self.extended = extended
        if kind == archive.WHITEOUT and (_octal(major) or _octal(minor)):
            raise Refused(f"{shown(self.path)} is a device")
        if kind not in (*_KINDS, archive.EXTENDED) or (self.size and kind not in (archive.FILE, archive.EXTENDED)):
            raise Refused(f"{shown(self.path)} is of a kind that no layer holds")


def shown(path: bytes) -> str:
    """A stranger's name for a message: one line, bounded, no control characters."""
    return ascii(path[:200].decode("utf-8", "backslashreplace"))


def _octal(field: bytes) -> int:
    digits = field.strip(b"\0 ")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise Refused("damaged: a number that is none")
    return int(digits, 8)


def _number(extended: "dict[bytes, bytes]", key: bytes, plain: int = 0) -> int:
    text = extended.get(key)
    if text is None:
        return plain
    if not text.isdigit() or len(text) > 19 or int(text) > _MAX_NS:
        raise Refused("damaged: a number that is none")
    return int(text)


def _nanoseconds(text: bytes) -> int:
    seconds, _, fraction = text.partition(b".")
    if not seconds.isdigit() or len(seconds) > 18 or (fraction and not (fraction.isdigit() and len(fraction) == 9)):
        raise Refused("damaged: a time that is none")
    return min(int(seconds) * 10**9 + int(fraction or b"0"), _MAX_NS)


class _Reader:
    """The archive's bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """Exactly so many."""
        data = self._file.read(size)
        if len(data) != size:
            raise Refused("damaged: it ends too early")
        return data

    def padded(self, size: int) -> bytes:
        return self.read(size + -size % BLOCK)[:size]

    def entry(self) -> "_Entry | None":
        """The next one; None at the end."""
        extended: dict[bytes, bytes] = {}
        while True:
            header = self.read(BLOCK)
            if not header.strip(b"\0"):
                if extended or self.read(BLOCK).strip(b"\0") or self._file.read(1):
                    raise Refused("damaged: it goes on after its end")
                return None
            entry = _Entry(header, extended)
            if entry.kind != archive.EXTENDED:
                return entry
            if extended or entry.size > archive.MAX_EXTENDED_BYTES:
                raise Refused("damaged: extended headers that no layer has")
            extended = _records(self.padded(entry.size))


def _records(data: bytes) -> "dict[bytes, bytes]":
    found, at = {}, 0
    while at < len(data):
        space = data.find(b" ", at, at + 12)
        length = int(data[at:space]) if space > at and data[at:space].isdigit() else 0
        key, equals, value = data[space + 1 : at + length - 1].partition(b"=")
        if length <= space - at or data[at + length - 1 : at + length] != b"\n" or not equals or key in found:
            raise Refused("damaged: an extended header that cannot be read")
        found[key] = value
        at += length
    if not found:
        raise Refused("damaged: an extended header that cannot be read")
    return found


class _Unpacker:
    def __init__(self, file: BinaryIO, root: int, owners: Owners, forbidden: bytes) -> None:
        self._reader, self._root, self._owners, self._forbidden = _Reader(file), root, owners, forbidden
        self._opaque = archive.overlay_marks(rootless=owners.rootless) + "opaque"
        self._origin = archive.overlay_marks(rootless=owners.rootless) + "origin"
        self._builder = trees.Builder(root)
        self._open: list[tuple[bytes, _Entry]] = []  # the directories on the way to the one that is open

    def close(self) -> None:
        self._builder.close()

    def unpack(self) -> None:
        top = self._reader.entry()
        if top is None or top.path != archive.ROOT or top.kind != archive.DIRECTORY:
            raise Refused("damaged: it does not begin with the top directory")
        while (entry := self._reader.entry()) is not None:
            try:
                self._add(entry)
            except OSError as error:
                if error.errno in _REFUSALS:
                    raise Refused(f"{shown(entry.path)}: {error.strerror}") from error
                raise
        self._go_to(())
        made = self._builder.here
        self._finish(made, top)
        if self._owners.fixed_root:
            os.fchown(made, self._owners.system, self._owners.system)
            os.fchmod(made, 0o755 if self._owners.rootless else 0o1777)
            os.utime(made, ns=(top.mtime_ns, top.mtime_ns))

    def _add(self, entry: _Entry) -> None:
        *parents, name = self._parts(entry.path)
        if self._forbidden and (*parents, name)[0] == self._forbidden:
            raise Refused(f"{shown(entry.path)} is every host's own")
        self._go_to(tuple(parents))
        text = os.fsdecode(name)
        if entry.kind == archive.DIRECTORY:
            self._builder.enter(text)
            self._open.append((name, entry))
        elif entry.kind == archive.FILE:
            self._file(entry, text)
        elif entry.kind == archive.LINK:
            self._link(entry, text)
        else:
            here = self._builder.here
            if entry.kind == archive.SYMLINK:
                os.symlink(os.fsdecode(entry.link), text, dir_fd=here)
                mode = stat.S_IFLNK | 0o777
            else:
                mode = (stat.S_IFIFO if entry.kind == archive.PIPE else stat.S_IFCHR) | entry.mode & 0o777
                os.mknod(text, mode, 0, dir_fd=here)
                if entry.kind == archive.WHITEOUT:  # without this, overlay may list it as a file
                    os.setxattr(here, self._origin, b"")
            owner = self._owner(entry)
            trees.set_status_of(here, text, owner, owner, mode, entry.mtime_ns)

    def _parts(self, path: bytes) -> "list[bytes]":
        parts = path.split(b"/")
        if any(part in (b"", b".", b"..") or b"\0" in part for part in parts) or len(path) > archive.MAX_PATH_BYTES:
            raise Refused(f"{shown(path)} is not the name of anything in a layer")
        return parts

    def _go_to(self, parents: "tuple[bytes, ...]") -> None:
        """Completes the open directories up to one that is there already."""
        while len(self._open) > len(parents):
            _, entry = self._open.pop()
            made = self._builder.leave()
            try:
                self._finish(made, entry)
            finally:
                os.close(made)
        if tuple(name for name, _ in self._open) != parents:
            raise Refused(f"{shown(b'/'.join(parents))} is no directory that comes right before what is in it")

    def _owner(self, entry: _Entry) -> int:
        return self._owners.system if entry.is_system else self._owners.agent

    def _finish(self, made: int, entry: _Entry) -> None:
        """Attributes, owner, mode and time of a file or directory that is complete."""
        for key, value in entry.extended.items():
            name = os.fsdecode(key.removeprefix(archive.XATTR).replace(b"%3D", b"=").replace(b"%25", b"%"))
            if key == archive.OPAQUE and entry.kind == archive.DIRECTORY:
                os.setxattr(made, self._opaque, b"y")
            elif key.startswith(archive.XATTR) and name.startswith("user.") and not name.startswith("user.overlay."):
                os.setxattr(made, name, value)
            elif not key.startswith(archive.SPARSE) and key not in (b"path", b"linkpath", b"mtime", b"size"):
                raise Refused(f"{shown(entry.path)} has {shown(key)}, which no layer has")
        owner = self._owner(entry)
        os.fchown(made, owner, owner)
        os.fchmod(made, entry.mode)
        os.utime(made, ns=(entry.mtime_ns, entry.mtime_ns))

    def _link(self, entry: _Entry, name: str) -> None:
        *parents, first = self._parts(entry.link)
        folder = os.dup(self._root)
        try:
            for parent in parents:
                below = os.open(os.fsdecode(parent), trees.FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            os.link(os.fsdecode(first), name, src_dir_fd=folder, dst_dir_fd=self._builder.here, follow_symlinks=False)
        finally:
            os.close(folder)

    def _file(self, entry: _Entry, name: str) -> None:
        made = self._builder.open_file(name)
        try:
            if archive.SPARSE + b"realsize" in entry.extended:
                self._sparse_content(entry, made)
            else:
                self._content(made, entry.size)
            self._reader.read(-entry.size % BLOCK)
            self._finish(made, entry)
        finally:
            os.close(made)

    def _content(self, made: int, size: int) -> None:
        while size:
            view = memoryview(self._reader.read(min(size, _CHUNK_BYTES)))
            size -= len(view)
            while view:
                view = view[os.write(made, view) :]

    def _sparse_content(self, entry: _Entry, made: int) -> None:
        left, size = entry.size, _number(entry.extended, archive.SPARSE + b"realsize")
        text, numbers, num_wanted = b"", list[int](), 1
        while len(numbers) < num_wanted:
            if left < BLOCK:
                raise Refused(f"{shown(entry.path)}: damaged: its holes are not listed")
            *lines, text = (text + self._reader.read(BLOCK)).split(b"\n")
            left -= BLOCK
            for line in lines:
                if len(numbers) < num_wanted:
                    numbers.append(_number({b"": line}, b""))
                if len(numbers) == 1:
                    num_wanted = 1 + 2 * numbers[0]
            if num_wanted > 2 * archive.MAX_EXTENTS + 3 or len(text) > BLOCK:
                raise Refused(f"{shown(entry.path)}: damaged: its holes are not listed")
        end = 0
        for begin, length in zip(numbers[1::2], numbers[2::2], strict=True):
            if begin < end or begin + length > size or length > left:
                raise Refused(f"{shown(entry.path)}: damaged: its holes are not listed")
            os.lseek(made, begin, os.SEEK_SET)
            self._content(made, length)
            left, end = left - length, begin + length
        if left:
            raise Refused(f"{shown(entry.path)}: damaged: its holes are not listed")
        os.ftruncate(made, size)


def unpack(source: int, root: int, owners: Owners, *, forbidden: bytes) -> None:
    """Reads an archive from the descriptor `source`, to its end, into the empty directory `root`.

    `forbidden`: a name at the top that may not be in it. Raises Refused, OSError when the machine fails.
    """
    with os.fdopen(source, "rb", _CHUNK_BYTES, closefd=False) as file:
        unpacker = _Unpacker(file, root, owners, forbidden)
        try:
            unpacker.unpack()
        except OSError as error:
            if error.errno in _FULL:
                raise Refused("it holds more files or bytes than the sandbox's disk limit allows") from error
            raise
        finally:
            unpacker.close()
