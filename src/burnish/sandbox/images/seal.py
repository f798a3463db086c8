"""Finishes a tree: folders get their own modes and times, and the whole gets its digest.

The digest is that of a Merkle tree: a folder's digest covers, in the order of names, each child's kind, mode, owner,
time, name and digest. So it depends on what a sandbox sees and not on what the image was made from.
"""

import hashlib
import os
import stat
from dataclasses import dataclass, field

from burnish.sandbox.images.entries import Path
from burnish.sandbox.images.streams import CHUNK_BYTES
from burnish.sandbox.images.tree import FOLDER_FLAGS, Attributes, Tree, names_in, user_xattrs

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(kw_only=True, slots=True)
class Sealed:
    """What a finished tree holds."""

    digest: bytes = b""
    size_bytes: int = 0  # of regular files, each inode once
    num_entries: int = 0
    links: dict[int, Path] = field(default_factory=dict)  # inode with several names -> the first of them


def seal(tree: Tree) -> Sealed:
    """Gives every folder its attributes and reads everything once. Nothing may be written afterwards."""
    sealed = Sealed()
    inside = _seal_folder(tree, sealed, tree.root, ())
    sealed.digest = hashlib.sha256(_about(tree, os.fstat(tree.root)) + inside).digest()
    return sealed


def _seal_folder(tree: Tree, sealed: Sealed, folder: int, real: Path) -> bytes:
    found = hashlib.sha256()
    for name in names_in(folder):
        sealed.num_entries += 1
        path = (*real, name)
        status = os.lstat(name, dir_fd=folder)
        if stat.S_ISDIR(status.st_mode):
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            try:
                content = _seal_folder(tree, sealed, inner, path)
                status = os.fstat(inner)
            finally:
                os.close(inner)
        elif status.st_nlink > 1 and status.st_ino in sealed.links:
            content = b"=" + b"/".join(sealed.links[status.st_ino])
        else:
            content = _leaf(sealed, folder, name, status)
            if status.st_nlink > 1:
                sealed.links[status.st_ino] = path
        found.update(_about(tree, status) + f"{len(name)} {len(content)} ".encode() + name + content)
    _hash_xattrs(found, folder)
    about = tree.folders.get(real, Attributes())
    if tree.keep_owner:
        os.fchown(folder, about.uid, about.gid)
    os.fchmod(folder, about.mode)
    os.utime(folder, ns=(about.mtime_ns, about.mtime_ns))
    return found.digest()


def _about(tree: Tree, status: os.stat_result) -> bytes:
    owner = (status.st_uid, status.st_gid) if tree.keep_owner else ("-", "-")
    return f"{status.st_mode:o} {owner[0]} {owner[1]} {status.st_mtime_ns} ".encode()


def _leaf(sealed: Sealed, folder: int, name: bytes, status: os.stat_result) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(name, dir_fd=folder)
    if not stat.S_ISREG(status.st_mode):
        return b""
    sealed.size_bytes += status.st_size
    descriptor = _open_any(folder, name, status)
    try:
        found = hashlib.sha256()
        while data := os.read(descriptor, CHUNK_BYTES):
            found.update(data)
        _hash_xattrs(found, descriptor)
    finally:
        os.close(descriptor)
    return found.digest()


def _open_any(folder: int, name: bytes, status: os.stat_result) -> int:
    """Opens a file of ours for reading, also one whose mode forbids it even to its owner."""
    try:
        return os.open(name, _READ_FLAGS, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o400, dir_fd=folder)  # a regular file, and nobody else writes here
        try:
            return os.open(name, _READ_FLAGS, dir_fd=folder)
        finally:
            os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=folder)


def _hash_xattrs(found: "hashlib._Hash", descriptor: int) -> None:
    for name in user_xattrs(descriptor):
        value = os.getxattr(descriptor, name)
        found.update(f"\0xattr {len(name.encode())} {len(value)} {name}".encode("utf-8", "surrogateescape") + value)
