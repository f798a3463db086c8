"""A tar archive as entries, one at a time.

`tarfile` parses the 512-byte headers. The extended headers are read here, because `tarfile` reads those of any size
into memory, calls itself for each one in a row, and keeps a list of everything it saw.
"""

import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from burnish.errors import UserError
from burnish.sandbox.images.entries import MAX_TIME_NS, Entry, Kind, kept_xattr, shown, split_path
from burnish.sandbox.images.streams import PlainStream

BLOCK_BYTES = 512
MAX_EXTENDED_BYTES = 1 << 20  # of one extended header; a path and a few attributes need a thousandth
NOBODY = (1 << 32) - 1  # as an owner it means "leave it", so no file can have it
_XATTR = b"SCHILY.xattr."
_TIME = re.compile(rb"(-?[0-9]{1,18})(?:\.([0-9]*))?")
_KINDS: dict[bytes, Kind] = {
    tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.CONTTYPE: "file", tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "symlink", tarfile.LNKTYPE: "hardlink", tarfile.FIFOTYPE: "fifo",
    tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device",
}  # fmt: skip


@dataclass(kw_only=True, slots=True)
class _Extended:
    """What headers before an entry said about it."""

    fields: dict[bytes, bytes] = field(default_factory=dict)
    is_pending: bool = False  # an entry must follow


def read_tar(stream: PlainStream, *, where: str, needs_end: bool) -> Iterator[Entry]:
    """The entries of a tar archive; an entry's content must be read before the next is asked for.

    Args:
        stream: the decompressed archive.
        where: what to call it in messages.
        needs_end: whether an archive without its end mark is cut short. Some tools leave the mark out, so this is
            asked only where no digest proves that everything is there.

    Raises:
        UserError: the archive is damaged, cut short or of a kind that is not supported.
    """
    for entry, _ in read_tar_at(stream, where=where, needs_end=needs_end):
        yield entry


def read_tar_at(stream: PlainStream, *, where: str, needs_end: bool) -> Iterator[tuple[Entry, int]]:
    """`read_tar` with the place of each entry's content, in bytes from the archive's beginning."""
    default: dict[bytes, bytes] = {}
    extended = _Extended(fields={})
    offset = 0
    while True:
        block = stream.read(BLOCK_BYTES)
        offset += BLOCK_BYTES
        if len(block) < BLOCK_BYTES or not block.strip(b"\0"):
            if extended.is_pending or (block and len(block) < BLOCK_BYTES) or (needs_end and not block):
                raise _damaged("it ends too early", where)
            return
        info = _header(block, where)
        if info.type in (b"x", b"g", b"X", b"L", b"K"):
            data = _extension(stream, info, where)
            offset += _padded(info.size)
            if info.type == b"g":
                default.update(_pax(data, where))
            elif info.type in (b"x", b"X"):
                extended.fields.update(_pax(data, where))
            else:
                extended.fields[b"path" if info.type == b"L" else b"linkpath"] = data.split(b"\0")[0]
            extended.is_pending = info.type != b"g" or extended.is_pending
            continue
        content = _Content(stream)
        entry = _entry(info, default | extended.fields, content.read, where)
        extended = _Extended(fields={})
        content.left = entry.size
        yield entry, offset
        missing = content.left + _padded(entry.size) - entry.size
        if stream.skip(missing) != missing:
            raise _damaged("it ends too early", where)
        offset += _padded(entry.size)


class _Content:
    """One file's content in the stream."""

    def __init__(self, stream: PlainStream) -> None:
        self._stream = stream
        self.left = 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self.left))
        self.left -= len(data)
        return data


def _header(block: bytes, where: str) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError, OverflowError) as problem:
        raise _damaged(f"not a tar header: {problem}", where) from problem
    if info.size < 0:
        raise _damaged("a size below zero", where)
    return info


def _extension(stream: PlainStream, info: tarfile.TarInfo, where: str) -> bytes:
    if info.size > MAX_EXTENDED_BYTES:
        raise _damaged(f"an extended header of {info.size} bytes", where)
    data = stream.read(_padded(info.size))
    if len(data) < _padded(info.size):
        raise _damaged("it ends too early", where)
    return data[: info.size]


def _pax(data: bytes, where: str) -> dict[bytes, bytes]:
    """Records of the form `LENGTH KEY=VALUE\\n`, where the length counts itself."""
    data, fields, at = data.rstrip(b"\0"), {}, 0
    while at < len(data):
        space = data.find(b" ", at, at + 12)
        length = int(data[at:space]) if space > at and data[at:space].isdigit() else 0
        record = data[space + 1 : at + length]
        key, equals, value = record[:-1].partition(b"=")
        if length <= space - at or at + length > len(data) or not record.endswith(b"\n") or not equals or not key:
            raise _damaged("an extended header that cannot be read", where)
        fields[key] = value
        at += length
    return fields


def _entry(info: tarfile.TarInfo, pax: dict[bytes, bytes], read: Callable[[int], bytes], where: str) -> Entry:
    name = pax.get(b"path", info.name.encode("utf-8", "surrogateescape"))
    kind = _KINDS.get(info.type)
    if info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith(b"GNU.sparse") for key in pax):
        raise UserError("sparse entries are not supported", where=where, fix="make the archive without --sparse")
    if kind is None:
        raise UserError(f"entry {shown(name)} is of unknown kind {info.type!r}", where=where, fix="make it anew")
    link = pax.get(b"linkpath", info.linkname.encode("utf-8", "surrogateescape"))
    if kind == "symlink" and (not link or b"\0" in link):
        raise _damaged(f"entry {shown(name)} is a link to nothing", where)
    return Entry(
        path=split_path(name),
        kind=kind,
        mode=info.mode & 0o1777,  # no set-user-id, no set-group-id
        uid=_owner(_number(pax, b"uid", info.uid, where), where),
        gid=_owner(_number(pax, b"gid", info.gid, where), where),
        mtime_ns=_time_ns(pax.get(b"mtime"), info.mtime),
        size=_number(pax, b"size", info.size, where) if kind == "file" else 0,
        read=read,
        symlink=link,
        hardlink=split_path(link) if kind == "hardlink" else (),
        xattrs=_xattrs(pax),
    )


def _xattrs(pax: dict[bytes, bytes]) -> dict[str, bytes]:
    names = {key: key.removeprefix(_XATTR).decode("utf-8", "replace") for key in pax if key.startswith(_XATTR)}
    return {name: pax[key] for key, name in names.items() if kept_xattr(name) and "\0" not in name}


def _number(pax: dict[bytes, bytes], key: bytes, plain: int, where: str) -> int:
    text = pax.get(key)
    if text is None:
        return plain
    if not text.isdigit() or len(text) > 18:
        raise _damaged(f"{key.decode()} is {shown(text)}", where)
    return int(text)


def _owner(number: int, where: str) -> int:
    if not 0 <= number < NOBODY:
        raise _damaged(f"an owner with the number {number}", where)
    return number


def _time_ns(text: bytes | None, plain: float) -> int:
    """Times outside what every file system can store are moved inside; a time is never worth a refusal."""
    if text is None:
        nanoseconds = int(plain) * 10**9
    elif found := _TIME.fullmatch(text):
        nanoseconds = int(found[1]) * 10**9 + int((found[2] or b"")[:9].ljust(9, b"0"))
    else:
        nanoseconds = 0
    return min(max(nanoseconds, 0), MAX_TIME_NS)


def _padded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _damaged(what: str, where: str) -> UserError:
    return UserError(f"damaged archive: {what}", where=where, fix="make or fetch it again")
