"""Layers, on the host's side: file systems of earlier sandboxes that later ones are mounted over.

A sandbox's own files are a tmpfs. Its first process sends a descriptor of it to the owner, which keeps the files
alive when the sandbox has ended; to make a layer of them is to mount that descriptor under /layers, large or small.
Every sandbox is cloned with a copy of those mounts. The kernel counts who uses a layer: one that is dropped here lives
on below the sandboxes that were mounted over it, and its memory is free with the last of them.

The files are the work of candidates. Nothing here follows a link or resolves a path of theirs.
"""

import contextlib
import os

from burnish.sandbox.process import syscalls, trees
from burnish.sandbox.process.uids import Uids


class Layers:
    """Those that sandboxes can be made over. Each counts as a member of its family."""

    def __init__(self, uids: Uids) -> None:
        self._uids = uids
        self._families: dict[str, str] = {}  # of every layer that is there

    def keep(self, layer: str, family: str, tree: int) -> None:
        """Makes a layer of a detached file system. Raises OSError; it is not there then."""
        self._begin(layer, family)
        try:
            syscalls.attach_mounts(os.dup(tree), f"/layers/{layer}")
        except OSError:
            self._end(layer)
            raise

    def make(self, layer: str, family: str, size_bytes: int, num_inodes: int) -> int:
        """An empty layer; its family's uid. Raises OSError; it is not there then."""
        uid = self._begin(layer, family)
        options = f"size={size_bytes},nr_inodes={num_inodes},mode=755"
        try:
            syscalls.mount("tmpfs", f"/layers/{layer}", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
        except OSError:
            self._end(layer)
            raise
        return uid

    def drop(self, layer: str) -> None:
        """No more sandboxes over it. One that is not there was refused. Raises OSError; it counts no more then."""
        if layer in self._families:
            try:
                syscalls.unmount(f"/layers/{layer}")
            finally:
                self._end(layer)

    def _begin(self, layer: str, family: str) -> int:
        uid = self._uids.take(family)
        try:
            os.mkdir(f"/layers/{layer}")
        except OSError:
            self._uids.give_back(family)
            raise
        self._families[layer] = family
        return uid

    def _end(self, layer: str) -> None:
        self._uids.give_back(self._families.pop(layer))
        with contextlib.suppress(OSError):  # an empty folder harms nobody
            os.rmdir(f"/layers/{layer}")


def copy_into(layer: str, tree: int) -> str:
    """A job: copies the files of a sandbox into a layer that was made for them. Raises OSError."""
    top = os.open(f"/layers/{layer}", trees.FOLDER)
    os.mkdir("root", dir_fd=top)
    os.mkdir("links", dir_fd=top)
    source, target, links = (
        os.open(name, trees.FOLDER, dir_fd=folder) for name, folder in (("root", tree), ("root", top), ("links", top))
    )
    trees.copy(source, target, links)
    os.rmdir("links", dir_fd=top)
    return ""
