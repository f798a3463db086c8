"""The journal: what happened, written to an object store as it happens, so that a killed run can go on from it (I2).

    append ──► buffer ──(every FLUSH_S, or when it is large)──► compress ──► create journal/00000042.seg

An object store cannot append, so a segment is an object: a header, and one zstd frame of records, each behind its
length. Segments are numbered, written in order by one process, one at a time, and never changed. Losing the process
costs the records of the last `FLUSH_S` seconds and of the segment under way. A segment that a power cut tore is the
last one; its checksums say so, and a resume cuts it off. Damage anywhere else is corruption and is named.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from zlib import crc32

import msgspec
import zstandard

from burnish.errors import StoreError, boundary
from burnish.flow.records import DECODER, ENCODER, Found, Record
from burnish.store import ExistsError, RunStore

FLUSH_S = 1.0
"""Nothing stays unwritten for longer; with a store that answers within a second, nothing is lost after two."""
MAX_BUFFER_BYTES = 128 << 20
"""Of records that wait for the store; whoever appends beyond that waits too (`room`)."""
_SEGMENT_BYTES = 16 << 20  # of records; a segment is begun earlier than FLUSH_S when so many wait
_LEVEL = 1
_RETRIES, _RETRY_S = 5, 0.5  # of a segment that the store refused; the wait doubles
_PREFIX = "journal"
_MAGIC = b"BJ1\n"
_HEADER = struct.Struct(">4sIII")  # magic, crc32 of the frame, bytes of the frame, number of records
_LENGTH = struct.Struct(">I")


class Journal:
    """The writing end, held by one process. Use as `async with`: leaving writes what is left.

    Example:
        async with await Journal.open(store) as journal:
            journal.append(Voided(ids=("g000012.3",), reason="resume_orphan"))
            await journal.flush()
    """

    def __init__(self, store: RunStore, *, next_segment: int) -> None:
        """`next_segment`: one more than the last there is; see `open`."""
        self._store, self._next = store, next_segment
        self._buffer: list[bytes] = []  # records and their lengths, in turn
        self._buffer_bytes = 0
        self._unsettled: list[str] = []
        self._writing = asyncio.Lock()
        self._wake, self._drained = asyncio.Event(), asyncio.Event()
        self._drained.set()
        self._closing = False
        self.num_bytes = 0  # of records, since it was opened
        self.num_stored_bytes = 0  # of segments

    @classmethod
    async def open(cls, store: RunStore) -> "Journal":
        """Goes on after the last segment. Raises StoreError when the store cannot be listed."""
        names = await store.list(_PREFIX)
        return cls(store, next_segment=1 + max(map(_number_of, names), default=0))

    @property
    def last_segment(self) -> int:
        """The number of the last segment that is in the store; 0 for none."""
        return self._next - 1

    def append(self, record: Record) -> None:
        """Takes a record; it is in the store after about `FLUSH_S` seconds, or after `flush`. Raises nothing."""
        data = ENCODER.encode(record)
        self._buffer += (_LENGTH.pack(len(data)), data)
        self._buffer_bytes += _LENGTH.size + len(data)
        if self._buffer_bytes >= _SEGMENT_BYTES:
            self._wake.set()
            if self._buffer_bytes >= MAX_BUFFER_BYTES:
                self._drained.clear()

    async def room(self) -> None:
        """Waits while more is buffered than the store keeps up with. `run` does, or fails."""
        await self._drained.wait()

    async def run(self) -> None:
        """Writes what is appended until cancelled. Raises StoreError when the store refuses a segment for good."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    await self._wake.wait()
            self._wake.clear()
            await self._write_buffer()

    async def flush(self) -> None:
        """Everything appended so far survives a kill -9, and on a disk of this machine a power cut, after this."""
        await self._write_buffer()
        settled, self._unsettled = self._unsettled, []
        await self._store.settle(settled)

    async def __aenter__(self) -> "Journal":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.flush()

    async def _write_buffer(self) -> None:
        """One segment after the other: a later one must never be there without an earlier one."""
        async with self._writing:
            while self._buffer:
                records, num_bytes = self._buffer, self._buffer_bytes
                self._buffer, self._buffer_bytes = [], 0
                self._drained.set()
                try:
                    await self._write(records)
                except BaseException:  # cancellation too: `flush` writes them later
                    self._buffer, self._buffer_bytes = records + self._buffer, num_bytes + self._buffer_bytes
                    raise
                self.num_bytes += num_bytes

    async def _write(self, records: list[bytes]) -> None:
        data = await asyncio.to_thread(_pack, records)
        key = segment_key(self._next)
        await self._create(key, data)
        self._next += 1
        self._unsettled.append(key)
        self.num_stored_bytes += len(data)

    async def _create(self, key: str, data: bytes) -> None:
        """A write whose answer was lost may have happened, so an object that is there already is compared."""
        for retry in range(_RETRIES + 1):
            try:
                await self._store.create(key, data)
                return
            except ExistsError:
                if await self._store.get(key) == data:
                    return
                raise StoreError(f"write {key}: another process is writing this run's journal") from None
            except StoreError:
                if retry == _RETRIES:
                    raise
                await asyncio.sleep(_RETRY_S * 2**retry)


