"""`events.jsonl`, the truth about a run: an append-only log that survives a killed process, and its reader.

One event is one JSON line, written with one `write` call and no buffer in this process. After kill -9 at any moment
the file is whole but for, at most, a torn last line. The reader leaves that line out; the log removes it when it is
opened again. A torn line anywhere else is damage, and said to be.

A log that cannot write raises `StoreError` from `emit`, and again from every later `emit`: a run that can no longer
say what happens ends with that as its cause (I8).
"""

import json
import math
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from burnish.errors import StoreError, boundary
from burnish.observe.emit import Event

EVENTS_FILE = "events.jsonl"
ROLLED_BACK = frozenset({"step.end", "sample"})
"""Events of a step that a later `run.resume` to an earlier step makes void."""


class EventLog:
    """A sink that appends to a file. Safe to call from any thread.

    Example:
        >>> with EventLog(run_dir / "events.jsonl") as log, attached(log):
        ...     emit("phase", name="train")
    """

    def __init__(self, path: Path) -> None:
        """Opens or creates the file and cuts a torn last line off. Raises StoreError."""
        self.path = path
        self._lock = threading.Lock()
        self._failure: StoreError | None = None
        with boundary(StoreError, during=f"open {path}"):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = _mend_tail(self._fd)

    def __call__(self, event: Event) -> None:
        """Appends one event. Raises StoreError; TypeError for a field that is no JSON value, a bug of the emitter."""
        line = _encode(event)
        with self._lock:
            if self._failure is not None:
                raise StoreError(self._failure.cause, evidence=self._failure.evidence)
            try:
                with boundary(StoreError, during=f"append to {self.path}"):
                    _write_all(self._fd, line)
            except StoreError as error:
                self._failure = error
                # Half a line may have fitted on a full disk; truncating needs no space.
                with boundary(StoreError, during=f"cut a half-written line off {self.path}"):
                    os.ftruncate(self._fd, self._size)
                raise
            self._size += len(line)

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_events(path: Path) -> list[Event]:
    """All events of a log, oldest first, without a torn last line.

    Raises StoreError naming the first line that is not an event, or the reason why the file cannot be read.
    """
    with boundary(StoreError, during=f"read {path}"):
        lines = path.read_bytes().split(b"\n")
    last = lines.pop()  # empty unless the last line has no end
    events = []
    for number, line in enumerate(lines, start=1):
        event = _decode(line)
        if event is None:
            raise StoreError(f"{path}: line {number} is not an event", evidence=repr(line[:200]))
        events.append(event)
    final = _decode(last)
    return events if final is None else [*events, final]


def effective(events: Iterable[Event]) -> list[Event]:
    """The events that still hold: a `run.resume` to step n voids the `step.end` and `sample` of later steps before it.

    Example: steps 1, 2, 3, then a resume to 1, then steps 2, 3 again: the first 2 and 3 are left out.
    """
    kept: list[Event] = []
    for event in events:
        if event["event"] == "run.resume":
            step = event["step"]
            kept = [old for old in kept if old["event"] not in ROLLED_BACK or old["step"] <= step]
        kept.append(event)
    return kept


def _encode(event: Event) -> bytes:
    """One line. JSON knows no NaN: such a field becomes null, and `nonfinite` names it."""
    nonfinite = sorted(name for name, value in event.items() if isinstance(value, float) and not math.isfinite(value))
    if nonfinite:
        event = {**event, **dict.fromkeys(nonfinite), "nonfinite": nonfinite}
    # ASCII only: lone surrogates of a model's text stay representable, and no line separator can stand raw.
    return json.dumps(event, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _decode(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) and "t" in event else None


def _mend_tail(fd: int) -> int:
    """Ends a whole last line that lost its newline, cuts a torn one. Returns the size of the file after it."""
    size = os.fstat(fd).st_size
    tail = b"".join(_lines_end(fd, size))
    if not tail:
        return size
    if _decode(tail) is not None:
        _write_all(fd, b"\n")
        return size + 1
    os.ftruncate(fd, size - len(tail))
    return size - len(tail)


def _lines_end(fd: int, size: int, block: int = 1 << 16) -> Iterator[bytes]:
    """The pieces of what follows the last newline, in order; reads backwards, so a long log costs nothing."""
    pieces: list[bytes] = []
    while size > 0:
        start = max(0, size - block)
        data = os.pread(fd, size - start, start)
        cut = data.rfind(b"\n")
        pieces.append(data[cut + 1 :])
        if cut >= 0:
            break
        size = start
    return reversed(pieces)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
