"""The host process: a small Python that clones itself into sandboxes and reaps them. Single-threaded, stdlib only.

Started by backend.py with one socket and a JSON argument. It dies with its owner in three ways, whichever comes first:
the socket ends, the parent-death signal arrives, or somebody kills it. Its sandboxes then end by their own parent-death
signal and by the end of a pipe (the lifeline) whose writing end only the host holds.

Requests: {"op": "create", "box", "memory_bytes", "num_pids", "disk_bytes", "envs"} + the sandbox's end of a socket;
{"op": "kill", "box"}. Events: {"hello": {...}} once, {"refused": box, "cause"}, {"gone": box, "status"}.
A created sandbox answers on its own socket: {"ready": uid} or {"failed": cause}.
"""

import contextlib
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque

from burnish.sandbox.process import cgroups, confine, refusals, seccomp, syscalls, template, wire
from burnish.sandbox.process.limits import Counter, Meter
from burnish.sandbox.process.supervisor import Supervisor
from burnish.sandbox.process.wire import Message

# Uids for sandboxes of a privileged host: above those that systemd hands to containers, below 2**31.
_FIRST_UID, _UIDS_PER_HOST, _NUM_HOSTS = 1_900_000_000, 4096, 50_000
_NEEDED_TO_BE_PRIVILEGED = (
    syscalls.CAP_SYS_ADMIN, syscalls.CAP_SETUID, syscalls.CAP_SETGID, syscalls.CAP_CHOWN, syscalls.CAP_NET_ADMIN,
)  # fmt: skip
_BOX_NAMESPACES = (  # and CLONE_NEWCGROUP, once it is in its control group
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
)
# Without a control group the sum of what the processes use is sampled, and this bounds what one can take in between.
_MEMORY_PER_PROCESS = 4
_RETRY_REMOVE_MS = 5
_GIVE_UP_REMOVING_S = 2.0


