"""Isolation and confinement: what a candidate that means harm finds closed."""

import asyncio
import json
import os

from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, host_folder, tail

_registry = Registry()
check = _registry.check

_ROOT_ENTRIES = {
    "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "root", "run", "sbin", "sys",
    "tmp", "usr", "var",
}  # fmt: skip
_DEVICES = {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm", "tty", "ptmx", "pts"}

_CALLS = """
import ctypes, json, os, platform
libc = ctypes.CDLL(None, use_errno=True)
column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
calls = {
    "mount": ((165, 40), b"none", b"/tmp", b"tmpfs", 0, 0), "umount2": ((166, 39), b"/usr", 2),
    "pivot_root": ((155, 41), b"/tmp", b"/tmp"), "chroot": ((161, 51), b"/tmp"), "setns": ((308, 268), 0, 0),
    "unshare_user": ((272, 97), 0x10000000), "unshare_mount": ((272, 97), 0x20000), "unshare_net": ((272, 97), 1 << 30),
    "clone_user": ((56, 220), 0x10000011, 0, 0, 0, 0), "clone3": ((435, 435), 0, 0),
    "open_tree": ((428, 428), -100, b"/", 1), "fsopen": ((430, 430), b"tmpfs", 0),
    "ptrace": ((101, 117), 16, 1, 0, 0), "process_vm_readv": ((310, 270), 1, 0, 0, 0, 0, 0),
    "keyctl": ((250, 219), 0, -3, 0, 0, 0), "add_key": ((248, 217), b"user", b"x", b"y", 1, -3),
    "bpf": ((321, 280), 0, 0, 0), "perf_event_open": ((298, 241), 0, 0, -1, -1, 0),
    "userfaultfd": ((323, 282), 0), "userfaultfd_user": ((323, 282), 1), "io_uring_setup": ((425, 425), 1, 0),
    "kexec_load": ((246, 104), 0, 0, 0, 0), "init_module": ((175, 105), 0, 0, b""),
    "open_by_handle_at": ((304, 265), -100, 0, 0), "name_to_handle_at": ((303, 264), -100, b"/", 0, 0, 0),
    "swapon": ((167, 224), b"/tmp/x", 0), "reboot": ((169, 142), 0, 0, 0, 0), "syslog": ((103, 116), 3, 0, 0),
    "settimeofday": ((164, 170), 0, 0), "fanotify_init": ((300, 262), 0, 0), "pidfd_getfd": ((438, 438), 0, 0, 0),
}
answers = {}
for name, (numbers, *arguments) in calls.items():
    result = libc.syscall(numbers[column], *arguments)
    if name == "clone_user" and result == 0:
        os._exit(0)
    answers[name] = ctypes.get_errno() if result == -1 else 0
print(json.dumps(answers))
"""
_REFUSALS = (1, 13, 38)  # EPERM, EACCES, ENOSYS

_AGAINST_PID_1 = """
import ctypes, json, os, resource, signal
tried = {}
def attempt(name, function):
    try:
        function()
        tried[name] = "done"
    except (OSError, ValueError) as error:
        tried[name] = "refused"
attempt("read memory", lambda: open("/proc/1/mem", "rb").read(1))
attempt("read environment", lambda: open("/proc/1/environ", "rb").read())
attempt("list descriptors", lambda: os.listdir("/proc/1/fd"))
attempt("read maps", lambda: open("/proc/1/maps").read())
attempt("enter root", lambda: os.listdir("/proc/1/root/"))
attempt("change limits", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)))
attempt("change score", lambda: open("/proc/1/oom_score_adj", "w").write("1000"))
attempt("renice", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
attempt("renice user", lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19))
attempt("change scheduler", lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)))
attempt("change affinity", lambda: os.sched_setaffinity(1, {0}))
print(json.dumps(tried))
"""

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
_SERVER = """
import socket, time
s = socket.socket(socket.AF_UNIX)
s.bind("\\0here")
s.listen()
print(1, flush=True)
time.sleep(60)
"""
_CLIENT = """
import socket
socket.socket(socket.AF_UNIX).connect("\\0here")
"""


@check("python", "confinement")
async def dangerous_system_calls_are_refused(bench: Bench) -> None:
    """Mounts, namespaces, tracing, keys, bpf, perf, userfaultfd, io_uring, modules and the clock."""
    answers = await bench.probe(_CALLS)
    allowed = {name: number for name, number in answers.items() if number not in _REFUSALS}
    expect(not allowed, f"not refused (errno): {allowed}")


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


@check("python", "isolation")
async def the_supervisor_is_out_of_reach(bench: Bench) -> None:
    """Pid 1 cannot be read, limited, slowed or entered."""
    tried = await bench.probe(_AGAINST_PID_1)
    done = [name for name, outcome in tried.items() if outcome != "refused"]
    expect(not done, f"possible: {done}")
    expect((await bench.box.commands.run(["true"])).ok, "the sandbox did not answer afterwards")


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
async def kernel_settings_are_closed(bench: Bench) -> None:
    """/proc/sys, sysrq, core_pattern, cgroups and binfmt_misc open for no write, and kernel memory is not there."""
    for path in (
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches",
        "/sys/fs/cgroup/release_agent", "/sys/kernel/uevent_helper", "/proc/sys/fs/binfmt_misc/register",
    ):  # fmt: skip
        result = await bench.sh(f"true >> {path}")  # nothing is written: on a backend that lets it, the machine is real
        expect(not result.ok, f"{path} was opened for writing")
    result = await bench.sh("head -qc1 /proc/kcore /proc/kmsg /dev/mem /dev/kmsg /dev/sda /dev/vda")
    expect(result.stdout == b"", tail(result))


@check("shell", "isolation")
async def there_are_no_other_devices(bench: Bench) -> None:
    """A handful in /dev, and no new ones can be made."""
    entries = set((await bench.sh("ls -A /dev")).stdout.decode().split())
    expect(entries <= _DEVICES, f"unexpected in /dev: {sorted(entries - _DEVICES)}")
    result = await bench.sh("mknod disk b 8 0 || mknod null c 1 3")
    expect(not result.ok, "a device was made")
    result = await bench.sh("head -c4 /dev/urandom | wc -c; echo x > /dev/null")
    expect(result.ok and result.stdout.strip() == b"4", tail(result))


@check("python", "isolation")
async def there_is_no_terminal(bench: Bench) -> None:
    """No controlling terminal, and characters cannot be pushed into one."""
    source = """
import fcntl, json, os, termios
answers = []
for attempt in (lambda: os.open("/dev/tty", os.O_RDWR), lambda: fcntl.ioctl(0, termios.TIOCSTI, b"x")):
    try:
        attempt()
        answers.append("done")
    except OSError:
        answers.append("refused")
print(json.dumps(answers))
"""
    expect(await bench.probe(source) == ["refused", "refused"], "a terminal can be reached")


@check("shell", "python", "isolation")
async def a_set_uid_program_gains_nothing(bench: Bench) -> None:
    """No mount honours the bit; where mounts do not show that (gVisor), no program can gain privileges at all."""
    result = await bench.sh("cat /proc/self/mounts")
    loose = [line for line in result.stdout.decode().splitlines() if "nosuid" not in line.split()[3].split(",")]
    if b"nosuid" not in result.stdout and (await bench.probe(_STATUS))["NoNewPrivs"] == "1":
        return
    expect(bool(result.stdout) and not loose, f"mounts without nosuid: {loose}")


@check("python", "shell", "isolation")
async def siblings_do_not_meet(bench: Bench) -> None:
    """Another sandbox shares no file, process, abstract socket, queue or shared memory with this one."""
    async with await bench.backend.create(limits=LIMITS) as sibling:
        await bench.box.files.write("/tmp/mine", b"secret")  # noqa: S108
        await bench.box.files.write("/dev/shm/mine", b"secret")
        for path in ("/tmp/mine", "/dev/shm/mine"):  # noqa: S108
            expect(not await sibling.files.exists(path), f"{path} is shared")
        await bench.box.files.write("server.py", _SERVER)
        await bench.box.files.write("client.py", _CLIENT)
        await sibling.files.write("client.py", _CLIENT)
        own = await bench.sh("python3 -I server.py & sleep 0.5; python3 -I client.py && echo met")
        expect(b"met" in own.stdout, f"the probe does not work within one sandbox: {tail(own)}")
        line = "python3 -I server.py > started & while ! test -s started; do sleep 0.05; done; sleep 1"
        other = sibling.commands.run("sleep 0.5; python3 -I client.py")
        _, result = await asyncio.gather(bench.sh(line), other)
        expect(not result.ok, "an abstract socket is shared")
    result = await bench.sh("cat /tmp/mine")
    expect(result.stdout == b"secret", "the end of the sibling took a file along")


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
