"""The child of the host's clone, from its first instruction to its last: confine, serve, exit."""

import contextlib
import os
import resource
import signal
import socket
import sys

from burnish.sandbox.process import cgroups, confine, refusals, syscalls, wire
from burnish.sandbox.process.limits import Counter, Meter
from burnish.sandbox.process.supervisor import Supervisor
from burnish.sandbox.process.wire import Message

# Without a control group the sum of what the processes use is sampled, and this bounds what one can take in between.
_MEMORY_PER_PROCESS = 4


class Nursery:
    """What every child takes over from the host."""

    def __init__(self, *, rootless: bool, groups: "cgroups.Cgroups | None", lifeline: int, program: bytes) -> None:
        self.rootless, self.groups, self.lifeline, self.program = rootless, groups, lifeline, program
        self.proc = -1  # a descriptor of the machine's /proc
        self.binds: list[str] = []


def become_box(
    nursery: Nursery, owner: socket.socket, uid: int, groups: "dict[str, int]", to_join: "list[int]", message: Message
) -> None:
    """Never returns, whatever happens: nothing of the host may run twice.

    Args:
        groups: descriptors of the control groups by controller.
        to_join: those of them that this process must still enter.
        message: the owner's request.
    """
    try:
        try:
            meter, upper = _prepare(nursery, uid, groups, to_join, message)
        except OSError as error:
            wire.send(owner, {"failed": refusals.explain(error, "preparing the sandbox")})
            os._exit(1)
        with contextlib.suppress(EOFError):  # the owner is gone already
            wire.send(owner, {"ready": uid}, [upper])
            os.close(upper)
            Supervisor(owner, nursery.lifeline, meter).serve()
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 (the last frame of this process: say it in the host's log, then go)
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(1)


def _prepare(
    nursery: Nursery, uid: int, groups: "dict[str, int]", to_join: "list[int]", message: Message
) -> "tuple[Meter, int]":
    """The meter, and a descriptor of the file system that holds the sandbox's own files."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    plan = confine.Plan(
        uid=confine.INSIDE_UID if nursery.rootless else uid,
        rootless=nursery.rootless,
        disk_bytes=message["disk_bytes"],
        stack=message["stack"],
        to_join=to_join,
        binds=nursery.binds,
        program=nursery.program,
    )
    counters = {}
    if nursery.groups is not None:
        limits = nursery.groups.limits
        counters = {name: Counter(groups[name], limits[name]) for name in nursery.groups.controllers}
        nursery.groups.close_descriptors()
    oom_score = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=nursery.proc)
    may_be_exempt = not nursery.rootless and bool(syscalls.effective_capabilities() >> syscalls.CAP_SYS_RESOURCE & 1)
    upper = confine.confine(plan, nursery.proc)
    for descriptor in set(groups.values()):
        os.close(descriptor)
    if "pids" not in groups:
        resource.setrlimit(resource.RLIMIT_NPROC, (message["num_pids"] + 1, message["num_pids"] + 1))
    to_sample = None
    if "memory" not in groups:
        to_sample = message["memory_bytes"]
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_PER_PROCESS * to_sample, _MEMORY_PER_PROCESS * to_sample))
    return Meter(counters, oom_score, may_be_exempt=may_be_exempt, memory_to_sample=to_sample), upper
