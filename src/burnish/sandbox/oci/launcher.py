"""One small process per container: makes namespaces and a bundle, becomes the runtime's parent, cleans up. Stdlib only.

Started by backend.py with one socket and a JSON argument; the container's stdin and stdout are this process's own. It
ends with its owner in three ways, whichever comes first: the socket ends, the parent-death signal arrives, or somebody
kills it. The runtime is pid 1 of a pid namespace and has a parent-death signal of its own, so it ends in every case,
and the kernel then ends all that is in the namespace.

Events on the socket: {"up": {"controllers": [...], "kind": ...}} + the container's root and its control groups, or
{"failed": cause}; then {"ended": status}. It may be asked {"checkpoint": folder} and answers
{"checkpoint": what failed}.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any, NoReturn

from burnish.sandbox.oci import bundle
from burnish.sandbox.process import cgroups, syscalls, wire

_NAMESPACES = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
)
_BUILD_AT = ("/mnt", "/media", "/srv", "/tmp")  # noqa: S108 (one of them exists everywhere; covered in our namespace only)
_CGROUPS = "/sys/fs/cgroup"
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41
_GIVE_UP_REMOVING_S = 2.0
_BOX = "box"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> None:
    """`argv[1]` is {"socket", "parent", "runtime", "options", "hide_cgroups", "group_memory_bytes", "group_pids",
    "restore": folder or ""} and what bundle.build wants."""
    settings = json.loads(sys.argv[1])
    owner = socket.socket(fileno=settings["socket"])
    owner.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is for the owner, who ends us in order
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != settings["parent"]:
        return  # the owner died before the signal was armed
    cgroups.reap_dead()
    groups = cgroups.detect(os.getpid())
    try:
        _live(settings, owner, groups)
    finally:
        if groups is not None:
            deadline = time.monotonic() + _GIVE_UP_REMOVING_S
            while not groups.remove(_BOX) and time.monotonic() < deadline:
                time.sleep(0.005)
            groups.close()


def _live(settings: "dict[str, Any]", owner: socket.socket, groups: "cgroups.Cgroups | None") -> None:
    descriptors: dict[str, int] = {}
    if groups is not None:
        descriptors = groups.create(_BOX)
        groups.limit(descriptors, settings["group_memory_bytes"], settings["group_pids"])
    pid = syscalls.clone(_NAMESPACES)
    if pid == 0:
        _be_init(settings, owner, groups, descriptors)
    for number in (0, 1):  # the container's, not ours: its agent must see the end of them
        os.close(number)
    poll = select.poll()
    poll.register(owner, 0)  # its end only: what it asks is for the child
    poll.register(os.pidfd_open(pid), select.POLLIN)
    status = 0
    try:
        poll.poll()
    finally:
        os.kill(pid, signal.SIGKILL)  # a zombie takes it too
        _, status = os.waitpid(pid, 0)
    with contextlib.suppress(EOFError):  # the owner asked for it, or is gone
        wire.send(owner, {"ended": os.waitstatus_to_exitcode(status)})


def _be_init(
    settings: "dict[str, Any]", owner: socket.socket, groups: "cgroups.Cgroups | None", descriptors: "dict[str, int]"
) -> NoReturn:
    """The child's life: pid 1 of the new pid namespace. Never returns: nothing of the launcher may run twice."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        for descriptor in set(descriptors.values()):
            cgroups.write_value(descriptor, "cgroup.procs", "0")
        syscalls.unshare(syscalls.CLONE_NEWCGROUP)  # now, so that the container's own group is its root
        syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
        syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
        _shield_cgroups(hide=settings["hide_cgroups"])
        _bring_loopback_up()
        where = _build_at([settings["runtime"], *settings["prefixes"]])
        root = bundle.build(where, settings)
        if settings["restore"]:
            bundle.unpack_files(settings["restore"])
        up = {"controllers": list(descriptors), "kind": groups.kind if groups else "none"}
        wire.send(owner, {"up": up}, [root, *descriptors.values()])
        for descriptor in {root, *descriptors.values()}:
            os.close(descriptor)
        verb = ["restore", "--image-path", settings["restore"]] if settings["restore"] else ["run"]
        runtime = _start_runtime(settings, *verb)
        for number in (0, 1):  # the container's, not ours: its agent must see the end of them
            os.close(number)
        os._exit(_serve(settings, owner, runtime))
    except OSError as error:
        with contextlib.suppress(EOFError):  # the owner is gone already
            wire.send(owner, {"failed": f"preparing the container: {error}"})
    except BaseException as error:  # noqa: BLE001 (the last frame of this process: say it in the log, then go)
        sys.excepthook(type(error), error, error.__traceback__)
    os._exit(1)


def _start_runtime(settings: "dict[str, Any]", *verb: str) -> int:
    """Another process of the runtime, in the bundle; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            argv = [settings["runtime"], "--root", os.path.abspath("state"), *settings["options"], *verb, _BOX]
            os.execve(settings["runtime"], argv, {"PATH": _PATH})
        finally:
            os._exit(1)
    return pid


def _serve(settings: "dict[str, Any]", owner: socket.socket, runtime: int) -> int:
    """Until the runtime ends, or the owner is gone. The exit code to end with, as shells count them."""
    poll = select.poll()
    poll.register(owner, select.POLLIN)
    poll.register(os.pidfd_open(runtime), select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if owner.fileno() not in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(runtime, 0)[1])
            return code if code >= 0 else 128 - code
        try:
            message, _ = wire.receive(owner)
        except EOFError:
            return 0
        wire.send(owner, {"checkpoint": _checkpoint(settings, message["checkpoint"])})


def _checkpoint(settings: "dict[str, Any]", folder: str) -> str:
    """Saves memory, which ends the container, and then the files, which nobody changes any more. "" or what failed."""
    pid = _start_runtime(settings, "checkpoint", "--image-path", folder)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        return f"the runtime's checkpoint ended with {status}"
    try:
        bundle.pack_files(folder)
    except OSError as error:
        return f"saving the files: {error}"
    return ""


def _build_at(needed: "list[str]") -> str:
    """A directory to cover that holds nothing of what the runtime is about to use."""
    for folder in _BUILD_AT:
        if os.path.isdir(folder) and not any(path.startswith(f"{folder}/") for path in needed):
            return folder
    raise FileNotFoundError(f"none of {', '.join(_BUILD_AT)} can hold the bundle")


def _shield_cgroups(*, hide: bool) -> None:
    """A runtime would make control groups of its own beside ours, and leave them behind when it is killed."""
    if not os.path.isdir(_CGROUPS):
        return
    if hide:
        syscalls.mount("tmpfs", _CGROUPS, "tmpfs", syscalls.MS_RDONLY)
    else:
        syscalls.attach_mounts(syscalls.clone_mounts(_CGROUPS, syscalls.MOUNT_ATTR_RDONLY), _CGROUPS)


def _bring_loopback_up() -> None:
    """Programs expect to reach themselves at 127.0.0.1; nothing else is in this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP_RUNNING))
