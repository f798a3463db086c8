"""From a freshly cloned process to a confined supervisor: settle, build the root, enter it, give up everything.

Runs in the child of the host's `clone`, as pid 1 of the new pid namespace, before any request of the owner is read.
"""

import contextlib
import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import struct

from burnish.sandbox.process import overlay, syscalls, template
from burnish.sandbox.process.cgroups import enter, write_value

NUM_OPEN_FILES = 1024
PROXY_PORT = 3128  # on the loopback of a sandbox that has a network
_BACKLOG = 64
STACK_BYTES = 8 << 20
INSIDE_UID = 1000  # the sandbox's user when it has a user namespace of its own
_INODE_BYTES = 4096  # one inode is allowed for every so many bytes of disk limit, and a few to start with
_INODES_TO_START = 1024
# What System V gives outlives the processes that filled it, and would fill the sandbox's memory for good.
IPC_SETTINGS = (("shm_rmid_forced", "1"), ("msgmni", "32"), ("sem", "250 32000 32 128"))
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41


class Plan:
    """What the host tells its child about the sandbox to become."""

    def __init__(
        self,
        *,
        uid: int,
        rootless: bool,
        disk_bytes: int,
        guessed_disk_bytes: int,
        stack: "list[str]",
        image: str,
        binds: "list[str]",
        masked: "list[str]",
        shown: "dict[str, str]",
        program: bytes,
    ) -> None:
        self.uid = uid  # inside: INSIDE_UID when rootless, else a uid of the machine that nobody has
        self.rootless = rootless
        self.disk_bytes, self.guessed_disk_bytes = disk_bytes, guessed_disk_bytes
        self.stack = stack  # names of layers, lowest first
        self.image = image  # a root directory below /images; empty for the machine's own programs
        self.binds = binds
        self.masked = masked  # files in /proc that seem empty
        self.shown = shown  # file in /proc -> what stands in its place, in /shown
        self.program = program


def settle(proc: int, to_join: "list[int]", disk_bytes: int, *, rootless: bool) -> int:
    """What can be done before it is known whose it will be: control groups, network, name, limits, room for files.

    Raises OSError that names the step. `proc` is a descriptor of /proc, `to_join` of control groups still to enter,
    `disk_bytes` a guess. Returns a descriptor of the file system that holds the upper layer, for the owner to keep.
    """
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    for directory in to_join:
        enter(directory)
    if rootless:
        map_user(proc, inside=INSIDE_UID, outside=0)
    syscalls.unshare(syscalls.CLONE_NEWCGROUP)  # now and not at birth, so that the sandbox's own group is its root
    with contextlib.suppress(OSError):  # refused without privileges, and by a container's read-only /proc/sys
        for name, value in IPC_SETTINGS:
            write_value(proc, f"sys/kernel/{name}", value)
    # New layers still appear here, and what is unmounted here stays where it is elsewhere.
    syscalls.mount("none", "/layers", flags=syscalls.MS_REC | syscalls.MS_SLAVE)
    _bring_loopback_up()
    _set_host_name()
    _limit_resources()
    os.umask(0o022)
    if rootless:
        syscalls.empty_bounding_set()  # a privileged host did so once for all; a new user namespace starts full
    syscalls.prctl(syscalls.PR_SET_SECUREBITS, syscalls.SECUREBITS_NOTHING_FROM_ROOT)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.mount("tmpfs", "/upper", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, _size(disk_bytes))
    upper = syscalls.clone_mounts("/upper", 0)  # from now on it outlives this namespace
    os.mkdir("/upper/work")
    os.mkdir("/upper/root")
    return upper


def build_root(plan: Plan) -> None:
    """The sandbox's file system, entered. Raises OSError that names the step."""
    _mount_all(plan)
    syscalls.enter_root("/box")


