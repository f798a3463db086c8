"""Which jobs there are: what a request of the owner becomes before the host forks (see jobs.py).

{"kind": "copy", "layer", "family"} + a descriptor of a sandbox's files
{"kind": "squash", "layer", "family", "layers"}: makes one of several (see merge.py); finds how many bytes it takes
{"kind": "pack", "layer", "leave_out"} + a pipe to write the archive to (see archive.py)
{"kind": "unpack", "layer", "family", "size_bytes", "num_inodes", "on_host", "is_lowest"} + a pipe to read it from;
    finds how many bytes the files take. `on_host`: the machine's programs lie below
"""

import os
from collections.abc import Callable, Sequence

from burnish.sandbox.process import archive, template, trees, unarchive
from burnish.sandbox.process.layers import Layers, copy_into
from burnish.sandbox.process.merge import Merger
from burnish.sandbox.process.wire import Message

_SLACK_BYTES, _SLACK_INODES = 64 << 10, 64  # for the directories that work needs, and since 0 would mean no limit


def prepare(layers: Layers, message: Message, fds: Sequence[int], *, rootless: bool) -> Callable[[], str]:
    """The work that a request asks for. The layer that it fills is there from now on. Raises OSError."""
    layer = message["layer"]
    if message["kind"] == "squash":
        sizes = [os.statvfs(f"/layers/{one}") for one in message["layers"]]
        size_bytes = sum((size.f_blocks - size.f_bfree) * size.f_frsize for size in sizes) + _SLACK_BYTES
        num_inodes = 2 * sum(size.f_files - size.f_ffree for size in sizes) + _SLACK_INODES  # as below
        layers.make(layer, message["family"], size_bytes, num_inodes)
        return lambda: _squash(layer, message["layers"], archive.overlay_marks(rootless=rootless) + "opaque")
    (descriptor,) = fds
    if message["kind"] == "copy":
        size = os.fstatvfs(descriptor)
        # a file with several names has one more while it is copied
        layers.make(layer, message["family"], size.f_blocks * size.f_frsize, 2 * size.f_files)
        return lambda: copy_into(layer, descriptor)
    if message["kind"] == "pack":
        return lambda: _pack(layer, descriptor, message["leave_out"], rootless=rootless)
    uid = layers.make(layer, message["family"], message["size_bytes"], message["num_inodes"])
    owners = unarchive.Owners(0, 0 if rootless else uid, rootless=rootless, fixed_root=message["on_host"])
    return lambda: _unpack(layer, descriptor, owners, is_lowest=message["is_lowest"])


def _squash(layer: str, lowest_first: Sequence[str], opaque: str) -> str:
    top = os.open(f"/layers/{layer}", trees.FOLDER)
    names = ("root", "links", "trash")
    for name in names:
        os.mkdir(name, dir_fd=top)
    root, links, trash = (os.open(name, trees.FOLDER, dir_fd=top) for name in names)
    merger = Merger(root, links, trash, opaque)
    for one in lowest_first:
        source = os.open(f"/layers/{one}/root", trees.FOLDER)
        merger.apply(source)
        os.close(source)
    os.rmdir("links", dir_fd=top)
    os.rmdir("trash", dir_fd=top)
    return str(_used_bytes(top))


def _pack(layer: str, out: int, leave_out: str, *, rootless: bool) -> str:
    root = os.open(f"/layers/{layer}/root", trees.FOLDER)
    archive.pack(root, out, rootless=rootless, leave_out=leave_out)
    return ""


def _unpack(layer: str, source: int, owners: unarchive.Owners, *, is_lowest: bool) -> str:
    os.chroot(f"/layers/{layer}")  # from here on there is nothing else that could be written to
    os.chdir("/")
    os.umask(0o022)
    os.mkdir("root", 0o755)
    root = os.open("root", trees.FOLDER)
    if owners.fixed_root and is_lowest and not owners.rootless:
        template.write_accounts("root/etc", owners.agent)
    unarchive.unpack(source, root, owners, forbidden=b"etc" if owners.fixed_root else b"")
    return str(_used_bytes(root))


def _used_bytes(tree: int) -> int:
    space = os.fstatvfs(tree)
    return (space.f_blocks - space.f_bfree) * space.f_frsize
