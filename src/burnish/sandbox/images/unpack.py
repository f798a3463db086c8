"""From a source on disk to a finished root file system in a draft folder."""

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from burnish.errors import UserError
from burnish.sandbox.images.bundle import Bundle, FolderParts, TarParts, find_bundle
from burnish.sandbox.images.entries import Budget
from burnish.sandbox.images.folder import read_folder
from burnish.sandbox.images.image import ImageConfig, ImageLimits, Ownership
from burnish.sandbox.images.layers import lay
from burnish.sandbox.images.seal import Sealed, seal
from burnish.sandbox.images.streams import CHUNK_BYTES, PlainStream, is_compressed, open_regular
from burnish.sandbox.images.tar import read_tar
from burnish.sandbox.images.tree import FOLDER_FLAGS, Tree

FORMAT = b"burnish image 1\n"  # part of every digest; raise it when what is digested changes
_ALL_IDS = 1 << 16  # as many owners a user namespace must have before ownership is worth keeping


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpacked:
    """What came of a source."""

    config: ImageConfig
    digest: str
    size_bytes: int
    num_entries: int
    name: str | None
    source_digest: str | None
    ownership: Ownership
    skipped: Counter[str]


def unpack(source: Path, wanted: str | None, draft: Path, limits: ImageLimits) -> Unpacked:
    """Unpacks `source` into `draft / "rootfs"`, flattened.

    Args:
        source: a directory, a tar archive, an OCI layout (directory or archive) or a docker-archive.
        wanted: which image of a layout, where it has several.
        draft: an empty folder; on an error the caller removes it with what is in it.
        limits: see `ImageLimits`.

    Raises:
        UserError: the source is missing, damaged, hostile, too large or for another machine.
        OSError: the draft cannot be written.
    """
    rootfs = draft / "rootfs"
    rootfs.mkdir(mode=0o700)
    budget = Budget(limits=limits)
    tree_fd = os.open(rootfs, FOLDER_FLAGS)
    tree = Tree(tree_fd, budget, keep_owner=_may_give_away())
    try:
        if source.is_dir():
            bundle = find_bundle(FolderParts(source), wanted, str(source))
            if bundle is None:
                lay(read_folder(source, budget), tree, whiteouts=False)
        else:
            bundle = _unpack_archive(source, wanted, draft, tree, budget)
        if bundle is not None and source.is_dir():
            _lay_all(bundle, tree, budget, str(source))
        if bundle is None and wanted is not None:
            raise UserError(f"plain files, there is no image {wanted!r} in them", where=str(source))
        sealed = seal(tree)
    finally:
        tree.close()
        os.close(tree_fd)
    return _unpacked(bundle, sealed, tree, budget)


def _unpack_archive(source: Path, wanted: str | None, draft: Path, tree: Tree, budget: Budget) -> Bundle | None:
    try:
        raw = open_regular(source)
    except OSError as problem:
        raise UserError(f"cannot be read: {problem.strerror or problem}", where=str(source)) from problem
    with raw:
        if is_compressed(raw):  # the parts of a layout stand in any order, so they must be reached by place
            spool = draft / "spool"
            _spool(raw, spool, budget.limits, str(source))
            raw.close()
            raw = spool.open("rb")
            spool.unlink()
        with raw:
            bundle = find_bundle(TarParts(raw, Budget(limits=budget.limits), where=str(source)), wanted, str(source))
            if bundle is not None:
                _lay_all(bundle, tree, budget, str(source))
            else:
                raw.seek(0)
                stream = PlainStream(raw, budget, where=str(source))
                lay(read_tar(stream, where=str(source), needs_end=True), tree, whiteouts=False)
            return bundle


def _spool(raw: BinaryIO, spool: Path, limits: ImageLimits, where: str) -> None:
    stream = PlainStream(raw, Budget(limits=limits), where=where)
    with spool.open("wb") as file:
        while data := stream.read(CHUNK_BYTES):
            file.write(data)


def _lay_all(bundle: Bundle, tree: Tree, budget: Budget, where: str) -> None:
    if len(bundle.layers) > budget.limits.max_layers:
        raise UserError(
            f"{len(bundle.layers)} layers, more than {budget.limits.max_layers}",
            where="ImageLimits.max_layers",
            fix="raise the limit if you trust the image",
        )
    for number, layer in enumerate(bundle.layers):
        label = f"{where}: layer {number}"
        with layer.open() as raw:
            stream = PlainStream(raw, budget, where=label)
            lay(read_tar(stream, where=label, needs_end=False), tree, whiteouts=True)
            if stream.finish() != layer.diff_id:
                raise UserError("its content is not what the image's configuration says", where=label)


def _unpacked(bundle: Bundle | None, sealed: Sealed, tree: Tree, budget: Budget) -> Unpacked:
    config = bundle.config if bundle is not None else ImageConfig()
    ownership: Ownership = "numeric" if tree.keep_owner else "importer"
    about = json.dumps([ownership, dict(config.env), config.workdir, config.user], sort_keys=True)
    digest = hashlib.sha256(FORMAT + about.encode() + b"\n" + sealed.digest).hexdigest()
    return Unpacked(
        config=config,
        digest=f"sha256:{digest}",
        size_bytes=sealed.size_bytes,
        num_entries=sealed.num_entries,
        name=bundle.name if bundle is not None else None,
        source_digest=bundle.digest if bundle is not None else None,
        ownership=ownership,
        skipped=budget.skipped,
    )


def _may_give_away() -> bool:
    """Whether we are root over all ordinary owners; root of a small user namespace is not."""
    if os.geteuid() != 0:
        return False
    maps = [Path(f"/proc/self/{kind}_map").read_text().split() for kind in ("uid", "gid")]
    return all(sum(map(int, one[2::3])) >= _ALL_IDS for one in maps)
