"""Where every part of burnish says what happened. Telling costs a dictionary; nobody who tells ever waits or asks back.

`emit` hands one structured event to the sinks that are attached. Without a sink it does nothing, so a library user pays
nothing. The event names and their fields are listed in docs/events.md.

Example:
    >>> seen = []
    >>> with attached(seen.append):
    ...     emit("drop", reason="no_signal", num=8)
    >>> seen[0]["event"], seen[0]["reason"]
    ('drop', 'no_signal')
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Event = dict[str, Any]
Sink = Callable[[Event], None]

_sinks: list[Sink] = []


def emit(event: str, /, **fields: Any) -> None:
    """Tells all sinks. `fields` are JSON values; `t` (epoch seconds) is added.

    A sink that raises ends the work of whoever emits: the log does so when it can write no more (I8), no other should.
    """
    if not _sinks:
        return
    record: Event = {"event": event, "t": round(time.time(), 4), **fields}
    for sink in tuple(_sinks):
        sink(record)


@contextmanager
def attached(sink: Sink) -> Iterator[None]:
    """Attaches a sink for the length of a block."""
    _sinks.append(sink)
    try:
        yield
    finally:
        _sinks.remove(sink)
