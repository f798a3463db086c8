"""Isolation and confinement: what a candidate that means harm finds closed."""

import json
import os

from burnish.sandbox.conformance.suite import Bench, Registry, expect, host_folder, tail

_registry = Registry()
check = _registry.check

_ROOT_ENTRIES = {
    "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "root", "run", "sbin", "sys",
    "tmp", "usr", "var",
}  # fmt: skip
_DEVICES = {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm", "tty", "ptmx", "pts"}

_STATUS = """
import json
import ctypes
lines = [line.partition(":") for line in open("/proc/self/status")]
status = {name: value.strip() for name, _, value in lines}
status["NoNewPrivs"] = str(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))  # asked for: gVisor's file does not say
print(json.dumps(status))
"""
_USER = """
import json, os, pwd
uid = os.getuid()
print(json.dumps([uid, os.geteuid(), os.getgroups(), pwd.getpwuid(uid)[5]]))
"""


@check("python", "confinement")
async def there_are_no_capabilities(bench: Bench) -> None:
    """All five sets are empty, no program can gain any, and a filter is on."""
    status = await bench.probe(_STATUS)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        expect(int(status.get(name, "0"), 16) == 0, f"{name} is {status.get(name)}")  # gVisor has no ambient set
    expect(status["NoNewPrivs"] == "1", "no_new_privs is off")
    expect(status["Seccomp"] == "2", "no system call filter")


@check("python", "confinement")
async def the_user_is_nobody_special(bench: Bench) -> None:
    """Not root, in one group, with a name and a home."""
    uid, effective, groups, home = await bench.probe(_USER)
    expect(uid == effective != 0, f"uid {uid}, effective {effective}")
    expect(0 not in groups, f"groups {groups}")
    expect((await bench.box.commands.run(["pwd"])).stdout.decode().strip() == home, "the home is elsewhere")


@check("shell", "isolation")
async def files_of_the_host_are_invisible(bench: Bench) -> None:
    """Neither a temporary file of ours nor anything beside the system directories."""
    with host_folder(canary=b"x") as folder:
        result = await bench.sh(f"ls -d {folder} {os.path.dirname(__file__)} 2>/dev/null; ls -A /tmp /var/tmp")  # noqa: PTH120
    expect(
        not any(line.startswith(b"/") and not line.endswith(b":") for line in result.stdout.splitlines()), tail(result)
    )
    expect(b"canary" not in result.stdout, tail(result))
    entries = set((await bench.sh("ls -A /")).stdout.decode().split())
    expect(entries <= _ROOT_ENTRIES, f"unexpected in /: {sorted(entries - _ROOT_ENTRIES)}")
    result = await bench.sh("cat /etc/shadow /etc/sudoers /etc/machine-id")
    expect(result.stdout == b"", "a private file of /etc is readable")


@check("shell", "isolation")
async def processes_of_the_host_are_invisible(bench: Bench) -> None:
    """A command sees itself and its own, by small numbers, and cannot signal us."""
    result = await bench.sh("ls /proc")
    pids = sorted(int(name) for name in result.stdout.split() if name.isdigit())
    expect(len(pids) < 8, f"{len(pids)} processes are visible")
    expect(all(pid < 1000 for pid in pids), f"pids {pids}")
    result = await bench.sh(f"kill -0 {os.getpid()}")
    expect(not result.ok or os.getpid() in pids, tail(result))


@check("shell", "isolation")
async def system_directories_are_read_only(bench: Bench) -> None:
    """Nothing can be made, replaced or removed in /usr, /etc, /dev and the like."""
    for path in ("/usr", "/usr/bin", "/usr/lib", "/etc", "/dev", "/bin", "/lib"):
        result = await bench.sh(f"touch {path}/new")
        expect(not result.ok, f"a file was made in {path}")
    for line in ("rm -f /usr/bin/env /etc/passwd; test -e /usr/bin/env -a -e /etc/passwd", "! mv /usr /tmp/usr"):
        result = await bench.sh(line)
        expect(result.ok, f"{line}: {tail(result)}")
    result = await bench.sh("echo x >> /etc/passwd || echo x > /etc/ld.so.preload")
    expect(not result.ok, "/etc was written")


@check("shell", "isolation")
async def there_are_no_other_devices(bench: Bench) -> None:
    """A handful in /dev, and no new ones can be made."""
    entries = set((await bench.sh("ls -A /dev")).stdout.decode().split())
    expect(entries <= _DEVICES, f"unexpected in /dev: {sorted(entries - _DEVICES)}")
    result = await bench.sh("mknod disk b 8 0 || mknod null c 1 3")
    expect(not result.ok, "a device was made")
    result = await bench.sh("head -c4 /dev/urandom | wc -c; echo x > /dev/null")
    expect(result.ok and result.stdout.strip() == b"4", tail(result))


@check("shell", "python", "isolation")
async def a_set_uid_program_gains_nothing(bench: Bench) -> None:
    """No mount honours the bit; where mounts do not show that (gVisor), no program can gain privileges at all."""
    result = await bench.sh("cat /proc/self/mounts")
    mounts = [line.split() for line in result.stdout.decode().splitlines()]
    # what masks a file of /proc holds no program
    loose = [mount for mount in mounts if "nosuid" not in mount[3].split(",") and not mount[1].startswith("/proc/")]
    if b"nosuid" not in result.stdout and (await bench.probe(_STATUS))["NoNewPrivs"] == "1":
        return
    expect(bool(result.stdout) and not loose, f"mounts without nosuid: {loose}")


@check("python", "isolation")
async def core_dumps_are_off(bench: Bench) -> None:
    """A crash writes no file."""
    limits = await bench.probe("import json, resource\nprint(json.dumps(resource.getrlimit(resource.RLIMIT_CORE)))")
    expect(limits == [0, 0], f"RLIMIT_CORE is {json.dumps(limits)}")


@check("shell", "isolation")
async def the_host_name_is_its_own(bench: Bench) -> None:
    """The machine's name is not told."""
    name = (await bench.sh("cat /proc/sys/kernel/hostname")).stdout.decode().strip()
    expect(name != "" and name != os.uname().nodename, f"the host name is {name!r}")


CHECKS = _registry.all()
