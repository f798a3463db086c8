"""What stands behind a sandbox on the owner's side: the launcher's process, its log, and what it says."""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from burnish.errors import UserError
from burnish.sandbox.oci.box import OciBox
from burnish.sandbox.process import cgroups
from burnish.sandbox.process.channel import Channel
from burnish.sandbox.process.environment import interpreter_prefixes
from burnish.sandbox.process.wire import Message

_LOG_BYTES = 4096


@dataclass(slots=True)
class Launched:
    """The processes and sockets behind one box."""

    box: OciBox
    process: "subprocess.Popen[bytes]"
    pidfd: int
    log: int
    uid: int  # of the candidate
    saving: asyncio.Future[str]  # what failed in a checkpoint, or ""
    control: Channel | None = None
    burying: asyncio.Task[None] | None = None

    def on_event(self, message: Message, fds: list[int]) -> None:
        """What the launcher says; see launcher.py."""
        box = self.box
        if "checkpoint" in message:
            if not message["checkpoint"]:
                box.bury("it was saved in a checkpoint")
            if not self.saving.done():
                self.saving.set_result(message["checkpoint"])
        elif "failed" in message:
            box.bury(message["failed"])
        elif "ended" in message:
            box.bury(f"the runtime ended unexpectedly: {_in_words(message['ended'])}", evidence=self.log_tail())
        else:
            self._on_up(message["up"], fds)

    def _on_up(self, up: Message, fds: list[int]) -> None:
        root, *groups = fds
        events = -1
        for controller, directory in zip(up["controllers"], groups, strict=True):
            if controller == "memory":
                limit = (cgroups.V2 if up["kind"] == "v2" else cgroups.V1)[controller]
                events = os.open(limit.events_file, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
            os.close(directory)
        self.box.watch(root, events)
        if not self.box.up.done():
            self.box.up.set_result(up)

    def log_tail(self) -> str:
        """The last words of the launcher, the runtime and the agent."""
        size = os.fstat(self.log).st_size
        return os.pread(self.log, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace")


def _in_words(status: int) -> str:
    """`status` as of os.waitstatus_to_exitcode."""
    return f"exit code {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"


def visible_python() -> str:
    """This interpreter, at the path where the container sees it. Raises UserError when it does not."""
    program = Path(sys.executable).resolve()
    if any(program.is_relative_to(prefix) for prefix in ("/usr", *interpreter_prefixes())):
        return str(program)
    raise UserError(
        f"the container would have no python3: {program} lies outside the system directories",
        where="sandbox",
        fix="run burnish with a Python installed under /usr, or use the `process` backend",
    )
