"""An owner in the register: its record, kept up with its sandboxes, and its control socket."""

import asyncio
import contextlib

from burnish.errors import UserError
from burnish.observe.emit import emit
from burnish.sandbox.fleet import records
from burnish.sandbox.fleet.control import ControlServer, Served, describe

_WRITE_AFTER_S = 0.05  # hundreds of changes a second make a few writes


class Listing:
    """From `start` to `close`. It serves people: when it fails the work goes on, and an event says so."""

    def __init__(self, fleet: Served) -> None:
        self._fleet = fleet
        self._owner = records.OwnerName.here()
        self._stack = contextlib.AsyncExitStack()
        self._folder: int | None = None
        self._starting = asyncio.Lock()
        self._has_started = False
        self._writing: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Once, on the owner's loop; later calls do nothing."""
        async with self._starting:
            if self._has_started:
                return
            try:
                folder = self._stack.enter_context(records.opened(records.registry_dir(), make=True))
                records.reap(folder)
                self._stack.callback(records.remove, folder, self._owner)
                records.write(folder, self._owner, [])
                server = ControlServer(folder, f"{self._owner}.sock", self._fleet)
                await server.start()
                self._stack.push_async_callback(server.close)
                self._folder = folder
            except (OSError, RuntimeError, UserError) as error:
                await self._stack.aclose()
                emit("sandbox.unlisted", cause=str(error))
            except BaseException:  # cancelled: the next creation lists
                await self._stack.aclose()
                raise
            self._has_started = True

    def changed(self) -> None:
        """Sandboxes came or went: the record follows in a moment."""
        if self._folder is not None and self._writing is None:
            self._writing = asyncio.get_running_loop().call_later(_WRITE_AFTER_S, self._write)

    async def close(self) -> None:
        """Idempotent."""
        self._has_started = True
        self._folder = None
        if self._writing is not None:
            self._writing.cancel()
        await self._stack.aclose()

    def _write(self) -> None:
        self._writing = None
        if self._folder is None:
            return
        try:
            records.write(self._folder, self._owner, [describe(box) for box in self._fleet.boxes])
        except OSError as error:  # a full disk; the socket still tells
            self._folder = None
            emit("sandbox.unlisted", cause=str(error))
