"""The file system every sandbox starts from, built once by the host in a mount namespace of its own.

The host enters it and forgets the machine's root, so that a sandbox's mount namespace is a copy of a few mounts:

    /lower     the skeleton, lower layer of every sandbox's overlay: empty directories, links, /etc
    /bare      the same without the machine's programs, below an image
    /images    the image store, read-only
    /shown     files that are bound over some in /proc, read-only; the host makes them in /made (shown.py)
    /system    what is bound over it, read-only: /usr, /dev, /etc (rootless), the interpreter's prefix
    /layers    the files of earlier sandboxes, each a mount of its own: layers between skeleton and upper (layers.py)
    /upper     mount point for a sandbox's own tmpfs (bytes and inodes limited), which holds the overlay's upper layer
    /box       mount point for the overlay: the sandbox's root
    /proc      the machine's, so that the kernel lets a sandbox mount its own; no sandbox keeps it
"""

import contextlib
import os

from burnish.sandbox.process import syscalls
from burnish.sandbox.process.syscalls import MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY

HOME = "/home/agent"
HOST_NAME = "sandbox"
_BUILD_AT = "/tmp"  # noqa: S108 (exists everywhere; covered in our own mount namespace only)
_SYSTEM_DIRECTORIES = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_EMPTY_DIRECTORIES = ("proc", "home", "home/agent", "var", "run", "dev", "etc")
_SHARED_DIRECTORIES = ("tmp", "var/tmp", "run/shm")  # writable for everybody, sticky
_ETC_FROM_HOST = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone", "mime.types", "magic",
    "protocols", "services", "perl",
)  # fmt: skip
_ETC_PREFIXES = ("java-", "python3")  # language run-times whose configuration is named with a version
_ETC_FILE_BYTES = 4 << 20


def accounts(uid: int) -> "dict[str, bytes]":
    """/etc/passwd and /etc/group of a sandbox whose programs run as `uid`."""
    users = (
        "root:x:0:0:root:/root:/bin/sh",
        f"agent:x:{uid}:{uid}:agent:{HOME}:/bin/sh",
        "nobody:x:65534:65534:nobody:/nonexistent:/bin/false",
    )
    groups = ("root:x:0:", f"agent:x:{uid}:", "nogroup:x:65534:")
    return {"passwd": "\n".join([*users, ""]).encode(), "group": "\n".join([*groups, ""]).encode()}


def write_accounts(etc: str, uid: int) -> None:
    """Makes the directory `etc` with the accounts of a sandbox."""
    os.mkdir(etc)
    for name, content in accounts(uid).items():
        with open(f"{etc}/{name}", "wb") as file:
            file.write(content)


