"""What an image is, and what its making may cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Ownership = Literal["numeric", "importer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageConfig:
    """What an image says about the commands that run in it. Its entry point is ignored: a sandbox has its own.

    Example: ImageConfig(env={"PATH": "/usr/local/bin:/usr/bin:/bin"}, workdir="/app", user="1000:1000")
    """

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""  # as written: a name or a number, with ":group" or without; "" is root


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An immutable root file system directory and its configuration.

    Example: Image(name="python:3.12-slim", digest="sha256:6f1c...", rootfs=Path(".../rootfs"), env={"PATH": "..."},
        workdir="/", user="", size_bytes=120_000_000, num_entries=5_200, source="docker.io/library/python:3.12-slim",
        source_digest="sha256:9d3a...", ownership="numeric", skipped={"devices": 3})
    """

    name: str
    digest: str  # of the flattened tree and the configuration: what a sandbox gets, whatever it was made from
    rootfs: Path  # flattened: no whiteouts, no overlay attributes, no devices, no set-user-id bits
    env: Mapping[str, str]
    workdir: str
    user: str
    size_bytes: int  # of regular files, each inode once
    num_entries: int
    source: str  # what was asked for
    source_digest: str | None  # of the manifest, where the source has one
    ownership: Ownership  # "importer": not root, so every file belongs to whoever imported it
    skipped: Mapping[str, int]  # kind of thing -> how many were left out


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageLimits:
    """Bounds of one import, all layers together. Layers are written by strangers.

    Example: ImageLimits(max_bytes=1 << 30)
    """

    max_bytes: int = 64 << 30  # decompressed, tar headers included; also the most that a pull downloads
    max_entries: int = 1_000_000  # their paths are kept in memory, half a gigabyte at most
    max_layers: int = 256
