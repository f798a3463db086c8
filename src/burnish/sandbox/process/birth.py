"""The child of the host's clone, from its first instruction to its last: confine, serve, exit."""

import contextlib
import os
import resource
import socket
import sys

from burnish.sandbox.process import cgroups, confine, cpu, refusals, syscalls, wire
from burnish.sandbox.process.limits import Counter, Meter, Peak
from burnish.sandbox.process.supervisor import Supervisor
from burnish.sandbox.process.wire import Message

# Without a control group the sum of what the processes use is sampled, and this bounds what one can take in between.
_MEMORY_PER_PROCESS = 4


class Nursery:
    """What every child takes over from the host."""

    def __init__(
        self, *, rootless: bool, groups: "cgroups.Cgroups | None", lifeline: int, deaths: int, program: bytes
    ) -> None:
        self.rootless, self.groups, self.program = rootless, groups, program
        self.lifeline, self.deaths = lifeline, deaths
        self.proc = -1  # a descriptor of the machine's /proc
        self.disk_bytes = 0  # what the next sandbox may be asked to have
        self.binds: list[str] = []
        self.masked: list[str] = []


def live(nursery: Nursery, host: socket.socket, groups: "dict[str, int]", to_join: "list[int]") -> None:
    """All of it: does what needs no request, waits for one, becomes that sandbox, serves it.

    Never returns, whatever happens: nothing of the host may run twice.

    Args:
        host: where the request comes: {"uid", "stack", "memory_bytes", ...} + the owner's socket, + control groups that
            only this sandbox has, named by "late".
        groups: descriptors of the control groups by controller.
        to_join: those of them that this process must still enter.
    """
    try:
        meter, upper, refusal = None, -1, ""
        try:
            meter, upper = _prepare(nursery, groups, to_join)
        except OSError as error:
            refusal = refusals.explain(error, "preparing the sandbox")
        with contextlib.suppress(EOFError):  # the host or the owner is gone
            message, fds = wire.receive(host)
            host.close()
            owner = socket.SocketType(fileno=fds[0])  # the class around it would double what a sandbox takes
            if meter is None:
                wire.send(owner, {"failed": refusal})
            else:
                late = dict(zip(message["late"], fds[1:], strict=True))
                _become_box(nursery, owner, meter, upper, message, late)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 (the last frame of this process: say it in the host's log, then go)
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(1)


def _prepare(nursery: Nursery, groups: "dict[str, int]", to_join: "list[int]") -> "tuple[Meter, int]":
    """Its limits, and a descriptor of the file system for its files."""
    upper = confine.settle(nursery.proc, to_join, nursery.disk_bytes, rootless=nursery.rootless)
    counters, peak, clock = {}, None, None
    if nursery.groups is not None:
        limits = nursery.groups.limits
        if "memory" in groups:
            peak = Peak(groups["memory"], limits["memory"])
        if nursery.groups.kind == "v2":  # counts the CPU in every group, whatever the controllers
            clock = cpu.GroupClock(groups["memory"], version_2=True)
        counters = {name: Counter(groups[name], limit) for name, limit in limits.items() if name in groups}
        nursery.groups.close_descriptors()
    for descriptor in set(groups.values()):
        os.close(descriptor)
    oom_score = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=nursery.proc)
    os.close(nursery.proc)
    may_be_exempt = not nursery.rootless and bool(syscalls.effective_capabilities() >> syscalls.CAP_SYS_RESOURCE & 1)
    samples_memory = "memory" not in groups
    meter = Meter(counters, peak, clock, oom_score, may_be_exempt=may_be_exempt, samples_memory=samples_memory)
    _rehearse(nursery, meter)
    return meter, upper


def _rehearse(nursery: Nursery, meter: Meter) -> None:
    """Runs the supervisor once, against nobody.

    This process shares its memory with the host until it touches it; the copying that follows costs more than what the
    supervisor does. So it happens now, when nobody waits.
    """
    owner, supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = {"op": "run", "id": 0, "argv": ["/"], "cwd": "/", "envs": {"PATH": "/"}, "timeout_s": 1.0}
    wire.send(owner, request, [owner.fileno()] * 3)
    Supervisor(supervisor, nursery.lifeline, nursery.deaths, meter).rehearse(*wire.receive(supervisor))
    owner.close()
    supervisor.close()


def _become_box(
    nursery: Nursery,
    owner: socket.SocketType,
    meter: Meter,
    upper: int,
    message: Message,
    late: "dict[str, int]",
) -> None:
    """Says "ready" when the files are there, and gives up its rights while the owner hears it; serves after that."""
    plan = confine.Plan(
        uid=confine.INSIDE_UID if nursery.rootless else message["uid"],
        rootless=nursery.rootless,
        disk_bytes=message["disk_bytes"],
        guessed_disk_bytes=nursery.disk_bytes,
        stack=message["stack"],
        image=message["image"],
        binds=nursery.binds,
        masked=nursery.masked,
        shown=message["shown"],
        program=nursery.program,
    )
    if "pids" not in meter.counters:
        resource.setrlimit(resource.RLIMIT_NPROC, (message["num_pids"] + 1, message["num_pids"] + 1))
    if meter.samples_memory:
        meter.memory_bytes = message["memory_bytes"]
        most = _MEMORY_PER_PROCESS * message["memory_bytes"]
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        _arrange_cpu(meter, message, late)
        passed = [confine.listen_for_proxy()] if message["proxied"] else []
        passed.append(upper)
        confine.build_root(plan)
        wire.send(owner, {"ready": message["uid"]}, passed)
        for descriptor in passed:
            os.close(descriptor)
        confine.give_up_rights(plan)
    except OSError as error:
        wire.send(owner, {"failed": refusals.explain(error, "preparing the sandbox")})
        return
    Supervisor(owner, nursery.lifeline, nursery.deaths, meter).serve()


def _arrange_cpu(meter: Meter, message: Message, late: "dict[str, int]") -> None:
    """Enters the groups that bound and count the CPU, where they are not the others, and finds a clock."""
    for directory in late.values():
        cgroups.enter(directory)
    if late:
        syscalls.unshare(syscalls.CLONE_NEWCGROUP)  # or their paths would be seen from outside
    if "cpuacct" in late:
        meter.clock = cpu.GroupClock(late["cpuacct"], version_2=False)
    for directory in set(late.values()):
        os.close(directory)
    if message["cpu_s"] is not None and meter.clock is None:
        meter.clock = cpu.SampledClock()
    if message["num_cpus"] is not None:
        os.sched_setaffinity(0, cpu.pick_processors(message["number"], message["num_cpus"]))
    meter.cpu = cpu.CpuTime(meter.clock, message["cpu_s"])