def build(prefixes: "list[str]", images: str, *, bind_etc_for: "int | None") -> "list[str]":
    """Builds the template and enters it. The caller is in a mount namespace of its own with all capabilities there.

    Returns the trees to bind in each sandbox, from /system/X to /X.

    Args:
        prefixes: directories beside the system's that programs need, such as the interpreter's install prefix.
        images: the folder of the image store; empty for none.
        bind_etc_for: None leaves /etc to the overlay, whose files belong to root; a uid means that the sandbox's own
            user would own them, so /etc is bound read-only with this account in it.
    """
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    # Where everything belongs to the candidate, it could replace a link, and cannot replace a mount.
    system, links = _system_directories(with_links=bind_etc_for is None)
    trees = {name: _read_only(f"/{name}") for name in [*system, *(path.strip("/") for path in prefixes)]}
    store = _read_only(images) if images else -1
    devices = {name: syscalls.clone_mounts(f"/dev/{name}", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC) for name in _DEVICES}
    proc = syscalls.clone_mounts("/proc", 0)
    etc = _collect_etc()
    syscalls.mount("tmpfs", _BUILD_AT, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755")
    os.chdir(_BUILD_AT)
    for name in ("lower", "bare", "images", "system", "layers", "upper", "box", "proc", "made", "shown"):
        os.mkdir(name)
    _make_skeleton("lower", links, list(trees))
    _make_skeleton("bare", {}, [])
    if images:
        syscalls.attach_mounts(store, "images")
    for name, tree in trees.items():
        os.makedirs(f"system/{name}")
        syscalls.attach_mounts(tree, f"system/{name}")
    binds = [*trees, "dev"]
    _make_devices(devices)
    _write_etc(_own_etc(), "bare/etc")
    if bind_etc_for is None:
        _write_etc(etc, "lower/etc")
    else:
        _write_etc({**etc, **accounts(bind_etc_for)}, "system/etc")
        _seal("system/etc", MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID)
        binds.append("etc")
    syscalls.attach_mounts(_read_only("made"), "shown")
    syscalls.attach_mounts(proc, "proc")
    syscalls.enter_root(_BUILD_AT)
    # shared, so that layers mounted later also appear where a sandbox's namespace was already made
    syscalls.mount("tmpfs", "/layers", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=700")
    syscalls.mount("none", "/layers", flags=syscalls.MS_SHARED)
    return binds


def _system_directories(*, with_links: bool = True) -> "tuple[list[str], dict[str, str]]":
    """Real top-level system directories, and those that are links (/bin -> usr/bin) with their targets.

    Without links, what one leads to counts as real.
    """
    real, links = [], {}
    for name in _SYSTEM_DIRECTORIES:
        if with_links and os.path.islink(f"/{name}"):
            links[name] = os.readlink(f"/{name}")
        elif os.path.isdir(f"/{name}"):
            real.append(name)
    return real, links


def _read_only(path: str) -> int:
    return syscalls.clone_mounts(path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)


def _make_skeleton(root: str, links: "dict[str, str]", mount_points: "list[str]") -> None:
    for name in (*_EMPTY_DIRECTORIES, *mount_points):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    for name in _SHARED_DIRECTORIES:
        os.makedirs(f"{root}/{name}", exist_ok=True)
        os.chmod(f"{root}/{name}", 0o1777)
    for name, target in links.items():
        os.symlink(target, f"{root}/{name}")


def _make_devices(devices: "dict[str, int]") -> None:
    os.mkdir("system/dev")
    syscalls.mount("tmpfs", "system/dev", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NOEXEC, "mode=755,size=64k")
    for name, tree in devices.items():
        os.close(os.open(f"system/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        syscalls.attach_mounts(tree, f"system/dev/{name}")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"system/dev/{name}")
    os.symlink("/proc/self/fd", "system/dev/fd")
    os.symlink("/run/shm", "system/dev/shm")  # in the overlay, so that it counts against the sandbox's disk limit
    # only the directory becomes read-only: a device needs no writable mount, and its own flags are set
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NOEXEC
    syscalls.mount("none", "system/dev", flags=flags)


def _seal(path: str, attributes: int) -> None:
    """Turns a directory into a read-only mount of itself."""
    syscalls.attach_mounts(syscalls.clone_mounts(path, MOUNT_ATTR_RDONLY | attributes), path)


def _own_etc() -> "dict[str, bytes | str]":
    """The part that is ours."""
    return {
        "hostname": f"{HOST_NAME}\n".encode(),
        "hosts": f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n".encode(),
        "nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
        "resolv.conf": b"",
    }


def _collect_etc() -> "dict[str, bytes | str]":
    """What a sandbox's /etc holds: path -> content, or the target of a link (str)."""
    found = _own_etc()
    for top in os.listdir("/etc"):
        if top not in _ETC_FROM_HOST and not top.startswith(_ETC_PREFIXES):
            continue
        path = f"/etc/{top}"
        for folder, _, names in os.walk(path) if os.path.isdir(path) else [("/etc", [], [top])]:
            for name in names:
                _collect(os.path.join(folder, name), found)
    return found


def _collect(path: str, found: "dict[str, bytes | str]") -> None:
    """Adds one host file if everybody may read it: the host may be root, the candidate must not profit from that."""
    key = os.path.relpath(path, "/etc")
    if os.path.islink(path) and os.path.dirname(key):
        found[key] = os.readlink(path)  # as in alternatives/, whose targets lie in /usr
        return
    with contextlib.suppress(OSError):  # a dangling link or an unreadable file is simply not there inside
        status = os.stat(path)
        if status.st_mode & 0o004 and status.st_size <= _ETC_FILE_BYTES:
            with open(path, "rb") as file:
                found[key] = file.read()


def _write_etc(content: "dict[str, bytes | str]", target: str) -> None:
    for key, value in content.items():
        path = os.path.join(target, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(value, str):
            os.symlink(value, path)
        else:
            with open(path, "wb") as file:
                file.write(value)
