"""Which jobs there are: what a request of the owner becomes before the host forks (see jobs.py).

{"kind": "copy", "layer", "family"} + a descriptor of a sandbox's files
{"kind": "pack", "layer", "leave_out"} + a pipe to write the archive to (see archive.py)
{"kind": "unpack", "layer", "family", "size_bytes", "num_inodes", "on_host", "is_lowest"} + a pipe to read it from;
    finds how many bytes the files take. `on_host`: the machine's programs lie below
"""

import os
from collections.abc import Callable

from burnish.sandbox.process import archive, template, trees, unarchive
from burnish.sandbox.process.layers import Layers, copy_into
from burnish.sandbox.process.wire import Message


def prepare(layers: Layers, message: Message, descriptor: int, *, rootless: bool) -> Callable[[], str]:
    """The work that a request asks for. The layer that it fills is there from now on. Raises OSError."""
    layer = message["layer"]
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
    space = os.fstatvfs(root)
    return str((space.f_blocks - space.f_bfree) * space.f_frsize)
