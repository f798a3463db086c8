"""The journal: what happened, appended as it happens, so that a killed run can go on from it (I2).

A segment file per life of the run holds records `4 bytes length, zstd frame with checksum, JSON inside`. A record that
was being written when the process died is the last of its segment, is recognised, and is ignored.

Records:
- `attempt`: a finished attempt, and which member of its group it is
- `step`: the optimizer step that closed these groups, with the trajectory ids it trained and the drops with reasons
- `drop`: a group closed outside a step
- `resume`: a new life began from the committed step; later steps and everything sampled by them are void
"""

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard
from pydantic import TypeAdapter

from burnish.errors import StoreError, boundary
from burnish.flow.source import group_index
from burnish.types import Attempt, Measured

_LENGTH = struct.Struct(">I")
_ATTEMPT = TypeAdapter(Attempt)
Record = dict[str, Any]


class Journal:
    """The writing end: one new segment, appended to by one process."""

    def __init__(self, folder: Path) -> None:
        """Opens the next segment. Raises StoreError when the folder cannot be written."""
        with boundary(StoreError, during="open journal"):
            folder.mkdir(parents=True, exist_ok=True)
            number = 1 + max((int(path.stem) for path in folder.glob("*.zst")), default=0)
            self._path = folder / f"{number:06d}.zst"
            self._file = self._path.open("xb", buffering=0)
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)

    def attempt(self, attempt: Attempt, *, member: int) -> None:
        self._append({"kind": "attempt", "member": member}, _ATTEMPT.dump_json(attempt))

    def step(self, step: int, *, trained: Mapping[str, Sequence[str]], dropped: Mapping[str, str]) -> None:
        """`trained`: group id -> ids of the trajectories trained; `dropped`: group id -> reason."""
        self._append({"kind": "step", "step": step, "trained": trained, "dropped": dropped})

    def drop(self, group: str, *, reason: str) -> None:
        self._append({"kind": "drop", "group": group, "reason": reason})

    def resume(self, *, step: int) -> None:
        self._append({"kind": "resume", "step": step})

    def sync(self) -> None:
        """Everything appended so far survives a power cut after this."""
        with boundary(StoreError, during="sync journal"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _append(self, record: Record, body: bytes = b"null") -> None:
        line = json.dumps(record).encode() + b"\n" + body
        frame = self._compressor.compress(line)
        with boundary(StoreError, during=f"append to {self._path.name}"):
            data = _LENGTH.pack(len(frame)) + frame
            written = self._file.write(data)
            if written != len(data):
                raise OSError(f"{written} of {len(data)} bytes written")


def read_journal(folder: Path) -> Iterator[Record]:
    """All records in order; an `attempt` record carries an `Attempt` under "attempt".

    Raises StoreError for a damaged record that is not the last of its segment: that is corruption, not a crash.
    """
    decompressor = zstandard.ZstdDecompressor()
    for path in sorted(folder.glob("*.zst")):
        with boundary(StoreError, during=f"read {path.name}"):
            data = path.read_bytes()
        at = 0
        while at + _LENGTH.size <= len(data):
            (length,) = _LENGTH.unpack_from(data, at)
            start, end = at + _LENGTH.size, at + _LENGTH.size + length
            if end > len(data):
                break  # torn by a crash
            with boundary(StoreError, during=f"read {path.name} at byte {at}"):
                head, _, body = decompressor.decompress(data[start:end]).partition(b"\n")
                record: Record = json.loads(head)
                if record["kind"] == "attempt":
                    record["attempt"] = _ATTEMPT.validate_json(body)
            yield record
            at = end


@dataclass(kw_only=True, slots=True)
class Replayed:
    """What a journal says about the groups of a run, as of its committed step."""

    closed: set[int] = field(default_factory=set)  # trained by a committed step, or dropped
    attempts: dict[int, dict[int, Attempt]] = field(default_factory=dict)  # open groups: index -> member -> attempt
    num_void: int = 0  # measured attempts that cannot be used again
    num_resumes: int = 0


def replay_journal(records: Iterable[Record], *, committed_step: int, max_lag: int) -> Replayed:
    """Folds the records, in order, into the state a run resumes from.

    An attempt of a group that is still open is used again unless weights that were never committed sampled it, or its
    oldest token is past the lag bound already. Unmeasured attempts are made anew.
    """
    state = Replayed()
    steps: dict[int, Record] = {}
    for record in records:
        match record["kind"]:
            case "attempt":
                if isinstance(record["attempt"].outcome, Measured):
                    index = group_index(record["attempt"].trajectory.group_id)
                    state.attempts.setdefault(index, {})[record["member"]] = record["attempt"]
            case "step":
                steps[record["step"]] = record
            case "drop":
                state.closed.add(group_index(record["group"]))
            case "resume":
                state.num_resumes += 1
                _return_to(record["step"], steps, state, max_lag)
    _return_to(committed_step, steps, state, max_lag)
    return state


def _return_to(step: int, steps: dict[int, Record], state: Replayed, max_lag: int) -> None:
    """Step k makes version k: after a return to `step`, later steps and what later versions sampled are void."""
    for later in [number for number in steps if number > step]:
        del steps[later]
    closed = state.closed.union(*(_groups_of(record) for record in steps.values()))
    for index, members in list(state.attempts.items()):
        if index in closed:
            del state.attempts[index]
            continue
        for member, attempt in list(members.items()):
            versions = [version for s in attempt.trajectory.steps for version in s.versions]
            if versions and not step - max_lag <= min(versions) <= max(versions) <= step:
                del members[member]
                state.num_void += 1
        if not members:
            del state.attempts[index]
    state.closed = closed


def _groups_of(record: Record) -> set[int]:
    return {group_index(group) for group in (*record["trained"], *record["dropped"])}
