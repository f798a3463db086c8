"""A container's bundle: its root, its read-only view of the host's system directories, and config.json. Stdlib only.

Built by the launcher in a mount namespace of its own, on a tmpfs that nobody else sees.
"""

import json
import os
import tarfile
from typing import Any

from burnish.sandbox.process import syscalls, template

CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_PTRACE", "CAP_SETPCAP", "CAP_SYS_ADMIN")
"""What pid 1 starts with. It gives up the last two before the first command, and commands get none."""
PLACEHOLDER = "/tmp/.keep"  # noqa: S108 (gVisor puts a file system of its own over an empty /tmp, past the disk limit)
NUM_OPEN_FILES = 1024
_STACK_BYTES = 8 << 20
_MEMORY_PER_PROCESS = 4  # what one can take between two looks at the sum of all
_INODE_BYTES, _INODES_TO_START = 4096, 1024
_BUNDLE_BYTES = 64 << 20  # the runtime's state and /etc; a safety net, not a reservation
_FOLDERS = ("proc", "dev", "sys", "home", "home/agent", "var", "run", "etc", "usr", "root")
_FILES = "files.tar"
_SHARED_FOLDERS = ("tmp", "var/tmp", "run/shm")  # writable for everybody, sticky


def build(where: str, spec: "dict[str, Any]") -> int:
    """Makes the bundle at the empty directory `where` and enters it. A descriptor of the container's root.

    Args:
        spec: "uid", "disk_bytes", "num_pids", "memory_bytes", "prefixes", "args" of pid 1, "envs".
    """
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("tmpfs", where, "tmpfs", flags, f"size={_BUNDLE_BYTES},mode=700")
    os.chdir(where)
    for name in ("rootfs", "etc", "state"):
        os.mkdir(name)
    num_inodes = spec["disk_bytes"] // _INODE_BYTES + _INODES_TO_START
    options = f"size={spec['disk_bytes']},nr_inodes={num_inodes},mode=755"
    syscalls.mount("tmpfs", "rootfs", "tmpfs", flags, options)
    real, links = template._system_directories()
    binds = [*(f"/{name}" for name in real), *spec["prefixes"]]
    _make_root(links, binds, spec["uid"])
    template._write_etc({**template._collect_etc(), **template.accounts(spec["uid"])}, "etc")
    with open("config.json", "w", encoding="utf-8") as file:
        json.dump(config(spec, binds, f"{where}/etc"), file)
    return os.open("rootfs", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _make_root(links: "dict[str, str]", binds: "list[str]", uid: int) -> None:
    for name in (*_FOLDERS, *(path.strip("/") for path in binds)):
        os.makedirs(f"rootfs/{name}", exist_ok=True)
    for name in _SHARED_FOLDERS:
        os.makedirs(f"rootfs/{name}", exist_ok=True)
        os.chmod(f"rootfs/{name}", 0o1777)
    for name, target in links.items():
        os.symlink(target, f"rootfs/{name}")
    os.close(os.open(f"rootfs{PLACEHOLDER}", os.O_CREAT | os.O_WRONLY, 0o600))
    os.chown("rootfs/home/agent", uid, uid)
    os.chown("rootfs", uid, uid)


def pack_files(folder: str) -> None:
    """The container's files as `folder`/files.tar. Nobody may change them meanwhile."""
    with tarfile.open(f"{folder}/{_FILES}", "w") as tar:
        tar.add("rootfs", arcname=".")


def unpack_files(folder: str) -> None:
    """Into the container's root, by a process that sees nothing else: links in it were made by a candidate."""
    with open(f"{folder}/{_FILES}", "rb") as file:
        pid = os.fork()
        if pid == 0:
            try:
                os.chroot("rootfs")
                os.chdir("/")
                with tarfile.open(fileobj=file) as tar:
                    tar.extractall(filter="fully_trusted", numeric_owner=True)
                os.unlink(PLACEHOLDER)
                os._exit(0)
            finally:
                os._exit(1)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError(f"{folder}/{_FILES} could not be unpacked")


def config(spec: "dict[str, Any]", binds: "list[str]", etc: str) -> "dict[str, Any]":
    """config.json. No network namespace is named, so the container is in the launcher's, which has a loopback only."""
    memory = _MEMORY_PER_PROCESS * spec["memory_bytes"]
    rlimits = {
        "RLIMIT_NOFILE": NUM_OPEN_FILES, "RLIMIT_CORE": 0, "RLIMIT_NPROC": spec["num_pids"], "RLIMIT_DATA": memory,
        "RLIMIT_STACK": _STACK_BYTES, "RLIMIT_RTPRIO": 0, "RLIMIT_NICE": 0, "RLIMIT_MSGQUEUE": 0,
    }  # fmt: skip
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": spec["args"],
            "env": [f"{name}={value}" for name, value in spec["envs"].items()],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES),
            "rlimits": [{"type": name, "hard": value, "soft": value} for name, value in rlimits.items()],
            "oomScoreAdj": 0,
        },
        "root": {"path": "rootfs"},
        "hostname": template.HOST_NAME,
        "mounts": [
            _mount("/proc", "proc", "proc", "nosuid", "noexec", "nodev", "hidepid=2"),
            _mount("/dev", "tmpfs", "tmpfs", "nosuid", "noexec", "mode=755", "size=64k"),
            *(_mount(path, "bind", path, "rbind", "ro", "nosuid", "nodev") for path in binds),
            _mount("/etc", "bind", etc, "rbind", "ro", "nosuid", "nodev"),
        ],
        "linux": {
            "namespaces": [{"type": name} for name in ("pid", "mount", "ipc", "uts")],
            "maskedPaths": ["/proc/keys"],  # the others are closed to the candidate's uid
        },
    }


def _mount(target: str, kind: str, source: str, *options: str) -> "dict[str, Any]":
    return {"destination": target, "type": kind, "source": source, "options": options}
