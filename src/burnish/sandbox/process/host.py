"""The host process: a small Python that clones itself into sandboxes and reaps them. Single-threaded, stdlib only.

Started by backend.py with one socket and a JSON argument. It dies with its owner in three ways, whichever comes first:
the socket ends, the parent-death signal arrives, or somebody kills it. Its sandboxes then end by their own parent-death
signal and by the end of a pipe (the lifeline) whose writing end only the host holds.

Requests:

    {"op": "create", "box", "family", "stack", "image", "memory_bytes", "num_pids", "disk_bytes", "num_cpus", "cpu_s",
        "proxied"} + the sandbox's end of a socket
    {"op": "kill", "box"}
    {"op": "forget", "box"}   it is gone, and everything that was to be kept of it was said before
    {"op": "free", "box"}     its supervisor is late: ends what may keep it (see unstarted.py)
    {"op": "keep", "layer", "family"} + descriptor    the files of a sandbox become a layer (see layers.py)
    {"op": "work", "job", "kind", ...} + descriptor    long work on layers (see work.py)
    {"op": "cancel", "job"}
    {"op": "drop", "layer"}

Events: {"hello": {...}} once, {"refused": box, "cause"}, {"gone": box, "status"}, {"done": job, ...}.
A created sandbox answers on its own socket: {"ready": uid} + its listening socket if it is to be proxied + a descriptor
of the file system with its files, or {"failed": cause}. Sandboxes and layers of one family (forks and snapshots of each
other) share a uid, so that they own each other's files; no two families do.
"""

import contextlib
import errno
import gc
import itertools
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator

from burnish.sandbox.process import cgroups, confine, cpu, refusals, seccomp, syscalls, template, wire, work
from burnish.sandbox.process.birth import Nursery, live
from burnish.sandbox.process.jobs import Jobs
from burnish.sandbox.process.layers import Layers
from burnish.sandbox.process.limits import knows_peak
from burnish.sandbox.process.shown import ShownFiles, masked_files
from burnish.sandbox.process.uids import FIRST_UID, NUM_HOSTS, UIDS_PER_HOST, Uids, is_rootless
from burnish.sandbox.process.unstarted import end_unstarted
from burnish.sandbox.process.wire import Message

_BOX_NAMESPACES = (  # and CLONE_NEWCGROUP, once it is in its control group
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
)
_MAX_UNBORN, _DEMAND_S, _QUIET_MS = 8, 1.0, 4
_RETRY_REMOVE_MS = 5
_GIVE_UP_REMOVING_S = 2.0


class _Box:
    """A sandbox that lives or died a moment ago. No name: it was never asked for."""

    def __init__(self, name: str, family: str, folder: str) -> None:
        self.name, self.family, self.folder = name, family, folder


class _Unborn:
    """A child with its namespaces and control groups that waits for the request that makes it a sandbox."""

    def __init__(self, folder: str, sock: socket.socket, groups: "dict[str, int]") -> None:
        self.pid = -1
        self.folder, self.socket, self.groups = folder, sock, groups
        self.limits = (0, 0)  # those set on its control groups

    def close(self) -> None:
        self.socket.close()
        for descriptor in set(self.groups.values()):
            os.close(descriptor)


@contextlib.contextmanager
def _logged() -> "Iterator[None]":
    """One sandbox's trouble must not end the others: it goes to the log."""
    try:
        yield
    except OSError as error:
        print(error, file=sys.stderr, flush=True)


