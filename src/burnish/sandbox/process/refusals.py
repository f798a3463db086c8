"""When the machine says no: which feature it refused, why as far as it can be seen, and what to do about it."""

import contextlib
import errno
import os
from collections.abc import Iterator

from burnish.sandbox.process import syscalls

_OLDEST_KERNEL = (5, 12)  # mount_setattr


class MissingSupportError(Exception):
    """The machine cannot host sandboxes of this kind: what is missing, and the fix."""

    def __init__(self, cause: str, fix: str) -> None:
        self.cause, self.fix = cause, fix
        super().__init__(f"{cause} ({fix})")


def check_machine() -> None:
    """Raises MissingSupportError for a processor or a kernel that the backend does not know."""
    if not syscalls.supported_machine():
        raise MissingSupportError(f"no seccomp table for {syscalls.MACHINE}", "use an x86_64 or aarch64 machine")
    release = os.uname().release
    version = tuple(int("".join(filter(str.isdigit, part)) or 0) for part in release.split(".")[:2])
    if version < _OLDEST_KERNEL:
        raise MissingSupportError(f"Linux {release} is too old", "use Linux 5.12 or later")


@contextlib.contextmanager
def explained(step: str) -> Iterator[None]:
    """Turns the OSError of a step of the host's own set-up into a MissingSupportError."""
    try:
        yield
    except OSError as error:
        raise MissingSupportError(f"{step}: {error.strerror}", _fix_for(error)) from error


def explain(error: OSError, step: str) -> str:
    """The step, what the kernel said to it, and what may help."""
    return f"{step}: {error.strerror}; {_fix_for(error)}"


def explain_clone(error: OSError, rootless: bool) -> str:
    """Why a sandbox could not be cloned: the first namespace that is refused by itself, when it is one of them."""
    if error.errno in (errno.EPERM, errno.ENOSPC, errno.EINVAL, errno.ENOSYS):
        for name, flag in syscalls.NAMESPACES.items():
            if (flag != syscalls.CLONE_NEWUSER or rootless) and not _allowed(flag):
                return f"{name} is refused: {error.strerror}; {_fix_for(error)}"
    return explain(error, "clone")


def _allowed(flag: int) -> bool:
    """Whether a child may have this one namespace."""
    pid = os.fork()
    if pid == 0:
        try:
            syscalls.unshare(flag)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _sysctl(name: str) -> "str | None":
    try:
        with open(f"/proc/sys/{name}", "rb") as file:
            return file.read().strip().decode()
    except OSError:  # this kernel does not have it
        return None


def _fix_for(error: OSError) -> str:
    if _sysctl("user/max_user_namespaces") == "0":
        return "user namespaces are off: sysctl -w user.max_user_namespaces=10000, or run as root"
    if _sysctl("kernel/unprivileged_userns_clone") == "0":
        return "user namespaces are for root only: sysctl -w kernel.unprivileged_userns_clone=1, or run as root"
    if _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        return (
            "AppArmor takes the rights away in user namespaces: "
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run as root"
        )
    if error.errno == errno.ENOSPC:
        return "a limit under /proc/sys/user is reached: raise max_*_namespaces there"
    if error.errno in (errno.EPERM, errno.EACCES):
        return (
            "a container withholds it: start it with --security-opt seccomp=unconfined --security-opt "
            "systempaths=unconfined --security-opt apparmor=unconfined, or --privileged"
        )
    return f"errno {errno.errorcode.get(error.errno or 0, error.errno)}"
