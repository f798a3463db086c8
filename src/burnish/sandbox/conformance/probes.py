"""What the isolation checks try from inside, as Python source that needs nothing but an interpreter.

Direct system calls, so that a missing program or library function never looks like a wall. Each source prints one JSON
object, name -> errno; 0 says that it worked. A probe is made so that without the wall it works or fails with another
errno than a wall's; `tests/integration/test_sandbox_probes.py` runs them where nothing is walled off and says so.
"""

WALLS = {1: "EPERM", 13: "EACCES", 38: "ENOSYS"}
"""How a refused call answers."""

NO_SUCH_FAMILY = 97  # EAFNOSUPPORT
FAMILIES = (1, 2, 10)
"""Socket families that a sandbox has: unix, inet, inet6."""

_PRELUDE = """
import ctypes, json, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
answers = {}
def call(name, numbers, *arguments):
    wide = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result = libc.syscall(ctypes.c_long(numbers[column]), *wide)
    answers[name] = ctypes.get_errno() if result == -1 else 0
    return result
def attempt(name, function, *arguments):
    try:
        function(*arguments)
        answers[name] = 0
    except OSError as error:
        answers[name] = error.errno or 1
"""
_END = "\nprint(json.dumps(answers))\n"

CALLS = (
    _PRELUDE
    + """
for name, numbers, *arguments in (
    ("mount", (165, 40), b"none", b"/tmp", b"tmpfs", 0, 0), ("umount2", (166, 39), b"/usr", 2),
    ("pivot_root", (155, 41), b"/no/such", b"/no/such"), ("setns", (308, 268), -1, 0),
    ("open_tree", (428, 428), -100, b"/", 1), ("move_mount", (429, 429), -1, b"", -1, b"", 0),
    ("fsopen", (430, 430), b"tmpfs", 0), ("fsconfig", (431, 431), -1, 0, 0, 0, 0), ("fsmount", (432, 432), -1, 0, 0),
    ("fspick", (433, 433), -100, b"/", 0), ("mount_setattr", (442, 442), -100, b"/", 0, 0, 0),
    ("ptrace", (101, 117), 0x4206, 1, 0, 0),
    ("process_vm_readv", (310, 270), os.getpid(), 0, 0, 0, 0, 0),
    ("process_vm_writev", (311, 271), os.getpid(), 0, 0, 0, 0, 0), ("kcmp", (312, 272), os.getpid(), os.getpid(), 1, 0),
    ("pidfd_getfd", (438, 438), -1, 0, 0), ("process_madvise", (440, 440), -1, 0, 0, 4, 0),
    ("keyctl", (250, 219), 0, -3, 0, 0, 0), ("add_key", (248, 217), b"user", b"x", b"y", 1, -3),
    ("request_key", (249, 218), b"user", b"x", 0, 0), ("bpf", (321, 280), 0, 0, 0),
    ("perf_event_open", (298, 241), 0, 0, -1, -1, 0), ("userfaultfd", (323, 282), 0),
    ("userfaultfd_user", (323, 282), 1), ("io_uring_setup", (425, 425), 1, 0),
    ("io_uring_enter", (426, 426), -1, 0, 0, 0, 0, 0), ("io_uring_register", (427, 427), -1, 0, 0, 0),
    ("kexec_load", (246, 104), 0, 999, 0, 0), ("kexec_file_load", (320, 294), -1, -1, 0, 0, 0),
    ("init_module", (175, 105), 0, 0, b""), ("finit_module", (313, 273), -1, b"", 0),
    ("delete_module", (176, 106), b"no-such-module", 0x800),
    ("open_by_handle_at", (304, 265), -100, 0, 0), ("name_to_handle_at", (303, 264), -100, b"/", 0, 0, 0),
    ("swapon", (167, 224), b"/no/such/file", 0), ("swapoff", (168, 225), b"/no/such/file"),
    ("reboot", (169, 142), 0, 0, 0, 0), ("acct", (163, 89), b"/no/such/file"), ("syslog", (103, 116), 3, 0, 0),
    ("settimeofday", (164, 170), 0, 1), ("clock_settime", (227, 112), 999, 0), ("adjtimex", (159, 171), 0),
    ("fanotify_init", (300, 262), 999, 0), ("quotactl", (179, 60), 0, 0, 0, 0),
):
    call(name, numbers, *arguments)
for name, flag in (("user", 1 << 28), ("mount", 1 << 17), ("net", 1 << 30), ("pid", 1 << 29), ("ipc", 1 << 27),
                   ("uts", 1 << 26), ("cgroup", 1 << 25), ("time", 1 << 7)):
    pid = os.fork()
    if pid == 0:
        os._exit(ctypes.get_errno() if libc.syscall(ctypes.c_long((272, 97)[column]), ctypes.c_long(flag)) == -1 else 0)
    answers[f"unshare_{name}"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
for name, flag in (("user", 1 << 28), ("user and net", 5 << 28)):
    pid = call(f"clone_{name}", (56, 220), flag | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
call("clone3", (435, 435), 0, 0)
call("chroot", (161, 51), b"/")  # the last, because it costs the right to more of them
"""
    + _END
)
"""System calls that a sandbox has no use for. Arguments are such that nothing happens where they are let through."""