class Host:
    """State of the host: its sandboxes by name and by pid."""

    def __init__(
        self, owner: socket.socket, deaths: int, end: int, *, rootless: bool, groups: "cgroups.Cgroups | None"
    ) -> None:
        """`deaths` and `end` are readable when a child has ended and when we are asked to (`syscalls.listen_for`)."""
        self._owner, self._deaths, self._end = owner, deaths, end
        self._rootless, self._groups = rootless, groups
        self._unborn: deque[_Unborn] = deque()
        self._recent: deque[float] = deque(maxlen=_MAX_UNBORN - 1)  # when sandboxes were asked for
        self._numbers = itertools.count()
        self._boxes: dict[int, _Box] = {}  # by pid
        self._pids: dict[str, int] = {}
        self._ended: dict[str, str] = {}  # name -> family, until the owner has heard of it
        self._to_remove: list[tuple[_Box, int, float]] = []  # status, when to give up
        lifeline, self._lifeline_end = os.pipe()
        self._nursery = Nursery(
            rootless=rootless, groups=groups, lifeline=lifeline, deaths=deaths, program=seccomp.build_program()
        )
        self._nursery.proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        self._uids = Uids(FIRST_UID + os.getpid() % NUM_HOSTS * UIDS_PER_HOST)
        self._layers = Layers(self._uids)
        self._shown = ShownFiles()
        self._jobs = Jobs()
        self._guess = (0, 0)  # limits on memory and processes that the next sandbox may be asked to have
        self._cannot_conceive = False  # it was tried, and nobody has tried since
        self._ending = False

    def build(self, prefixes: "list[str]", images: str) -> None:
        """Enters a mount namespace of its own (and a user namespace, without privileges) and builds the template."""
        user_owns_proc = self._rootless and os.stat("/proc/version").st_uid == os.geteuid()
        self._nursery.masked = masked_files(user_owns_proc=user_owns_proc)
        if self._rootless:
            uid, gid = os.geteuid(), os.getegid()
            with refusals.explained("unshare(CLONE_NEWUSER | CLONE_NEWNS)"):
                syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
                for name, value in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                    cgroups.write_value(self._nursery.proc, f"self/{name}", value)
        else:
            with refusals.explained("unshare(CLONE_NEWNS)"):
                syscalls.unshare(syscalls.CLONE_NEWNS)
        with refusals.explained("building the read-only view of the system"):
            inside_uid = confine.INSIDE_UID if self._rootless else None
            self._nursery.binds = template.build(prefixes, images, bind_etc_for=inside_uid)
            syscalls.empty_bounding_set()
        os.close(self._nursery.proc)
        self._nursery.proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)

    def hello(self) -> Message:
        return {
            "rootless": self._rootless,
            "cgroups": self._groups.kind if self._groups else "none",
            "controllers": list(self._groups.controllers) if self._groups else [],
            "knows_peak": self._groups is not None and knows_peak(self._groups),
        }

    def serve(self) -> None:
        """Until the owner is gone; then every sandbox is killed and its folders are removed."""
        poll = select.poll()
        for source in (self._owner.fileno(), self._deaths, self._end):
            poll.register(source, select.POLLIN)
        while not self._ending:
            wants_one = self._wants_one()
            events = poll.poll(self._patience_ms(wants_one=wants_one))
            if wants_one and not events:
                self._conceive_early()
            elif self._unborn and not self._pids and not self._recent:
                self._dismiss_unborn()
            for descriptor, _ in events:
                if descriptor == self._deaths:
                    os.read(self._deaths, syscalls.SIGINFO_BYTES)
                    self._reap()
                elif descriptor == self._end:
                    self._ending = True
                else:
                    try:
                        message, fds = wire.receive(self._owner)
                        with _logged():
                            self._serve_one(message, fds)
                    except EOFError:
                        self._ending = True
            self._remove_groups()
        self._kill_everything()

    def _serve_one(self, message: Message, fds: "list[int]") -> None:
        operation = message["op"]
        try:
            if operation == "create":
                self._try_create(message["box"], message, fds[0])
            elif operation == "kill":
                if message["box"] in self._pids:  # an unknown one is gone already, and that was said
                    os.kill(self._pids[message["box"]], signal.SIGKILL)
            elif operation == "free":
                if message["box"] in self._pids:
                    end_unstarted(self._pids[message["box"]])
            elif operation == "forget":
                self._uids.give_back(self._ended.pop(message["box"]))
            elif operation == "keep":  # who is made over a layer that is not there fails, and says so
                self._layers.keep(message["layer"], message["family"], fds[0])
            elif operation == "work":
                self._start_job(message, fds)
            elif operation == "cancel":
                self._jobs.cancel(message["job"])
            elif operation == "drop":
                self._layers.drop(message["layer"])
        finally:
            for descriptor in fds:
                os.close(descriptor)

    def _try_create(self, box: str, message: Message, box_socket: int) -> None:
        try:
            self._create(box, message, box_socket)
        except OSError as error:
            cause = refusals.explain_clone(error, self._rootless)
            wire.send(self._owner, {"refused": box, "cause": cause})

    def _create(self, box: str, message: Message, box_socket: int) -> None:
        self._recent.append(time.monotonic())
        uid = self._uids.take(message["family"])
        # Files live in memory and have a limit of their own; one process more is the supervisor. What one is asked for,
        # the next may be, and gets it before.
        self._guess = limits = (message["memory_bytes"] + message["disk_bytes"], message["num_pids"] + 1)
        self._nursery.disk_bytes = message["disk_bytes"]
        try:
            child = self._unborn.popleft() if self._unborn else self._conceive()
        except OSError:
            self._uids.give_back(message["family"])
            raise
        self._boxes[child.pid] = _Box(box, message["family"], child.folder)
        self._pids[box] = child.pid
        late: dict[str, int] = {}
        try:
            if self._groups is not None:
                late = self._set_limits(child, limits, message)
            shown = self._shown.need(message["memory_bytes"], cpu.num_shown(message["num_cpus"]))
            more = {"uid": uid, "shown": shown, "late": list(late), "number": int(child.folder)}
            wire.send(child.socket, {**message, **more}, [box_socket, *late.values()])
        except (OSError, EOFError):  # it is dying; whoever waits for it hears that from _reap
            os.kill(child.pid, signal.SIGKILL)
        for descriptor in set(late.values()):
            os.close(descriptor)
        child.close()

    def _set_limits(self, child: "_Unborn", limits: "tuple[int, int]", message: Message) -> "dict[str, int]":
        """Descriptors of the control groups that this sandbox needs beyond those that it is in."""
        assert self._groups is not None
        num_cpus, counts_cpu = message["num_cpus"], message["cpu_s"] is not None
        late = self._groups.create_late(child.folder, bounds_cpu=num_cpus is not None, counts_cpu=counts_cpu)
        if limits != child.limits or num_cpus is not None:
            self._groups.limit({**child.groups, **late}, *limits, num_cpus)
        return late

    def _wants_one(self) -> bool:
        """One child waits always, and one for each sandbox that was asked for within a second."""
        now = time.monotonic()
        while self._recent and self._recent[0] < now - _DEMAND_S:
            self._recent.popleft()
        return len(self._unborn) <= len(self._recent) and bool(self._pids or self._recent) and not self._cannot_conceive

    def _patience_ms(self, *, wants_one: bool) -> "float | None":
        if wants_one:
            # With some left, after a moment: the making would compete with the first command of who was just served.
            return _QUIET_MS if 2 * len(self._unborn) > len(self._recent) else 0
        if self._to_remove:
            return _RETRY_REMOVE_MS
        return _DEMAND_S * 1000 if self._unborn and not self._pids else None

    def _dismiss_unborn(self) -> None:
        """Nobody has a sandbox, nor asked for one lately."""
        while self._unborn:
            child = self._unborn.popleft()
            self._boxes[child.pid] = _Box("", "", child.folder)
            os.kill(child.pid, signal.SIGKILL)
            child.close()

    def _conceive_early(self) -> None:
        """A failure is met again, and reported, by the next creation."""
        try:
            self._unborn.append(self._conceive())
        except OSError:
            self._cannot_conceive = True

    def _conceive(self) -> "_Unborn":
        """A child that waits to become a sandbox. Raises OSError."""
        folder = str(next(self._numbers))
        groups = {} if self._groups is None else self._groups.create(folder)
        host_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = _Unborn(folder, host_end, groups)
        try:
            if self._groups is not None:
                self._groups.limit(groups, *self._guess)
                child.limits = self._guess
            child.pid, to_join = self._clone(groups)
            if child.pid == 0:
                os.close(self._lifeline_end)
                os.close(self._end)
                for private in (self._owner, host_end, *(other.socket for other in self._unborn)):
                    private.close()
                self._jobs.close_descriptors()
                live(self._nursery, child_end, groups, to_join)
        except OSError:
            child.close()
            if self._groups is not None:
                self._groups.remove(folder)
            raise
        finally:
            child_end.close()
        self._cannot_conceive = False
        return child

    def _clone(self, groups: "dict[str, int]") -> "tuple[int, list[int]]":
        """The new process, and the control groups that it must enter by itself."""
        flags = _BOX_NAMESPACES | (syscalls.CLONE_NEWUSER if self._rootless else 0)
        if self._groups is not None and self._groups.kind == "v2":
            try:
                return syscalls.clone_into_cgroup(flags, groups["memory"]), []
            except OSError as error:
                if error.errno != errno.ENOSYS:  # some containers hide clone3
                    raise
        return syscalls.clone(flags), sorted(set(groups.values()))

    def _reap(self) -> None:
        while self._boxes or self._jobs.pids or self._unborn:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if pid in self._jobs.pids:
                self._tell_done(self._jobs.finish(pid, code))
                continue
            if pid in self._boxes:
                box = self._boxes.pop(pid)
                if box.name:
                    self._ended[box.name] = box.family
                    del self._pids[box.name]
            else:
                (child,) = (child for child in self._unborn if child.pid == pid)
                self._unborn.remove(child)
                child.close()
                box = _Box("", "", child.folder)
            self._to_remove.append((box, code, time.monotonic() + _GIVE_UP_REMOVING_S))

    def _start_job(self, message: Message, fds: "list[int]") -> None:
        try:
            job = work.prepare(self._layers, message, fds, rootless=self._rootless)
            self._jobs.start(message["job"], job, fds)
        except OSError as error:
            failed = {"done": message["job"], "cause": str(error.strerror), "is_refused": False, "result": ""}
            self._tell_done(failed)

    def _tell_done(self, message: Message) -> None:
        with contextlib.suppress(EOFError):  # the owner is gone; the loop ends by that
            wire.send(self._owner, message)

    def _remove_groups(self) -> None:
        """The owner hears that a sandbox is gone when its folders are gone too."""
        waiting, self._to_remove = self._to_remove, []
        for box, code, give_up_at in waiting:
            gone = True
            with _logged():  # what cannot be removed, the next host may
                gone = self._groups is None or self._groups.remove(box.folder)
            if not gone and time.monotonic() <= give_up_at:
                self._to_remove.append((box, code, give_up_at))
            elif box.name:
                with contextlib.suppress(EOFError):  # the owner is gone; the loop ends by that
                    wire.send(self._owner, {"gone": box.name, "status": code})

    def _kill_everything(self) -> None:
        for pid in (*self._boxes, *self._jobs.pids, *(child.pid for child in self._unborn)):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _GIVE_UP_REMOVING_S
        while (self._boxes or self._unborn or self._to_remove) and time.monotonic() < deadline:
            self._reap()
            self._remove_groups()
            time.sleep(0.001)