class Host:
    """State of the host: its sandboxes by name and by pid."""

    def __init__(self, owner: socket.socket, *, rootless: bool, groups: "cgroups.Cgroups | None") -> None:
        self._owner, self._rootless, self._groups = owner, rootless, groups
        self._boxes: dict[int, tuple[str, int]] = {}  # pid -> box, uid
        self._pids: dict[str, int] = {}
        self._to_remove: list[tuple[str, int, float]] = []  # box, status, when to give up
        self._lifeline, self._lifeline_end = os.pipe()
        self._program = seccomp.build_program()
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
        first_uid = _FIRST_UID + os.getpid() % _NUM_HOSTS * _UIDS_PER_HOST
        self._free_uids = deque(range(first_uid, first_uid + _UIDS_PER_HOST))
        self._template = template.Template([])
        self._ending = False

    def build(self, prefixes: "list[str]") -> None:
        """Enters a mount namespace of its own (and a user namespace, without privileges) and builds the template."""
        if self._rootless:
            uid, gid = os.geteuid(), os.getegid()
            with refusals.explained("unshare(CLONE_NEWUSER | CLONE_NEWNS)"):
                syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
                for name, value in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                    cgroups.write_value(self._proc, f"self/{name}", value)
        else:
            with refusals.explained("unshare(CLONE_NEWNS)"):
                syscalls.unshare(syscalls.CLONE_NEWNS)
        with refusals.explained("building the read-only view of the system"):
            inside_uid = confine.INSIDE_UID if self._rootless else None
            self._template = template.build(prefixes, bind_etc_for=inside_uid)
            syscalls.empty_bounding_set()
        os.close(self._proc)
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)

    def hello(self) -> Message:
        return {
            "rootless": self._rootless,
            "cgroups": self._groups.kind if self._groups else "none",
            "controllers": list(self._groups.controllers) if self._groups else [],
        }

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
            for descriptor, _ in poll.poll(_RETRY_REMOVE_MS if self._to_remove else None):
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
        box = message["box"]
        if message["op"] == "kill":
            if box in self._pids:
                os.kill(self._pids[box], signal.SIGKILL)
            return  # an unknown one is gone already, and that was said
        try:
            self._create(box, message, fds[0])
        except OSError as error:
            cause = refusals.explain_clone(error, self._rootless)
            wire.send(self._owner, {"refused": box, "cause": cause})
        finally:
            os.close(fds[0])

    def _create(self, box: str, message: Message, box_socket: int) -> None:
        if not self._free_uids:
            raise OSError(errno.EAGAIN, f"{_UIDS_PER_HOST} sandboxes are alive")
        groups: dict[str, int] = {}
        if self._groups is not None:
            # files live in memory and have a limit of their own; one process more is the supervisor
            memory_bytes = message["memory_bytes"] + message["disk_bytes"]
            groups = self._groups.create(box, memory_bytes, message["num_pids"] + 1)
        try:
            pid, to_join = self._clone(groups)
            if pid == 0:
                self._become_box(box_socket, groups, to_join, message)
        except OSError:
            if self._groups is not None:
                self._groups.remove(box)
            raise
        finally:
            for descriptor in set(groups.values()):
                os.close(descriptor)
        self._boxes[pid] = (box, self._free_uids.popleft())
        self._pids[box] = pid

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

    def _become_box(self, box_socket: int, groups: "dict[str, int]", to_join: "list[int]", message: Message) -> None:
        """The child's life. Never returns, whatever happens: nothing of the host may run twice."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            owner = socket.socket(fileno=box_socket)
            os.close(self._lifeline_end)
            for private in self._private:
                private.close()
            uid = confine.INSIDE_UID if self._rootless else self._free_uids[0]
            try:
                meter = self._prepare(uid, groups, to_join, message)
            except OSError as error:
                wire.send(owner, {"failed": refusals.explain(error, "preparing the sandbox")})
                os._exit(1)
            with contextlib.suppress(EOFError):  # the owner is gone already
                wire.send(owner, {"ready": uid})
                Supervisor(owner, self._lifeline, meter, message["envs"]).serve()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 (the last frame of this process: say it in the host's log, then go)
            sys.excepthook(type(error), error, error.__traceback__)
            os._exit(1)

    def _prepare(self, uid: int, groups: "dict[str, int]", to_join: "list[int]", message: Message) -> Meter:
        plan = confine.Plan(
            uid=uid,
            rootless=self._rootless,
            disk_bytes=message["disk_bytes"],
            to_join=to_join,
            binds=self._template.binds,
            program=self._program,
        )
        counters = {}
        if self._groups is not None:
            counters = {name: Counter(groups[name], self._groups.limits[name]) for name in self._groups.controllers}
            self._groups.close_descriptors()
        oom_score = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._proc)
        may_be_exempt = not self._rootless and bool(syscalls.effective_capabilities() >> syscalls.CAP_SYS_RESOURCE & 1)
        confine.confine(plan, self._proc)
        for descriptor in set(groups.values()):
            os.close(descriptor)
        if "pids" not in groups:
            resource.setrlimit(resource.RLIMIT_NPROC, (message["num_pids"] + 1, message["num_pids"] + 1))
        to_sample = None
        if "memory" not in groups:
            to_sample = message["memory_bytes"]
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_PER_PROCESS * to_sample, _MEMORY_PER_PROCESS * to_sample))
        return Meter(counters, oom_score, may_be_exempt=may_be_exempt, memory_to_sample=to_sample)

    def _reap(self) -> None:
        while self._boxes:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            box, uid = self._boxes.pop(pid)
            self._free_uids.append(uid)
            del self._pids[box]
            self._to_remove.append((box, status, time.monotonic() + _GIVE_UP_REMOVING_S))

    def _remove_groups(self) -> None:
        """The owner hears that a sandbox is gone when its folders are gone too."""
        waiting, self._to_remove = self._to_remove, []
        for box, status, give_up_at in waiting:
            gone = self._groups is None or self._groups.remove(box)
            if gone or time.monotonic() > give_up_at:
                with contextlib.suppress(EOFError):  # the owner is gone; the loop ends by that
                    wire.send(self._owner, {"gone": box, "status": os.waitstatus_to_exitcode(status)})
            else:
                self._to_remove.append((box, status, give_up_at))

    def _kill_everything(self) -> None:
        for pid in self._boxes:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _GIVE_UP_REMOVING_S
        while (self._boxes or self._to_remove) and time.monotonic() < deadline:
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
    last = _FIRST_UID + _NUM_HOSTS * _UIDS_PER_HOST - 1
    return not any(first <= _FIRST_UID and last < first + length for first, _, length in ranges)


def main() -> None:
    """`argv[1]` is {"source": path of the package's parent, "socket": descriptor, "parent": pid, "prefixes": [...]}."""
    settings = json.loads(sys.argv[1])
    owner = socket.socket(fileno=settings["socket"])
    owner.set_inheritable(False)
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
        host.build(settings["prefixes"])
        gc.collect()
        gc.freeze()
        wire.send(owner, {"hello": host.hello()})
        host.serve()
    except refusals.MissingSupportError as error:
        wire.send(owner, {"unsupported": {"cause": error.cause, "fix": error.fix}})
    finally:
        if groups is not None:
            groups.close()
