"""Hosts that outlived their owner. The owner's death ends a host, unless somebody had stopped it with a signal."""

import contextlib
import json
import os
import signal
import time

from burnish.sandbox.process.cgroups import start_time

_MARK = "burnish.sandbox.process.host"
_POLL_S = 0.02


def end_orphans(patience_s: float = 3.0) -> int:
    """Ends the hosts of this user that are not their owner's children any more; how many.

    Those that end by themselves within `patience_s` are not counted. Judged by (pid, start time).
    """
    orphans = {(pid, start_time(pid)) for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_orphan(pid)}
    deadline = time.monotonic() + patience_s
    while left := [pid for pid, started in orphans if started is not None and start_time(pid) == started]:
        if time.monotonic() > deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # its sandboxes die by their own parent-death signal
            return len(left)
        time.sleep(_POLL_S)
    return 0


def _is_orphan(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read().decode(errors="replace").split("\0")
        if len(arguments) < 2 or not any(_MARK in argument for argument in arguments):
            return False
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        settings = json.loads(arguments[-2])
        is_ours = int(status["Uid"].split()[1]) == os.geteuid()
        is_host = len(status["NSpid"].split()) == 1  # its sandboxes' first processes have the same command line
        return is_ours and is_host and int(status["PPid"]) != settings["parent"]
    except (OSError, ValueError, KeyError, TypeError):  # it is gone, or none of ours
        return False