def give_up_rights(plan: Plan) -> None:
    """The rest, in order. Raises OSError that names the step; nothing may be started then."""
    if not plan.rootless:
        os.setgroups([])
        os.setresgid(plan.uid, plan.uid, plan.uid)
        # The real uid is the candidate's, so that posix_spawn(resetids=True) becomes it; the effective one stays
        # root's, so that the candidate can neither trace nor re-limit this process.
        os.setresuid(plan.uid, 0, 0)
        syscalls.set_file_identity(plan.uid)
    # To see the candidate's processes that hide, and to spare this process from the out-of-memory killer; a started
    # program keeps neither, because the uid that it runs under is not root's.
    syscalls.keep_only_capabilities((syscalls.CAP_SYS_PTRACE, syscalls.CAP_SYS_RESOURCE))
    syscalls.install_seccomp(plan.program)
    # both are cleared whenever credentials change, so they come last
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)


def map_user(proc: int, *, inside: int, outside: int) -> None:
    """Maps one uid and gid of the parent user namespace into the caller's new one. `proc` is a descriptor of /proc."""
    for name, value in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {outside} 1"),
        ("gid_map", f"{inside} {outside} 1"),
    ):
        write_value(proc, f"self/{name}", value)


def _size(disk_bytes: int) -> str:
    return f"size={disk_bytes},nr_inodes={disk_bytes // _INODE_BYTES + _INODES_TO_START},mode=755"


def _mount_all(plan: Plan) -> None:
    if plan.disk_bytes != plan.guessed_disk_bytes:
        flags = syscalls.MS_REMOUNT | syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("tmpfs", "/upper", "tmpfs", flags, _size(plan.disk_bytes))
    if plan.stack:
        _look_like(f"/layers/{plan.stack[-1]}/root", "/upper/root")
    else:
        _furnish(plan)
    os.chdir("/layers")  # the names of layers must be short
    options = overlay.options(plan.stack, plan.image, rootless=plan.rootless)
    syscalls.mount("overlay", "/box", "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    for name in ["dev"] if plan.image else plan.binds:
        _require_directory(f"/box/{name}")
        syscalls.bind(f"/system/{name}", f"/box/{name}")
    _require_directory("/box/proc")
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC | syscalls.MS_RDONLY
    syscalls.mount("proc", "/box/proc", "proc", flags, "hidepid=2")
    for name in plan.masked:
        syscalls.mount("/system/dev/null", f"/box/proc/{name}", flags=syscalls.MS_BIND)
    for name, source in plan.shown.items():
        syscalls.mount(f"/shown/{source}", f"/box/proc/{name}", flags=syscalls.MS_BIND)


def _furnish(plan: Plan) -> None:
    """What a sandbox without a past needs beyond the skeleton, which belongs to root."""
    for path in ("/upper/root/home", "/upper/root/home/agent"):
        os.mkdir(path)
    if not plan.rootless:
        # Anybody may add to /, and nobody replace the links there that programs are found by (/bin, /lib64).
        os.chmod("/upper/root", 0o1777)
        os.chown("/upper/root/home/agent", plan.uid, plan.uid)
    if not plan.rootless and not plan.image:
        template.write_accounts("/upper/root/etc", plan.uid)


def _require_directory(path: str) -> None:
    """An image may have put a link there, and a mount would follow it."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, f"{path.removeprefix('/box')} of the image is no directory")


def _look_like(model: str, target: str) -> None:
    """The root directory of a merged tree is the uppermost layer's: it takes over what the layer below made of it,
    but that its owner can enter it, without which there is no sandbox."""
    status = os.stat(model)
    os.chown(target, status.st_uid, status.st_gid)
    os.chmod(target, status.st_mode & 0o7777 | 0o500)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _bring_loopback_up() -> None:
    """Programs expect to reach themselves at 127.0.0.1; nothing else is in this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP_RUNNING))


def listen_for_proxy() -> int:
    """A listening socket inside, to be served outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listener:
        listener.bind(("127.0.0.1", PROXY_PORT))
        listener.listen(_BACKLOG)
        return listener.detach()


def _set_host_name() -> None:
    socket.sethostname(template.HOST_NAME)


def _limit_resources() -> None:
    """The same for every sandbox and independent of what the owner was started with."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    num_files = NUM_OPEN_FILES if hard == resource.RLIM_INFINITY else min(NUM_OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, num_files))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES if hard == resource.RLIM_INFINITY else hard, hard))
    for name in (resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE, resource.RLIMIT_MSGQUEUE):
        resource.setrlimit(name, (0, 0))