FAMILY_PROBE = (
    _PRELUDE
    + """
for family in range(1, 48):
    reached = []
    for kind in (1, 2, 3, 4, 5):
        for protocol in (0, 1, 3):
            descriptor = call("last", (41, 198), family, kind, protocol)
            reached.append(answers.pop("last"))
            if descriptor >= 0:
                os.close(descriptor)
    answers[str(family)] = 0 if 0 in reached else next((n for n in reached if n not in (97, 1, 13)), reached[0])
pair = (ctypes.c_int * 2)()
call("pair of netlink", (53, 199), 16, 3, 0, pair)
call("high bits", (41, 198), 16 | 1 << 32, 3, 0)
"""
    + _END
)
"""Every socket family, of every kind: 0 says that a socket could be made."""

TERMINAL = (
    _PRELUDE
    + """
for name, number in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("TIOCSTI with high bits", 0x5412 | 1 << 32)):
    call(name, (16, 29), 0, number, b"x")
attempt("open /dev/tty", os.open, "/dev/tty", os.O_RDWR)
attempt("open /dev/console", os.open, "/dev/console", os.O_RDWR)
"""
    + _END
)
"""Pushing characters into a terminal: refused before the kernel looks whether it is one."""

SUPERVISOR = (
    _PRELUDE
    + """
import resource, signal
for name in ("mem", "environ", "maps", "smaps", "auxv", "stack", "syscall", "pagemap", "personality", "io"):
    attempt(f"read {name}", lambda: open(f"/proc/1/{name}", "rb").read(1))
for name in ("mem", "oom_score_adj", "comm", "clear_refs", "coredump_filter", "timerslack_ns", "loginuid", "uid_map"):
    attempt(f"write {name}", lambda: os.write(os.open(f"/proc/1/{name}", os.O_WRONLY), b"0"))
for name in ("fd", "fdinfo", "root/", "cwd/", "map_files", "task/1/fd", "ns"):
    attempt(f"list {name}", os.listdir, f"/proc/1/{name}")
for name in ("fd/0", "fd/3", "exe", "root", "cwd", "ns/mnt", "ns/net"):
    attempt(f"follow {name}", os.readlink, f"/proc/1/{name}")
attempt("limits", resource.prlimit, 1, resource.RLIMIT_NOFILE, (0, 0))
attempt("read limits", resource.prlimit, 1, resource.RLIMIT_NOFILE)
attempt("renice", os.setpriority, os.PRIO_PROCESS, 1, 19)
attempt("renice user", os.setpriority, os.PRIO_USER, os.getuid(), 19)
attempt("scheduler", os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))
attempt("affinity", os.sched_setaffinity, 1, {0})
call("ioprio", (251, 30), 1, 1, 3 << 13)
call("ioprio user", (251, 30), 3, os.getuid(), 3 << 13)
call("process_vm_readv", (310, 270), 1, 0, 0, 0, 0, 0)
call("move_pages", (279, 239), 1, 0, 0, 0, 0, 0)
call("migrate_pages", (256, 238), 1, 0, 0, 0)
call("kcmp", (312, 272), 1, os.getpid(), 1, 0)
call("ptrace", (101, 117), 0x4206, 1, 0, 0)
"""
    + _END
)
"""Pid 1: what it holds, and how fast it runs."""

SETTINGS = (
    _PRELUDE
    + """
def read_something(path):
    if not os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 1):
        raise OSError("masked by what is empty")
for top in ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/scsi", "/proc/acpi", "/proc/fs", "/proc/driver",
            "/proc/sysrq-trigger", "/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/mtrr", "/proc/latency_stats",
            "/proc/timer_list", "/sys", "/dev/mem", "/dev/kmsg", "/dev/port"):
    for folder, _, names in os.walk(top) if os.path.isdir(top) else [("", [], [top])]:
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path) or top.startswith("/dev"):  # no device that masks one
                attempt(path, lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)))
for path in ("/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/dev/mem", "/dev/kmsg", "/dev/port"):
    attempt("read " + path, read_something, path)
attempt("write ns_last_pid", lambda: os.write(os.open("/proc/sys/kernel/ns_last_pid", os.O_WRONLY), b"1"))
# everybody may open that one, and nobody may write it without a capability
opened = {path: 0 for path, number in answers.items() if number == 0 and path != "/proc/sys/kernel/ns_last_pid"}
answers = {"number of files": len(opened), **dict(list(opened.items())[:50])}
"""
    + _END
)
"""Files by which the kernel is told, or asked, what is not a sandbox's business; those that could be opened."""

FOREIGN_CALL = """
import ctypes, mmap
code = bytes.fromhex("b814000000cd80c3")  # mov eax, 20 (getpid of 32-bit programs); int 0x80; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
"""
"""Asks for the pid by the door of 32-bit programs, whose calls have other numbers. x86_64."""
