"""The host process: a small Python that clones itself into sandboxes and reaps them. Single-threaded, stdlib only.

Started by backend.py with one socket and a JSON argument. It dies with its owner in three ways, whichever comes first:
the socket ends, the parent-death signal arrives, or somebody kills it. Its sandboxes then end by their own parent-death
signal and by the end of a pipe (the lifeline) whose writing end only the host holds.

Requests:

    {"op": "create", "box", "family", "stack", "image", "memory_bytes", "num_pids", "disk_bytes", "proxied"}
        + the sandbox's end of a socket
    {"op": "kill", "box"}
    {"op": "forget", "box"}   it is gone, and everything that was to be kept of it was said before
    {"op": "free", "box"}     its supervisor is late: ends what may keep it (see unstarted.py)
    {"op": "keep", "layer", "family"} + descriptor    the files of a sandbox become a layer (see layers.py)
    {"op": "copy", "layer", "family"} + descriptor    the same, by copying them
    {"op": "drop", "layer"}

Events: {"hello": {...}} once, {"refused": box, "cause"}, {"gone": box, "status"}, {"copied": layer, "cause"}.
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

from burnish.sandbox.process import cgroups, confine, refusals, seccomp, syscalls, template, wire
from burnish.sandbox.process.birth import Nursery, live
from burnish.sandbox.process.layers import Layers
from burnish.sandbox.process.limits import Peak
from burnish.sandbox.process.uids import FIRST_UID, NUM_HOSTS, UIDS_PER_HOST, Uids
from burnish.sandbox.process.unstarted import end_unstarted
from burnish.sandbox.process.wire import Message

_NEEDED_TO_BE_PRIVILEGED = (
    syscalls.CAP_SYS_ADMIN, syscalls.CAP_SETUID, syscalls.CAP_SETGID, syscalls.CAP_CHOWN, syscalls.CAP_NET_ADMIN,
)  # fmt: skip
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

    def __init__(self, owner: socket.socket, *, rootless: bool, groups: "cgroups.Cgroups | None") -> None:
        self._owner, self._rootless, self._groups = owner, rootless, groups
        self._unborn: deque[_Unborn] = deque()
        self._recent: deque[float] = deque(maxlen=_MAX_UNBORN - 1)  # when sandboxes were asked for
        self._numbers = itertools.count()
        self._boxes: dict[int, _Box] = {}  # by pid
        self._pids: dict[str, int] = {}
        self._ended: dict[str, str] = {}  # name -> family, until the owner has heard of it
        self._to_remove: list[tuple[_Box, int, float]] = []  # status, when to give up
        lifeline, self._lifeline_end = os.pipe()
        self._nursery = Nursery(rootless=rootless, groups=groups, lifeline=lifeline, program=seccomp.build_program())
        self._nursery.proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        self._uids = Uids(FIRST_UID + os.getpid() % NUM_HOSTS * UIDS_PER_HOST)
        self._layers = Layers()
        self._copies: dict[int, str] = {}  # pid of the copying process -> layer
        self._cannot_conceive = False  # it was tried, and nobody has tried since
        self._ending = False

    def build(self, prefixes: "list[str]", images: str) -> None:
        """Enters a mount namespace of its own (and a user namespace, without privileges) and builds the template."""
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
            "knows_peak": self._knows_peak(),
        }

    def _knows_peak(self) -> bool:
        if self._groups is None or "memory" not in self._groups.controllers:
            return False
        groups = self._groups.create("probe")
        try:
            peak = Peak(groups["memory"], self._groups.limits["memory"])
            peak.begin()
            is_known = peak.is_known
            peak.close()
            return is_known
        finally:
            for descriptor in set(groups.values()):
                os.close(descriptor)
            self._groups.remove("probe")

    def serve(self) -> None:
        """Until the owner is gone; then every sandbox is killed and its folders are removed."""
        bell, ringer = socket.socketpair()
        bell.setblocking(False)
        ringer.setblocking(False)
        self._private = [bell, ringer, self._owner]
        signal.set_wakeup_fd(ringer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        poll = select.poll()
        poll.register(self._owner, select.POLLIN)
        poll.register(bell, select.POLLIN)
        while not self._ending:
            wants_one = self._wants_one()
            events = poll.poll(self._patience_ms(wants_one=wants_one))
            if wants_one and not events:
                self._conceive_early()
            elif self._unborn and not self._pids and not self._recent:
                self._dismiss_unborn()
            for descriptor, _ in events:
                if descriptor == bell.fileno():
                    bell.recv(4096)
                    self._reap()
                else:
                    try:
                        self._serve_one(*wire.receive(self._owner))
                    except EOFError:
                        self._ending = True
            self._remove_groups()
        self._kill_everything()

    def _end(self, *_: object) -> None:
        self._ending = True

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
            elif operation == "keep":
                self._uids.take(message["family"])
                with _logged():  # who is made over a layer that is not there fails, and says so
                    self._layers.keep(message["layer"], fds[0])
            elif operation == "copy":
                self._uids.take(message["family"])
                self._start_copy(message["layer"], fds[0])
            elif operation == "drop":
                self._uids.give_back(message["family"])
                with _logged():
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
        try:
            child = self._unborn.popleft() if self._unborn else self._conceive()
        except OSError:
            self._uids.give_back(message["family"])
            raise
        self._boxes[child.pid] = _Box(box, message["family"], child.folder)
        self._pids[box] = child.pid
        try:
            if self._groups is not None:
                # files live in memory and have a limit of their own; one process more is the supervisor
                memory_bytes = message["memory_bytes"] + message["disk_bytes"]
                self._groups.limit(child.groups, memory_bytes, message["num_pids"] + 1)
            wire.send(child.socket, {**message, "uid": uid}, [box_socket])
        except (OSError, EOFError):  # it is dying; whoever waits for it hears that from _reap
            os.kill(child.pid, signal.SIGKILL)
        child.close()

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
            child.pid, to_join = self._clone(groups)
            if child.pid == 0:
                os.close(self._lifeline_end)
                for private in (*self._private, host_end, *(other.socket for other in self._unborn)):
                    private.close()
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
        while self._boxes or self._copies or self._unborn:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if pid in self._copies:
                self._finish_copy(self._copies.pop(pid), code)
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

    def _start_copy(self, layer: str, tree: int) -> None:
        try:
            self._copies[self._layers.start_copy(layer, tree)] = layer
        except OSError as error:
            self._finish_copy(layer, error.errno or 255)

    def _finish_copy(self, layer: str, code: int) -> None:
        cause = "" if code == 0 else f"copying the files: {os.strerror(code) if code > 0 else 'it was killed'}"
        with contextlib.suppress(EOFError):  # the owner is gone; the loop ends by that
            wire.send(self._owner, {"copied": layer, "cause": cause})

    def _remove_groups(self) -> None:
        """The owner hears that a sandbox is gone when its folders are gone too."""
        waiting, self._to_remove = self._to_remove, []
        for box, code, give_up_at in waiting:
            gone = self._groups is None or self._groups.remove(box.folder)
            if not gone and time.monotonic() <= give_up_at:
                self._to_remove.append((box, code, give_up_at))
            elif box.name:
                with contextlib.suppress(EOFError):  # the owner is gone; the loop ends by that
                    wire.send(self._owner, {"gone": box.name, "status": code})

    def _kill_everything(self) -> None:
        for pid in (*self._boxes, *self._copies, *(child.pid for child in self._unborn)):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _GIVE_UP_REMOVING_S
        while (self._boxes or self._unborn or self._to_remove) and time.monotonic() < deadline:
            self._reap()
            self._remove_groups()
            time.sleep(0.001)


def is_rootless() -> bool:
    """Whether we lack what a privileged host needs: capabilities, and uids that we may hand out."""
    held = syscalls.effective_capabilities()
    if os.geteuid() != 0 or not all(held >> number & 1 for number in _NEEDED_TO_BE_PRIVILEGED):
        return True
    with open("/proc/self/uid_map", "rb") as uid_map:  # a container's root may be root of a few thousand uids only
        ranges = [tuple(map(int, line.split())) for line in uid_map]
    last = FIRST_UID + NUM_HOSTS * UIDS_PER_HOST - 1
    return not any(first <= FIRST_UID and last < first + length for first, _, length in ranges)


def main() -> None:
    """`argv[1]`: {"source": the package's parent, "socket": descriptor, "parent": pid, "prefixes": [...], "images"}."""
    settings = json.loads(sys.argv[1])
    owner = socket.socket(fileno=settings["socket"])
    owner.set_inheritable(False)
    for number in signal.valid_signals():  # what the owner was started with, by nohup for one, is not for candidates
        if signal.getsignal(number) == signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the owner, who ends us in order
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != settings["parent"]:
        return  # the owner died before the signal was armed
    gc.disable()  # nothing here makes cycles, and a collection would touch (copy) every page shared with the children
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # until the loop takes it over
    groups = None
    try:
        refusals.check_machine()
        cgroups.reap_dead()
        groups = cgroups.detect(os.getpid())
        host = Host(owner, rootless=is_rootless(), groups=groups)
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
