"""Talking to a worker process: length-prefixed JSON frames over a socket pair, many calls in flight.

Engine and learner live in processes of their own, so that the crash of one is an error with a name in another. The
conductor's side is asyncio (`WorkerProcess`), the worker's side is blocking and polls between units of work
(`WorkerSide`). Weights and batches of tensors never cross here; they travel as files.

Frame: 4 bytes big-endian length, then a JSON object. Requests are `{"id", "method", "params"}`, answers
`{"id", "result"}` or `{"id", "error", "evidence"}`, and `{"cancel": id}` asks to stop a request early.
"""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.errors import BoundaryError

_LENGTH = struct.Struct(">I")
_FD_VARIABLE = "BURNISH_IPC_FD"
_PR_SET_PDEATHSIG = 1
CLOSE_GRACE_S = 5.0  # a worker that ignores the end of its socket for this long is killed


def _frame(message: Mapping[str, Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":"), allow_nan=True).encode()
    return _LENGTH.pack(len(body)) + body


class WorkerProcess:
    """The conductor's handle on one worker, started as `python -m MODULE`. The worker dies with its parent.

    Example:
        worker = await WorkerProcess.start("burnish.learn.worker", error=LearnerError, log_path=run / "learner.log")
        result = await worker.call("step", {...}, deadline_s=600)
    """

    def __init__(self, process: "subprocess.Popen[bytes]", error: type[BoundaryError], log_path: Path) -> None:
        self._process = process
        self._error = error
        self._log_path = log_path
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._death: BoundaryError | None = None
        self._killed_for: str | None = None

    @classmethod
    async def start(
        cls, module: str, *, error: type[BoundaryError], log_path: Path, env: Mapping[str, str] | None = None
    ) -> "WorkerProcess":
        """Starts the module; its stdout and stderr are appended to `log_path`. Does not wait for it to be ready."""
        ours, theirs = socket.socketpair()
        try:
            with log_path.open("ab") as log:
                process = subprocess.Popen(  # noqa: ASYNC220 (a fork and exec takes about a millisecond)
                    [sys.executable, "-m", module],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(theirs.fileno(),),
                    env={**os.environ, **(env or {}), _FD_VARIABLE: str(theirs.fileno())},
                    start_new_session=True,  # ctrl-C is for the conductor, which stops its workers in order
                )
        except OSError as problem:
            ours.close()
            raise error(f"start {module}: {problem}") from problem
        finally:
            theirs.close()
        worker = cls(process, error, log_path)
        reader, worker._writer = await asyncio.open_unix_connection(sock=ours)
        worker._reading = asyncio.create_task(worker._read(reader), name=f"ipc:{module}")
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def death(self) -> BoundaryError | None:
        """Why the worker is gone; None while it lives."""
        return self._death

    async def call(self, method: str, params: Mapping[str, Any] | None = None, *, deadline_s: float) -> Any:
        """One request and its answer. Cancelling the caller cancels the request in the worker.

        Raises the worker's boundary error when it died, answered with an error, or did not answer in `deadline_s`.
        """
        if self._death is not None:
            raise self._fresh_death()
        assert self._writer is not None
        request_id = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            self._writer.write(_frame({"id": request_id, "method": method, "params": params or {}}))
            async with asyncio.timeout(deadline_s):
                with contextlib.suppress(ConnectionError):  # the reader sees the same death and names it
                    await self._writer.drain()
                return await future
        except TimeoutError:
            self._send_cancel(request_id)
            raise self._error(f"{method}: no answer within {deadline_s:g} s") from None
        except asyncio.CancelledError:
            self._send_cancel(request_id)
            raise
        finally:
            self._waiting.pop(request_id, None)

    async def kill(self, cause: str) -> None:
        """Ends a worker that hangs. `death`, and the error of every call under way, say why. Idempotent."""
        self._killed_for = self._killed_for or cause
        self._process.kill()
        if self._reading is not None:
            await self._reading

    async def close(self) -> None:
        """Hangs up, waits a moment, kills if needed, reaps. Idempotent."""
        if self._writer is not None:
            self._writer.close()
        process = self._process
        try:
            await asyncio.to_thread(process.wait, CLOSE_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
        finally:
            if process.poll() is None:  # we were cancelled while waiting
                process.kill()
                process.wait()
        if self._reading is not None:
            await self._reading

    def _send_cancel(self, request_id: int) -> None:
        if self._death is None and self._writer is not None and not self._writer.is_closing():
            self._writer.write(_frame({"cancel": request_id}))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Delivers answers until the socket ends; then everybody who waits learns that the worker died."""
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                self._deliver(json.loads(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        code = await asyncio.to_thread(self._process.wait)
        how = f"killed by signal {-code}" if code < 0 else f"exited with code {code}"
        how = f"killed, since it hung: {self._killed_for}" if self._killed_for else how
        self._death = self._error(f"worker process died: {how}", evidence=self._log_tail())
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._fresh_death())

    def _deliver(self, message: dict[str, Any]) -> None:
        future = self._waiting.get(message["id"])
        if future is None or future.done():
            return  # cancelled or timed out meanwhile
        if "error" in message:
            future.set_exception(self._error(message["error"], evidence=message.get("evidence", "")))
        else:
            future.set_result(message["result"])

    def _fresh_death(self) -> BoundaryError:
        assert self._death is not None
        return self._error(self._death.cause, evidence=self._death.evidence)

    def _log_tail(self) -> str:
        try:
            return self._log_path.read_bytes()[-1500:].decode(errors="replace")
        except OSError as problem:
            return f"no log: {problem}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One call as the worker sees it. `method` "cancel" carries the id of the call to stop and takes no answer."""

    id: int
    method: str
    params: dict[str, Any]


class WorkerSide:
    """The worker's end. Single-threaded: the worker polls when it has time, and exits when the conductor is gone."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        self._socket = socket.socket(fileno=int(os.environ.pop(_FD_VARIABLE)))
        self._buffer = bytearray()

    def poll(self, *, timeout_s: float | None) -> list[Request]:
        """The requests that have arrived; waits up to `timeout_s` (None: until one comes) when there is none.

        Raises EOFError when the conductor hung up.
        """
        requests = self._parse()
        while not requests:
            readable, _, _ = select.select([self._socket], [], [], timeout_s)
            if not readable:
                break
            data = self._socket.recv(1 << 20)
            if not data:
                raise EOFError("the conductor closed the connection")
            self._buffer += data
            requests = self._parse()
        return requests

    def reply(self, request_id: int, result: Any) -> None:
        self._socket.sendall(_frame({"id": request_id, "result": result}))

    def fail(self, request_id: int, error: BaseException) -> None:
        evidence = "".join(traceback.format_exception(error))[-2000:]
        cause = f"{type(error).__name__}: {error}"
        self._socket.sendall(_frame({"id": request_id, "error": cause, "evidence": evidence}))

    def _parse(self) -> list[Request]:
        requests = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            message = json.loads(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
            if "cancel" in message:
                requests.append(Request(id=message["cancel"], method="cancel", params={}))
            else:
                requests.append(Request(id=message["id"], method=message["method"], params=message["params"]))
        return requests