def segment_key(number: int) -> str:
    """Example: segment_key(42) == "journal/00000042.seg"."""
    return f"{_PREFIX}/{number:08d}.seg"


def _number_of(key: str) -> int:
    return int(key.rpartition("/")[2].removesuffix(".seg"))


def _pack(records: list[bytes]) -> bytes:
    frame = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(b"".join(records))
    return _HEADER.pack(_MAGIC, crc32(frame), len(frame), len(records) // 2) + frame


def unpack(data: bytes) -> list[Found]:
    """The records of a segment. Raises ValueError for one that is torn or damaged."""
    if len(data) < _HEADER.size:
        raise ValueError("shorter than its header")
    magic, checksum, size, num = _HEADER.unpack_from(data)
    frame = data[_HEADER.size :]
    if magic != _MAGIC or len(frame) != size or crc32(frame) != checksum:
        raise ValueError("torn or damaged")
    try:
        body = zstandard.ZstdDecompressor().decompress(frame)
        view, records, at = memoryview(body), [], 0
        for _ in range(num):
            (length,) = _LENGTH.unpack_from(body, at)
            at += _LENGTH.size
            records.append(DECODER.decode(view[at : at + length]))
            at += length
        return records
    except (zstandard.ZstdError, msgspec.DecodeError, struct.error) as error:
        raise ValueError(f"damaged: {error}") from error


@dataclass(kw_only=True, slots=True)
class Tail:
    """What reading came to at the end.

    Example: Tail(num_segments=41, torn="journal/00000042.seg")
    """

    num_segments: int = 0
    torn: str | None = None  # a last segment that cannot be read: a crash cut it


async def read_journal(store: RunStore, tail: Tail | None = None) -> AsyncIterator[Found]:
    """All records in order. `tail` learns how the journal ends.

    Raises StoreError for a damaged or missing segment that is not the last: that is corruption, not a crash.
    """
    tail = tail if tail is not None else Tail()
    names = await store.list(_PREFIX)
    for place, name in enumerate(names, start=1):
        if _number_of(name) != place:
            raise StoreError(f"the journal lacks {segment_key(place)}", evidence=f"next is {name}")
    async for name, data in store.read_all(names):
        try:
            records = await asyncio.to_thread(unpack, data)
        except ValueError as error:
            if name == names[-1]:
                tail.torn = name
                return
            raise StoreError(f"{name} is corrupt: {error}") from error
        tail.num_segments += 1
        for record in records:
            yield record


async def cut_tail(store: RunStore, tail: Tail) -> None:
    """Removes a torn last segment, so that its number can be used again."""
    if tail.torn is not None:
        with boundary(StoreError, during=f"cut {tail.torn}"):
            await store.delete([tail.torn])
