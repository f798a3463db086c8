"""Reading what strangers compressed: any of four formats, bounded in memory and in output, hashed on the way."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import stat
import zlib
from typing import BinaryIO, Protocol

import zstandard

from burnish.errors import UserError
from burnish.sandbox.images.entries import Budget

CHUNK_BYTES = 1 << 20
_INPUT_BYTES = 1 << 16
_WINDOW_BYTES = 1 << 27  # of history that a decompressor may keep; what the formats' own tools accept by default
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)


class Reader(Protocol):
    """All that is asked of a source of bytes."""

    def read(self, size: int, /) -> bytes: ...


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Pieces:
    """bz2 and xz by their incremental decompressors, since the file classes take no memory limit."""

    def __init__(self, source: Reader, kind: str) -> None:
        self._source, self._kind = source, kind
        self._inner = self._fresh()

    def _fresh(self) -> _Decompressor:
        if self._kind == "xz":
            return lzma.LZMADecompressor(memlimit=2 * _WINDOW_BYTES)
        return bz2.BZ2Decompressor()

    def read(self, size: int, /) -> bytes:
        while True:
            if self._inner.eof:
                data = self._inner.unused_data or self._source.read(_INPUT_BYTES)
                data = data.lstrip(b"\0") if self._kind == "xz" else data  # padding between streams
                if not data:
                    return b""
                self._inner = self._fresh()
            elif self._inner.needs_input:
                data = self._source.read(_INPUT_BYTES)
                if not data:
                    raise EOFError("the compressed data ends too early")
            else:
                data = b""
            try:
                out = self._inner.decompress(data, size)
            except OSError as problem:  # bz2's word for damage
                raise EOFError(str(problem)) from problem
            if out:
                return out


class PlainStream:
    """The decompressed bytes of a layer: counted against the budget, with their SHA-256."""

    def __init__(self, raw: BinaryIO, budget: Budget, *, where: str) -> None:
        """`raw` is seekable and stands at its beginning."""
        self._budget, self._where = budget, where
        self._hash = hashlib.sha256()
        self._inner = _decompressed(raw)

    def read(self, size: int, /) -> bytes:
        """Exactly `size` bytes, fewer only at the end. Raises UserError for damage and for a spent budget."""
        out = b""
        while len(out) < size:
            try:
                data = self._inner.read(min(size - len(out), CHUNK_BYTES))
            except _DAMAGE as problem:
                raise UserError(f"damaged: {problem}", where=self._where, fix="fetch it again") from problem
            if not data:
                break
            self._budget.take_bytes(len(data))
            self._hash.update(data)
            out = out + data if out else data
        return out

    def skip(self, size: int) -> int:
        """Reads past `size` bytes; returns how many there were."""
        done = 0
        while done < size and (data := self.read(min(size - done, CHUNK_BYTES))):
            done += len(data)
        return done

    def finish(self) -> str:
        """Reads to the end; the digest of everything, `sha256:...`."""
        while self.read(CHUNK_BYTES):
            pass
        return f"sha256:{self._hash.hexdigest()}"


def is_compressed(raw: BinaryIO) -> bool:
    """Whether a seekable file at its beginning is in one of the formats known here."""
    return _format(raw) != "plain"


def _format(raw: BinaryIO) -> str:
    magic = raw.read(6)
    raw.seek(0)
    known = {b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst", b"\xfd7zXZ\0": "xz", b"BZh": "bz2"}
    return next((kind for start, kind in known.items() if magic.startswith(start)), "plain")


def _decompressed(raw: BinaryIO) -> Reader:
    kind = _format(raw)
    if kind == "gz":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if kind == "zst":
        return zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).stream_reader(raw, read_across_frames=True)
    return raw if kind == "plain" else _Pieces(raw, kind)


class Section(io.RawIOBase):
    """A part of a seekable file, as a file of its own that closes nothing."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        super().__init__()
        self._file, self._offset, self._size, self._at = file, offset, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        self._file.seek(self._offset + self._at)
        data = self._file.read(min(len(view), max(self._size - self._at, 0)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file for reading. Raises OSError, also for a FIFO, which would never answer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"not a regular file: {os.fspath(path)}")
    return os.fdopen(descriptor, "rb")
