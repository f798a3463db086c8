"""What gVisor leaves open that Linux closes, closed. Stdlib only: this source is sent into the container."""

import contextlib
import errno
import struct

from burnish.sandbox.process import syscalls

_SOCKET = {"x86_64": 41, "aarch64": 198}
_AF_UNIX, _ICMP, _ICMPV6 = 1, 1, 58
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _FAMILY, _PROTOCOL = 0, 16, 32  # offsets of what the filter sees: the call's number, first and third argument
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM


def hide_pid_1() -> None:
    """gVisor lets everybody list pid 1's descriptors and read its maps, and has no hidepid. Takes CAP_SYS_ADMIN.

    Where it cannot be hidden it still cannot be traced, nor its memory read.
    """
    flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    with contextlib.suppress(OSError):
        syscalls.mount("tmpfs", "/proc/1", "tmpfs", flags, "mode=0")


def refuse_ping() -> None:
    """gVisor gives ICMP sockets to everybody; Linux to nobody in a new network namespace."""
    number = _SOCKET.get(syscalls.MACHINE)
    if number is None:
        return
    program = (
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 6, number),
        (_LOAD, 0, 0, _FAMILY),
        (_EQUAL, 4, 0, _AF_UNIX),
        (_LOAD, 0, 0, _PROTOCOL),
        (_EQUAL, 1, 0, _ICMP),
        (_EQUAL, 0, 1, _ICMPV6),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    )
    syscalls.install_seccomp(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
