"""Image sources made on the spot (tar archives, OCI layouts, docker-archives), and what a root file system holds."""

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.sandbox.images.entries import Budget
from burnish.sandbox.images.image import ImageLimits
from burnish.sandbox.images.layers import lay
from burnish.sandbox.images.seal import Sealed, seal
from burnish.sandbox.images.streams import PlainStream
from burnish.sandbox.images.tar import read_tar
from burnish.sandbox.images.tree import FOLDER_FLAGS, Tree

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
OTHER_ARCHITECTURE = "s390x"
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
_TYPES = {
    "file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE,
    "fifo": tarfile.FIFOTYPE, "char": tarfile.CHRTYPE, "block": tarfile.BLKTYPE,
}  # fmt: skip


def member(
    name: str,
    data: bytes = b"",
    *,
    kind: str = "file",
    link: str = "",
    mode: int = 0o644,
    mtime: float = 1000,
    owner: int = 0,
    pax: Mapping[str, str] | None = None,
) -> tuple[tarfile.TarInfo, bytes]:
    """One entry of an archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime = _TYPES[kind], link, mode, mtime
    info.uid = info.gid = owner
    info.size = len(data)
    info.pax_headers = dict(pax or {})
    return info, data


def tar_bytes(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar archive of these entries, in this order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def digest_of(data: bytes) -> str:
    """`sha256:...`"""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def flatten(
    root: Path, *layers: bytes, whiteouts: bool = True, limits: ImageLimits = ImageLimits()
) -> tuple[Sealed, Budget]:
    """Lays the archives over one another in an empty folder."""
    budget = Budget(limits=limits)
    descriptor = os.open(root, FOLDER_FLAGS)
    tree = Tree(descriptor, budget, keep_owner=os.geteuid() == 0)
    try:
        for layer in layers:
            stream = PlainStream(io.BytesIO(layer), budget, where="layer")
            lay(read_tar(stream, where="layer", needs_end=False), tree, whiteouts=whiteouts)
        return seal(tree), budget
    finally:
        tree.close()
        os.close(descriptor)


def holds(root: Path) -> dict[str, str]:
    """Path -> what is there: contents of files, targets of links, and the first name of a file with several."""
    found: dict[str, str] = {}
    first: dict[int, str] = {}
    for folder, folders, files in os.walk(root):
        for name in sorted(folders + files):
            path = Path(folder, name)
            status = path.lstat()
            label = str(path.relative_to(root))
            if stat.S_ISLNK(status.st_mode):
                found[label] = f"-> {path.readlink()}"
            elif stat.S_ISDIR(status.st_mode):
                found[label] = "dir"
            elif stat.S_ISREG(status.st_mode):
                other = first.setdefault(status.st_ino, label)
                found[label] = path.read_bytes().decode("latin-1") if other == label else f"= {other}"
            else:
                found[label] = "fifo" if stat.S_ISFIFO(status.st_mode) else f"{status.st_mode:o}"
    return found


class Layout:
    """The blobs of an image under construction."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def add(self, data: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        """Keeps a blob; its descriptor."""
        self.blobs[digest_of(data)] = data
        return {"mediaType": media_type, "digest": digest_of(data), "size": len(data), **more}

    def add_json(self, document: Any, media_type: str, **more: Any) -> dict[str, Any]:
        """Keeps a document; its descriptor."""
        return self.add(json.dumps(document).encode(), media_type, **more)

    def image(
        self,
        layers: Sequence[bytes],
        *,
        config: Mapping[str, Any] | None = None,
        architecture: str = ARCHITECTURE,
        diff_ids: Sequence[str] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Keeps an image of uncompressed layers; the descriptor of its manifest."""
        about = {
            "architecture": architecture,
            "os": "linux",
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": list(diff_ids or map(digest_of, layers))},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.add_json(about, CONFIG),
            "layers": [self.add(gzip.compress(layer, mtime=0), f"{LAYER}+gzip") for layer in layers],
        }
        platform = {"os": "linux", "architecture": architecture}
        return self.add_json(manifest, MANIFEST, platform=platform, **more)

    def index(self, *manifests: dict[str, Any]) -> dict[str, Any]:
        """Keeps an index; its descriptor."""
        return self.add_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}, INDEX)

    def files(self, *manifests: dict[str, Any]) -> dict[str, bytes]:
        """An OCI layout as path -> content."""
        index = {"schemaVersion": 2, "manifests": manifests}
        blobs = {f"blobs/{digest.replace(':', '/')}": data for digest, data in self.blobs.items()}
        return {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', **blobs, "index.json": json.dumps(index).encode()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Writes path -> content into a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def docker_archive(layers: Sequence[bytes], *tags: str, architecture: str = ARCHITECTURE) -> dict[str, bytes]:
    """A `docker save` of old as path -> content."""
    config = {"architecture": architecture, "os": "linux", "rootfs": {"diff_ids": [digest_of(one) for one in layers]}}
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    listed = [{"Config": "c.json", "RepoTags": list(tags), "Layers": names}]
    return {
        **dict(zip(names, layers, strict=True)),
        "c.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(listed).encode(),
    }
