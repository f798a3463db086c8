"""Layers, on the host's side: file systems of earlier sandboxes that later ones are mounted over.

A sandbox's own files are a tmpfs. Its first process sends a descriptor of it to the owner, which keeps the files
alive when the sandbox has ended; to make a layer of them is to mount that descriptor under /layers, large or small.
Every sandbox is cloned with a copy of those mounts. The kernel counts who uses a layer: one that is dropped here lives
on below the sandboxes that were mounted over it, and its memory is free with the last of them.

The files are the work of candidates. Nothing here follows a link or resolves a path of theirs.
"""

import os
import stat

from burnish.sandbox.process import syscalls

_BUFFER_BYTES = 1 << 20


class Layers:
    """Those that sandboxes can be made over."""

    def keep(self, layer: str, tree: int) -> None:
        """Makes a layer of a detached file system."""
        os.mkdir(f"/layers/{layer}")
        syscalls.attach_mounts(os.dup(tree), f"/layers/{layer}")

    def drop(self, layer: str) -> None:
        """No more sandboxes over it."""
        syscalls.unmount(f"/layers/{layer}")
        os.rmdir(f"/layers/{layer}")

    def start_copy(self, layer: str, tree: int) -> int:
        """Begins to copy the files of a sandbox into a new layer; the pid of the process that does.

        It exits with 0, or with the errno of what went wrong. The layer is there, and has to be dropped, in any case.
        """
        os.mkdir(f"/layers/{layer}")
        size = os.fstatvfs(tree)
        options = f"size={size.f_blocks * size.f_frsize},nr_inodes={size.f_files},mode=755"
        syscalls.mount("tmpfs", f"/layers/{layer}", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
        pid = os.fork()
        if pid == 0:
            code = 255
            try:
                os.mkdir(f"/layers/{layer}/root")
                source = os.open("root", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=tree)
                target = os.open(f"/layers/{layer}/root", os.O_RDONLY | os.O_DIRECTORY)
                _copy_directory(source, target, {})
                code = 0
            except OSError as error:
                code = error.errno or 255
            finally:
                os._exit(code)
        return pid


def _copy_directory(source: int, target: int, seen: "dict[int, tuple[int, str]]") -> None:
    """Everything under `source`, as it is: overlay's whiteouts and attributes, hard links, holes left aside.

    `seen`: inode -> (directory of the first copy, name), for inodes with several names.
    """
    for entry in os.scandir(source):
        status = entry.stat(follow_symlinks=False)
        name = entry.name
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            if status.st_ino in seen:
                folder, first = seen[status.st_ino]
                os.link(first, name, src_dir_fd=folder, dst_dir_fd=target, follow_symlinks=False)
                continue
            seen[status.st_ino] = (os.dup(target), name)
        _copy_entry(source, target, name, status, seen)
    _copy_attributes(source, target, os.fstat(source))


def _copy_entry(
    source: int, target: int, name: str, status: os.stat_result, seen: "dict[int, tuple[int, str]]"
) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        os.chown(name, status.st_uid, status.st_gid, dir_fd=target, follow_symlinks=False)
        return
    if kind not in (stat.S_IFREG, stat.S_IFDIR):  # pipes, sockets, whiteouts
        os.mknod(name, status.st_mode, status.st_rdev, dir_fd=target)
        os.chown(name, status.st_uid, status.st_gid, dir_fd=target, follow_symlinks=False)
        return
    is_directory = kind == stat.S_IFDIR
    if is_directory:
        os.mkdir(name, 0o700, dir_fd=target)
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    here = os.open(name, flags | os.O_RDONLY | (os.O_DIRECTORY if is_directory else 0), dir_fd=source)
    there = os.open(
        name, flags | (os.O_RDONLY | os.O_DIRECTORY if is_directory else os.O_WRONLY | os.O_CREAT), 0o600, dir_fd=target
    )
    try:
        if is_directory:
            _copy_directory(here, there, seen)
        else:
            while os.sendfile(there, here, None, _BUFFER_BYTES):
                pass
            _copy_attributes(here, there, status)
    finally:
        os.close(here)
        os.close(there)


def _copy_attributes(source: int, target: int, status: os.stat_result) -> None:
    for name in os.listxattr(source):
        os.setxattr(target, name, os.getxattr(source, name))
    os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
