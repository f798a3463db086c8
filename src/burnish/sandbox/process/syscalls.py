"""The few system calls that Python does not wrap, as functions that raise OSError. x86_64 and aarch64.

Used by the host and the supervisors, which have one thread; `clone` is a fork without the C library's bookkeeping and
is only safe there.
"""

import ctypes
import os
import signal
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NAMESPACES = {
    "CLONE_NEWUSER": CLONE_NEWUSER,
    "CLONE_NEWNS": CLONE_NEWNS,
    "CLONE_NEWPID": CLONE_NEWPID,
    "CLONE_NEWNET": CLONE_NEWNET,
    "CLONE_NEWIPC": CLONE_NEWIPC,
    "CLONE_NEWUTS": CLONE_NEWUTS,
    "CLONE_NEWCGROUP": CLONE_NEWCGROUP,
}

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC = 0x20, 0x1000, 0x4000
MS_PRIVATE, MS_SLAVE, MS_SHARED = 1 << 18, 1 << 19, 1 << 20
MNT_DETACH = 2

MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS = 0x01, 0x02

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_NO_NEW_PRIVS = 38
# noroot and no_cap_ambient_raise on, no_setuid_fixup and keep_caps off, all four locked; see capabilities(7)
SECUREBITS_NOTHING_FROM_ROOT = 0x01 | 0x02 | 0x08 | 0x20 | 0x40 | 0x80
SECCOMP_MODE_FILTER = 2

CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 19, 21, 24
CAP_CHOWN, CAP_SETGID, CAP_SETUID, CAP_NET_ADMIN = 0, 6, 7, 12

_SIGCHLD = 17
SIGINFO_BYTES = 128
_CLONE_INTO_CGROUP = 1 << 33
_AT_FDCWD = -100
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_CAPABILITY_VERSION_3 = 0x20080522

MACHINE = os.uname().machine
_BY_MACHINE = {"x86_64": {"clone": 56, "pivot_root": 155}, "aarch64": {"clone": 220, "pivot_root": 41}}
_NUMBERS = {
    "open_tree": 428,
    "move_mount": 429,
    "openat2": 437,
    "mount_setattr": 442,
    "clone3": 435,
    **_BY_MACHINE.get(MACHINE, {}),
}

_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def supported_machine() -> bool:
    """Whether the tables of system call numbers know this processor."""
    return MACHINE in _BY_MACHINE


def _check(result: int, what: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(name: str, *args: "int | bytes | None") -> int:
    wide = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result: int = _libc.syscall(ctypes.c_long(_NUMBERS[name]), *wide)
    return _check(result, name)


def clone(flags: int) -> int:
    """A fork into new namespaces. Returns 0 in the child, which is pid 1 of its new pid namespace if one was asked."""
    return _syscall("clone", flags | _SIGCHLD, 0, 0, 0, 0)


def clone_into_cgroup(flags: int, cgroup: int) -> int:
    """`clone` whose child begins in a control group of version 2, given by a descriptor of its folder.

    Moving a process there afterwards may wait for a grace period of the kernel, which is tens of milliseconds.
    """
    arguments = struct.pack("=11Q", flags | _CLONE_INTO_CGROUP, 0, 0, 0, _SIGCHLD, 0, 0, 0, 0, 0, cgroup)
    return _syscall("clone3", arguments, len(arguments))


def listen_for(number: int) -> int:
    """Blocks a signal, so that it interrupts nothing; a descriptor that is readable when the reading process has one.

    Reading it takes the signal away, SIGINFO_BYTES at a time. Children may share the descriptor.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    mask = ctypes.create_string_buffer(128)
    _check(_libc.sigemptyset(mask), "sigemptyset")
    _check(_libc.sigaddset(mask, ctypes.c_int(number)), "sigaddset")
    flags = os.O_CLOEXEC | os.O_NONBLOCK
    return _check(_libc.signalfd(ctypes.c_int(-1), mask, ctypes.c_int(flags)), "signalfd")


def unshare(flags: int) -> None:
    """Moves this process into new namespaces (CLONE_NEW*)."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2). The OSError names what was mounted where."""
    result = _libc.mount(
        source.encode(), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    )
    _check(result, f"mount {kind or source} on {target}")


def bind(source: str, target: str) -> None:
    """Binds a tree of mounts; read-only and the like stay as they are in the source."""
    mount(source, target, flags=MS_BIND | MS_REC)


def clone_mounts(path: str, attributes: int) -> int:
    """A detached copy of the tree of mounts at `path` with MOUNT_ATTR_* added to all of them; a descriptor."""
    tree = _syscall("open_tree", _AT_FDCWD, os.fsencode(path), _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE)
    if not attributes:
        return tree
    what = struct.pack("=QQQQ", attributes, 0, 0, 0)
    _syscall("mount_setattr", tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, what, len(what))
    return tree


def attach_mounts(tree: int, target: str) -> None:
    """Attaches what `clone_mounts` made, and closes the descriptor."""
    try:
        _syscall("move_mount", tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def unmount(path: str) -> None:
    """Takes a mount out of this namespace; whoever still uses it keeps it."""
    _check(_libc.umount2(os.fsencode(path), ctypes.c_int(MNT_DETACH)), f"umount {path}")


def enter_root(path: str) -> None:
    """Makes the mount at `path` the root and lets go of everything outside it."""
    os.chdir(path)
    _syscall("pivot_root", b".", b".")  # the old root now lies on top of the new one
    _check(_libc.umount2(b".", ctypes.c_int(MNT_DETACH)), "umount the old root")
    os.chdir("/")


def open_inside(directory: int, path: str, flags: int, mode: int = 0, *, resolve: int) -> int:
    """openat2: an open that refuses what `resolve` (RESOLVE_*) names on the way, whoever swaps links meanwhile."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, mode, resolve)
    return _syscall("openat2", directory, os.fsencode(path), how, len(how))


def prctl(option: int, value: int = 0, argument: "int | ctypes.Array[ctypes.c_char] | bytes" = 0) -> None:
    """prctl(2) with up to two arguments; a buffer is passed by its address."""
    third = ctypes.c_ulong(argument) if isinstance(argument, int) else argument
    _check(
        _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), third, ctypes.c_ulong(0), ctypes.c_ulong(0)),
        f"prctl {option}",
    )


def install_seccomp(program: bytes) -> None:
    """Confines this process and all it will start with a classic BPF program (see seccomp.py)."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header)


def empty_bounding_set() -> None:
    """From now on no program that is started can gain a capability. What this process holds, it keeps."""
    for number in range(64):
        try:
            prctl(PR_CAPBSET_DROP, number)
        except OSError:  # past the last capability that this kernel knows
            return


def keep_only_capabilities(keep: "tuple[int, ...]") -> None:
    """Reduces effective and permitted to what of `keep` is there; nothing is inheritable."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    held = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, held), "capget")
    _, permitted_low, _, _, permitted_high, _ = struct.unpack("=6I", held.raw)
    mask = sum(1 << number for number in keep) & (permitted_high << 32 | permitted_low)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    _check(_libc.capset(header, struct.pack("=6I", low, low, 0, high, high, 0)), "capset")


def set_file_identity(uid: int) -> None:
    """setfsuid: files are from now on opened and made with the rights of `uid`. The call itself cannot report."""
    _libc.setfsuid(ctypes.c_uint(uid))


def effective_capabilities() -> int:
    """The effective set of this process as a bit mask."""
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"CapEff:"):
                return int(line.split()[1], 16)
    return 0
