"""The machine's kernel as a candidate finds it: nothing to set, nothing to read that is not its own."""

from burnish.sandbox.conformance.suite import Bench, Registry, expect

_registry = Registry()
check = _registry.check

# Opened and never written: where a setting is open, even its own value written again can change others.
_OPEN_TO_WRITE = """
import json, os, stat
opened = []
for folder, folders, names in os.walk("/proc"):
    if folder == "/proc":
        folders[:] = [name for name in folders if not name.isdigit()]
    for path in (f"{folder}/{name}" for name in names):
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode) or mode & 0o002:  # the kernel itself looks after those that everybody may open
            continue
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            opened.append(path)
        except OSError:
            pass
print(json.dumps(opened))
"""

_READ = """
import json
found = {}
for name in ("keys", "kcore", "kmsg", "timer_list", "slabinfo", "vmallocinfo", "kpagecount", "sched_debug"):
    try:
        with open(f"/proc/{name}", "rb") as file:
            content = file.read(64)
    except OSError:
        continue
    if content:
        found[name] = content.decode("latin-1")
try:
    with open("/proc/kallsyms", "rb") as file:
        if any(int(line.split()[0], 16) for line, _ in zip(file, range(1000))):
            found["kallsyms"] = "addresses"
except OSError:
    pass
print(json.dumps(found))
"""

_IOCTLS = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
numbers = {
    "FIFREEZE": 0xC0045877, "FIFREEZE_undo": 0xC0045878, "FITRIM": 0xC0185879, "FS_IOC_SETFLAGS": 0x40086602,
    "FS_IOC_FSGETXATTR": 0x801C581F, "FS_IOC_FSSETXATTR": 0x401C5820, "FS_IOC_FIEMAP": 0xC020660B,
    "FS_IOC_ENABLE_VERITY": 0x40806685, "EXT4_IOC_RESIZE_FS": 0x40086610, "BTRFS_IOC_TREE_SEARCH": 0xD0009411,
}
open("file", "w").close()
answers = {}
for path in ("file", "/usr/bin/env"):
    descriptor = os.open(path, os.O_RDONLY)
    for name, number in numbers.items():
        buffer = ctypes.create_string_buffer(8192)
        result = libc.ioctl(descriptor, ctypes.c_ulong(number), buffer)
        answers[f"{name} on {path}"] = ctypes.get_errno() if result == -1 else 0
print(json.dumps(answers))
"""
_REFUSALS = (1, 22, 25, 38, 95)  # EPERM, EINVAL, ENOTTY, ENOSYS, EOPNOTSUPP


@check("python", "isolation")
async def no_kernel_setting_can_be_written(bench: Bench) -> None:
    """Of all files in /proc that belong to no process, none can be opened for it."""
    opened = await bench.probe(_OPEN_TO_WRITE)
    expect(not opened, f"opened for writing: {opened}")


@check("python", "isolation")
async def kernel_internals_cannot_be_read(bench: Bench) -> None:
    """Neither keys of the host's user nor addresses, memory, timers and allocations of the kernel."""
    found = await bench.probe(_READ)
    expect(not found, f"readable: {found}")


@check("python", "confinement")
async def file_system_ioctls_are_refused(bench: Bench) -> None:
    """Freezing, trimming, attributes, extents and what single file systems add, on own and on system files."""
    answers = await bench.probe(_IOCTLS)
    allowed = {name: number for name, number in answers.items() if number not in _REFUSALS}
    expect(not allowed, f"not refused (errno): {allowed}")


CHECKS = _registry.all()
