"""The audit log: what happened to every sandbox, in a file that shows when it was changed afterwards.

JSON lines, appended as things happen. Each line carries a digest over itself and the digest of the line before, so a
line that is altered, removed or put elsewhere breaks the chain at that place. Cutting off the end leaves a valid chain:
whoever must exclude that keeps the last digest elsewhere (`AuditLog.head`).

A line that was being written when its process died is cut off when the log is opened again, and the log says so.
"""

import asyncio
import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.errors import StoreError, UserError, boundary

GENESIS = "0" * 64
_DIGEST_KEY = ',"digest":"'


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport:
    """What verification found. `problem` is empty when the chain holds.

    Example: AuditReport(num_lines=120, head="9f..", problem="")
    """

    num_lines: int  # that hold
    head: str  # digest of the last of them
    problem: str


class AuditLog:
    """The writing end; one process at a time. Not flushed to the disk line by line: it survives a crash of its process
    but perhaps not of the machine."""

    def __init__(self, path: Path) -> None:
        """Opens or makes the file and continues its chain.

        Raises UserError when another process writes it or its chain is broken, StoreError when it cannot be written.
        """
        with boundary(StoreError, during="open the audit log"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock(path)
            torn = self._cut_torn_line()
            report = verify_audit(path)
            if report.problem:
                raise UserError(report.problem, where=str(path), fix="keep it aside as evidence and begin another one")
        except BaseException:
            os.close(self._file)
            raise
        self._head, self._number = report.head, report.num_lines
        self._pending: list[dict[str, Any]] = []
        self._failure: StoreError | None = None
        if torn:
            self.record("audit.torn", cut_bytes=torn)

    @property
    def head(self) -> str:
        """The digest of the last line."""
        self._write()
        return self._head

    def record(self, event: str, **fields: Any) -> None:
        """Appends one line, within an event loop at its next turn, so that whoever records does not wait for the disk.

        Raises StoreError when an earlier line could not be written: what is not recorded must not go on.
        """
        if self._failure is not None:
            raise StoreError(self._failure.cause, evidence=self._failure.evidence)
        self._pending.append({"t": round(time.time(), 6), "event": event, **fields})
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._write()
            return
        if len(self._pending) == 1:
            loop.call_soon(self._write_later)

    def close(self) -> None:
        """Writes what is left. Idempotent. Raises StoreError."""
        if self._file >= 0:
            try:
                self._write()
            finally:
                os.close(self._file)
                self._file = -1

    def _write_later(self) -> None:
        try:
            self._write()
        except StoreError as failure:
            self._failure = failure

    def _write(self) -> None:
        pending, self._pending = self._pending, []
        if not pending:
            return
        lines = bytearray()
        for entry in pending:
            line = {"number": self._number, **entry, "previous": self._head}
            body = json.dumps(line, separators=(",", ":"), default=repr)
            self._head = hashlib.sha256(body.encode()).hexdigest()
            self._number += 1
            lines += f'{body[:-1]}{_DIGEST_KEY}{self._head}"}}\n'.encode()
        with boundary(StoreError, during="write the audit log"):
            if os.write(self._file, lines) != len(lines):
                raise OSError(os.strerror(errno.ENOSPC))

    def _lock(self, path: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError("another process writes it", where=str(path), fix="give each owner its own file") from None

    def _cut_torn_line(self) -> int:
        """The number of bytes after the last newline, which are gone then."""
        size = os.fstat(self._file).st_size
        end = size
        while end > 0:
            begin = max(0, end - (64 << 10))
            found = os.pread(self._file, end - begin, begin).rfind(b"\n")
            if found >= 0:
                end = begin + found + 1
                break
            end = begin
        os.ftruncate(self._file, end)
        return size - end


def verify_audit(path: Path) -> AuditReport:
    """Follows the chain from its beginning. Raises UserError when there is no such file."""
    head, number = GENESIS, 0
    for line in _lines(path):
        problem = _check(line, number, head)
        if problem:
            return AuditReport(num_lines=number, head=head, problem=f"line {number + 1}: {problem}")
        head = line.rpartition(_DIGEST_KEY)[2][:64]
        number += 1
    return AuditReport(num_lines=number, head=head, problem="")


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            yield from file
    except FileNotFoundError:
        raise UserError("there is no such file", where=str(path), fix="give the path of an audit log") from None
    except OSError as error:
        raise UserError(f"it cannot be read: {error.strerror}", where=str(path)) from error


def _check(line: str, number: int, previous: str) -> str:
    """What is wrong with a line that should be the `number`-th after `previous`; empty when nothing is."""
    if not line.endswith("\n"):
        return "it was cut off while it was written"
    body, _, end = line[:-1].rpartition(_DIGEST_KEY)
    if not body or len(end) != 66 or end[64:] != '"}':
        return "it is no line of an audit log"
    body += "}"
    if hashlib.sha256(body.encode()).hexdigest() != end[:64]:
        return "it was altered"
    fields = json.loads(body)
    if fields.get("previous") != previous or fields.get("number") != number:
        return "lines before it are missing, or were put elsewhere"
    return ""
