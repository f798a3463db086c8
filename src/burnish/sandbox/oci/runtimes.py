"""OCI runtimes by name: where the program is, how strong its walls are, and the options that it must be given."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from burnish.errors import UserError
from burnish.sandbox.base import Level

_GVISOR, _MICROVM = ("runsc",), ("kata", "krun", "firecracker")
_SUPER_USER = 0
_FIXES = {
    "runsc": "install gVisor (Debian and Ubuntu: apt-get install runsc), or use the `process` backend",
    "runc": "install it (Debian and Ubuntu: apt-get install runc), or use the `process` backend",
    "crun": "install it (Debian and Ubuntu: apt-get install crun), or use the `process` backend",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """A runtime that is installed.

    Example: Runtime(path="/usr/bin/runsc", level="gvisor", options=(("--platform=systrap",), ("--platform=ptrace",)))
    """

    path: str
    level: Level
    options: tuple[tuple[str, ...], ...]  # global options to try, in this order, until a container starts
    hide_cgroups: bool = False  # it refuses to start where both versions of control groups are mounted

    @property
    def has_own_kernel(self) -> bool:
        """Whether the container's /proc tells of a kernel that serves nobody else."""
        return self.level in ("gvisor", "microvm")


def level_of(name: str) -> Level:
    """ "gvisor" for runsc, "microvm" for those that start a virtual machine, "process" for all others."""
    program = os.path.basename(name)  # noqa: PTH119 (a name or a path)
    if program.startswith(_GVISOR):
        return "gvisor"
    return "microvm" if program.startswith(_MICROVM) else "process"


def find_runtime(name: str) -> Runtime:
    """The runtime of this name or path. Raises UserError when it is not there or we may not use it."""
    program = Path(name).name
    path = shutil.which(name)
    if path is None:
        fix = _FIXES.get(program, "install it, or name one that is: runsc, runc, crun")
        raise UserError(f"the OCI runtime {name!r} is not installed", where="sandbox", fix=fix)
    if os.geteuid() != _SUPER_USER:
        raise UserError(
            f"the OCI runtime {name!r} is started with namespaces and a uid of our own making, which takes root",
            where="sandbox",
            fix="run as root, or use the `process` backend, which does without",
        )
    return Runtime(
        path=os.path.realpath(path),
        level=level_of(name),
        options=_options(program),
        hide_cgroups=program == "crun",
    )


def _options(program: str) -> tuple[tuple[str, ...], ...]:
    """Control groups are ours (launcher.py), so that what a killed owner leaves can be found and removed."""
    if program.startswith(_GVISOR):
        common = ("--network=none", "--ignore-cgroups", "--overlay2=none")
        return tuple((f"--platform={platform}", *common) for platform in ("systrap", "ptrace"))
    if program == "crun":
        return (("--cgroup-manager=disabled",),)
    if program == "runc":
        return (("--rootless=true",),)
    return ((),)
