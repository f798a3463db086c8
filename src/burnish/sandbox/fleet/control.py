"""An owner's control socket: its sandboxes can be listed, ended, copied and saved by other processes of its user.

It lies in the folder of the records, which no sandbox sees, and answers processes with the owner's user id alone. One
JSON line is asked and one answered; after the answer to "snapshot" its bytes follow:

    {"op": "list"}                       -> {"sandboxes": [...]}
    {"op": "kill", "id"}                 -> {}
    {"op": "fork", "id", "argv"}         -> {"exit_code", "signal", "limit_hit", "stdout", "stderr"}    base64
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
from collections.abc import Callable, Sequence
from typing import Any

from burnish.errors import BoundaryError, SandboxError, UserError
from burnish.sandbox.base import SandboxFileError
from burnish.sandbox.fleet.box import FleetBox
from burnish.sandbox.fleet.export import export_files
from burnish.sandbox.fleet.records import address

MAX_REQUEST_BYTES = 1 << 20
_MAX_PEERS = 16
_HEAR_S, _TELL_S, _LAST_WORDS_S = 5.0, 30.0, 0.5
ANSWER_S = 120.0  # beside the wall limit of a command
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

Answer = tuple[dict[str, Any], bytes]


class ControlServer:
    """Serves until `close`. Whatever a peer does, the owner does not hear of it."""

    def __init__(self, folder: int, name: str, boxes: Callable[[], Sequence[FleetBox]]) -> None:
        self._folder, self._name, self._boxes = folder, name, boxes
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
        doing = asyncio.create_task(self._do(line), name="sandbox:control")
        leaving = asyncio.create_task(reader.read(1), name="sandbox:control-peer")
        try:
            await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                return
            answer, data = doing.result()
        finally:
            for task in (doing, leaving):
                task.cancel()
            await asyncio.gather(doing, leaving, return_exceptions=True)
        writer.write(json.dumps(answer).encode() + b"\n")
        writer.write(data)
        async with asyncio.timeout(_TELL_S):
            await writer.drain()

    async def _do(self, line: bytes) -> Answer:
        """Never raises but for cancellation."""
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise UserError("a request is a JSON object")
            return await self._dispatch(request)
        except (UserError, SandboxFileError, ValueError, RecursionError) as error:
            return {"error": str(error), "kind": "user"}, b""
        except BoundaryError as error:
            return {"error": error.cause, "kind": "sandbox"}, b""
        except Exception as error:  # noqa: BLE001 (a bug here is no reason to end the owner's work; the asker hears it)
            return {"error": f"{type(error).__name__}: {error}", "kind": "sandbox"}, b""

    async def _dispatch(self, request: dict[str, Any]) -> Answer:
        op = request.get("op")
        if op == "list":
            return {"sandboxes": [describe(box) for box in self._boxes()]}, b""
        if op not in ("kill", "fork", "snapshot"):
            raise UserError(f"no such request: {op!r}")
        box = next((box for box in self._boxes() if box.id == request.get("id")), None)
        if box is None:
            raise UserError("there is no such sandbox any more", where=str(request.get("id")))
        try:
            async with asyncio.timeout(ANSWER_S + (box.limits.wall_s if op == "fork" else 0)):
                if op == "kill":
                    await box.kill()
                    return {}, b""
                if op == "fork":
                    return await _run_in_fork(box, request.get("argv")), b""
                data = await export_files(box)
                return {"size": len(data)}, data
        except TimeoutError:
            raise SandboxError(f"{op}: not done in time") from None


async def _run_in_fork(box: FleetBox, argv: Any) -> dict[str, Any]:
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise UserError("a command is a list of words", where="argv")
    (copy,) = await box.fork()
    async with copy:
        result = await copy.commands.run(argv)
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
    """Whether whoever connected has our user id, as the kernel says."""
    with contextlib.suppress(OSError):
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())
    return False
