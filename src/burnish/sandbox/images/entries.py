"""One thing of a layer, whatever the layer came in, and the count of what an import has cost so far."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from burnish.errors import UserError
from burnish.sandbox.images.image import ImageLimits

Kind = Literal["dir", "file", "symlink", "hardlink", "fifo", "device"]
Path = tuple[bytes, ...]  # components; () is the root

MAX_DEPTH = 128  # folders are walked by recursion with one descriptor per level
MAX_TIME_NS = (1 << 32) * 1_000_000_000 - 1  # file systems differ in how they store times outside 1970..2106


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A file, folder, link or other thing, as its layer describes it.

    Example: Entry(path=(b"etc", b"motd"), kind="file", mode=0o644, mtime_ns=0, size=3, read=io.BytesIO(b"hi\\n").read)
    """

    path: Path
    kind: Kind
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    size: int = 0  # bytes of a file's content
    read: Callable[[int], bytes] = lambda _: b""  # the content, at most n bytes a call; b"" when it is cut short
    symlink: bytes = b""
    hardlink: Path = ()
    xattrs: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The path for a message."""
        return shown_path(self.path)


def shown(name: bytes) -> str:
    """A stranger's name for a message: one line, bounded, no control characters."""
    return ascii(name[:200].decode("utf-8", "backslashreplace"))[1:-1]


def shown_path(path: Path) -> str:
    """An entry's path for a message."""
    return shown(b"/".join(path)) or "/"


def split_path(name: bytes) -> Path:
    """Components of an entry's name. Absolute names start at the root of the image.

    Raises UserError for `..` (no tool that makes layers writes it), for a NUL and for absurd depth.
    """
    parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
    if b".." in parts:
        raise UserError("leaves its archive", where=f"entry {shown(name)}", fix="do not trust this image")
    if b"\0" in name or any(len(part) > 255 for part in parts) or len(parts) > MAX_DEPTH:
        raise UserError("not a possible file name", where=f"entry {shown(name)}", fix="do not trust this image")
    return parts


def kept_xattr(name: str) -> bool:
    """Only a user's own attributes. Those of overlayfs would be obeyed by it, the rest are privileges."""
    return name.startswith("user.") and not name.startswith("user.overlay.")


@dataclass(kw_only=True, slots=True)
class Budget:
    """What an import may still use, and what it left out."""

    limits: ImageLimits
    num_bytes: int = 0
    num_entries: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def take_bytes(self, num: int) -> None:
        """Raises UserError when the image grows larger than allowed."""
        self.num_bytes += num
        if self.num_bytes > self.limits.max_bytes:
            raise UserError(
                f"the image unpacks to more than {self.limits.max_bytes} bytes",
                where="ImageLimits.max_bytes",
                fix="raise the limit if you trust the image",
            )

    def take_entry(self) -> None:
        """Raises UserError when there are more entries than allowed."""
        self.num_entries += 1
        if self.num_entries > self.limits.max_entries:
            raise UserError(
                f"the image has more than {self.limits.max_entries} entries",
                where="ImageLimits.max_entries",
                fix="raise the limit if you trust the image",
            )
