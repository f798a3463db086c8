"""An owner's control socket: its sandboxes can be listed, ended, copied and saved by other processes of its user.

It lies in the folder of the records, which no sandbox sees, and answers only processes with the owner's user id that
are of its pid namespace, which no program in a sandbox is. One JSON line is asked and one answered; after the answer to
"snapshot" its bytes follow:

    {"op": "list"}                       -> {"sandboxes": [{..., "idle_s"}]}
    {"op": "kill", "id"}                 -> {}
    {"op": "fork", "id", "argv", "stdin"} -> {"exit_code", "signal", "limit_hit", "stdout", "stderr"}; base64
    {"op": "snapshot", "id"}             -> {"size"}
    anything that cannot be done         -> {"error", "kind": "user" or "sandbox"}

Whoever asks keeps the connection open; closing it gives the request up.
"""

import asyncio
import base64
import contextlib
import json
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from burnish.errors import BoundaryError, SandboxError, UserError
from burnish.sandbox.audited import trajectory
from burnish.sandbox.base import SandboxBackend, SandboxFileError
from burnish.sandbox.fleet.box import FleetBox
from burnish.sandbox.fleet.export import exported
from burnish.sandbox.fleet.records import address, own_namespace

MAX_REQUEST_BYTES = 1 << 20
_MAX_PEERS = 16
_HEAR_S, _TELL_S, _LAST_WORDS_S = 5.0, 30.0, 0.5
ANSWER_S = 120.0  # beside the wall limit of a command
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class Served(Protocol):
    """What serving asks of a fleet."""

    @property
    def boxes(self) -> Sequence[FleetBox]:
        """The living sandboxes."""
        ...

    @property
    def backend(self) -> SandboxBackend:
        """What they are made of."""
        ...


class ControlServer:
    """Serves until `close`. Whatever a peer does, the owner does not hear of it."""

    def __init__(self, folder: int, name: str, fleet: Served) -> None:
        self._folder, self._name, self._fleet = folder, name, fleet
        self._peers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Raises OSError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listening.bind(address(self._folder, self._name))
            os.chmod(self._name, 0o600, dir_fd=self._folder)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_REQUEST_BYTES)
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        """Gives up what is not done in a moment. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._peers:  # one of them may have ended the owner's work and be about to say so
            await asyncio.wait(self._peers, timeout=_LAST_WORDS_S)
        for task in self._peers:
            task.cancel()
        await asyncio.gather(*self._peers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._peers.add(task)
        try:
            if len(self._peers) <= _MAX_PEERS and _is_ours(writer.get_extra_info("socket")):
                await self._answer(reader, writer)
        except (OSError, TimeoutError, ValueError, asyncio.CancelledError):  # gone, slow, no line, or we close
            pass
        finally:
            self._peers.discard(task)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAR_S):
            line = await reader.readline()
        doing = asyncio.create_task(self._do(line, writer), name="sandbox:control")
        leaving = asyncio.create_task(reader.read(1), name="sandbox:control-peer")
        try:
            await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (doing, leaving):
                task.cancel()
            await asyncio.gather(doing, leaving, return_exceptions=True)

    async def _do(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        """Answers. Raises OSError and TimeoutError when nobody takes the answer."""
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise UserError("a request is a JSON object")
            if request.get("op") == "snapshot":
                await self._export(self._find(request), writer)
                return
            answer = await self._dispatch(request)
        except (UserError, SandboxFileError, ValueError, RecursionError) as error:
            answer = {"error": str(error), "kind": "user"}
        except BoundaryError as error:
            answer = {"error": error.cause, "kind": "sandbox"}
        except Exception as error:  # noqa: BLE001 (a bug here is no reason to end the owner's work; the asker hears it)
            answer = {"error": f"{type(error).__name__}: {error}", "kind": "sandbox"}
        await _tell(writer, json.dumps(answer).encode() + b"\n")

    async def _dispatch(self, request: dict[str, Any]) -> dict[str, Any]:
        op = request.get("op")
        if op == "list":
            return {"sandboxes": [{**describe(box), "idle_s": box.lease.idle_s} for box in self._fleet.boxes]}
        if op not in ("kill", "fork"):
            raise UserError(f"no such request: {op!r}")
        box = self._find(request)
        try:
            async with asyncio.timeout(ANSWER_S + (box.limits.wall_s if op == "fork" else 0)):
                if op == "fork":
                    return await _run_in_fork(box, request.get("argv"), request.get("stdin", ""))
                await box.kill()
                return {}
        except TimeoutError:
            raise SandboxError(f"{op}: not done in time") from None

    async def _export(self, box: FleetBox, writer: asyncio.StreamWriter) -> None:
        with box.use():
            async with exported(self._fleet.backend, box) as (size, parts):
                await _tell(writer, json.dumps({"size": size}).encode() + b"\n")
                try:
                    async for part in parts:
                        await _tell(writer, part)
                except BaseException:
                    writer.transport.abort()  # no error fits between its bytes
                    raise

    def _find(self, request: dict[str, Any]) -> FleetBox:
        box = next((box for box in self._fleet.boxes if box.id == request.get("id")), None)
        if box is None:
            raise UserError("there is no such sandbox any more", where=str(request.get("id")))
        trajectory.set(box.trajectory)  # of this task; it inherited that of the first creation
        return box


async def _tell(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(_TELL_S):
        await writer.drain()


async def _run_in_fork(box: FleetBox, argv: Any, stdin: Any) -> dict[str, Any]:
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise UserError("a command is a list of words", where="argv")
    if not isinstance(stdin, str):
        raise UserError("it is base64", where="stdin")
    data = base64.b64decode(stdin, validate=True)
    (copy,) = await box.fork()
    async with copy:
        result = await copy.commands.run(argv, stdin=data)
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "limit_hit": result.limit_hit,
        "stdout": base64.b64encode(result.stdout).decode(),
        "stderr": base64.b64encode(result.stderr).decode(),
    }


def describe(box: FleetBox) -> dict[str, Any]:
    """A sandbox as records and answers show it."""
    limits = box.limits
    return {
        "id": box.id,
        "created": round(box.created, 3),
        "image": box.origin,
        "limits": {name: getattr(limits, name) for name in limits.__dataclass_fields__},
        "trajectory": box.trajectory,
    }


def _is_ours(peer: socket.socket) -> bool:
    """Whether whoever connected has our user id, as the kernel says, and is of our pid namespace.

    Without privileges a program in a sandbox has our user id: it would be the namespace that gives it away.
    """
    with contextlib.suppress(OSError):  # it is gone
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(credentials)
        return bool(uid == os.geteuid() and Path(f"/proc/{pid}/ns/pid").stat().st_ino == own_namespace())
    return False
