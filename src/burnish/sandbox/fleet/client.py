"""Asking owners about their sandboxes, from another process of the same user. Blocking, with deadlines."""

import contextlib
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from burnish.errors import SandboxError, UserError
from burnish.sandbox.fleet import records

_LIST_S = 5.0
_ACT_S = 7 * 24 * 3600.0  # a command in a copy may take as long as its owner allows; the owner keeps the deadline
_MAX_ANSWER_BYTES = 256 << 20
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Owned:
    """A living sandbox. `answers` is False when its owner did not: then this is what it wrote down last."""

    owner: records.OwnerName
    sandbox: dict[str, Any]
    answers: bool


def find_all() -> list[Owned]:
    """The sandboxes of this user's living owners, oldest first."""
    found: list[Owned] = []
    with contextlib.suppress(FileNotFoundError), records.opened(records.registry_dir(), make=False) as folder:
        for owner in records.owners(folder):
            if owner.is_alive:
                found += _sandboxes_of(folder, owner)
    return sorted(found, key=lambda owned: (owned.sandbox["created"], owned.sandbox["id"]))


def reap() -> int:
    """Removes the records of dead owners; how many there were."""
    with contextlib.suppress(FileNotFoundError), records.opened(records.registry_dir(), make=False) as folder:
        return records.reap(folder)
    return 0


def ask(id: str, op: str, **fields: Any) -> dict[str, Any]:
    """One request about a sandbox, to whoever owns it. Raises UserError and SandboxError as the owner does."""
    answer, _ = _ask_owner(_owner_of(id), {"op": op, "id": id, **fields}, deadline_s=_ACT_S)
    return answer


def download(id: str, write: Callable[[bytes], object]) -> int:
    """Hands a tar of the sandbox's files on in pieces; its size. Raises like `ask`."""
    return _ask_owner(_owner_of(id), {"op": "snapshot", "id": id}, deadline_s=_ACT_S, write=write)[1]


def _owner_of(id: str) -> records.OwnerName:
    owner = next((owned.owner for owned in find_all() if owned.sandbox["id"] == id), None)
    if owner is None:
        raise UserError("there is no such sandbox", where=id, fix="`burnish sandbox ls` shows those there are")
    return owner


def _sandboxes_of(folder: int, owner: records.OwnerName) -> list[Owned]:
    try:
        answer, _ = _ask(folder, owner, {"op": "list"}, deadline_s=_LIST_S)
        told, answers = records.checked(answer.get("sandboxes")), True
    except SandboxError:
        record = records.read(folder, owner)
        told, answers = record.sandboxes if record else (), False
    return [Owned(owner=owner, sandbox=sandbox, answers=answers) for sandbox in told or ()]


def _ask_owner(
    owner: records.OwnerName,
    request: dict[str, Any],
    *,
    deadline_s: float,
    write: Callable[[bytes], object] | None = None,
) -> tuple[dict[str, Any], int]:
    with records.opened(records.registry_dir(), make=False) as folder:
        return _ask(folder, owner, request, deadline_s=deadline_s, write=write)


def _ask(
    folder: int,
    owner: records.OwnerName,
    request: dict[str, Any],
    *,
    deadline_s: float,
    write: Callable[[bytes], object] | None = None,
) -> tuple[dict[str, Any], int]:
    """The answer, and the size of what came after it. Raises SandboxError when the owner does not answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(_LIST_S)
            peer.connect(records.address(folder, f"{owner}.sock"))
            peer.sendall(json.dumps(request).encode() + b"\n")
            peer.settimeout(deadline_s)
            with peer.makefile("rb") as answers:
                answer = json.loads(answers.readline(_MAX_ANSWER_BYTES))
                size = _pass_on(answers, int(answer.get("size", 0)), write) if write and "error" not in answer else 0
    except (OSError, ValueError) as error:
        raise SandboxError(f"owner {owner.pid} did not answer: {error}") from error
    if "error" in answer:
        raise UserError(answer["error"]) if answer.get("kind") == "user" else SandboxError(answer["error"])
    return answer, size


def _pass_on(answers: IO[bytes], size: int, write: Callable[[bytes], object]) -> int:
    left = size
    while left:
        piece = answers.read(min(left, _CHUNK_BYTES))
        if not piece:
            raise OSError("it ended before all was told")
        write(piece)
        left -= len(piece)
    return size