def main() -> None:
    """`argv[1]`: {"source": the package's parent, "socket": descriptor, "parent": pid, "prefixes": [...], "images"}."""
    settings = json.loads(sys.argv[1])
    owner = socket.socket(fileno=settings["socket"])
    owner.set_inheritable(False)
    for number in signal.valid_signals():  # what the owner was started with, by nohup for one, is not for candidates
        if signal.getsignal(number) == signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the owner, who ends us in order
    deaths, end = syscalls.listen_for(signal.SIGCHLD), syscalls.listen_for(signal.SIGTERM)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != settings["parent"]:
        return  # the owner died before the signal was armed
    gc.disable()  # nothing here makes cycles, and a collection would touch (copy) every page shared with the children
    groups = None
    try:
        refusals.check_machine()
        cgroups.reap_dead()
        groups = cgroups.detect(os.getpid())
        host = Host(owner, deaths, end, rootless=is_rootless(), groups=groups)
        host.build(settings["prefixes"], settings["images"])
        gc.collect()
        gc.freeze()
        wire.send(owner, {"hello": host.hello()})
        host.serve()
    except refusals.MissingSupportError as error:
        wire.send(owner, {"unsupported": {"cause": error.cause, "fix": error.fix}})
    finally:
        if groups is not None:
            groups.close()
