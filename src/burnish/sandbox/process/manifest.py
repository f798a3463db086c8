"""What an exported snapshot is made of, as the object store keeps it."""

import hashlib
from typing import Annotated, Literal

import msgspec

from burnish.errors import UserError

FORMAT: Literal[1] = 1  # raise it when a reader of the former would misunderstand
MAX_BYTES = 1 << 20
_FIX = "export it again, from where it was made"
Digest = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]


class Layer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An archive. Example: Layer(digest="sha256:6f1c...", tar_bytes=10240, stored_bytes=312)"""

    digest: Digest  # of the archive, uncompressed
    tar_bytes: Size
    stored_bytes: Size  # compressed

    @property
    def key(self) -> str:
        return f"layers/{self.digest.removeprefix('sha256:')}.tar.zst"


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A snapshot. Example: Manifest(base="host", layers=(Layer(...),))"""

    format: Literal[1] = FORMAT
    base: Annotated[str, msgspec.Meta(pattern=r"^(host|sha256:[0-9a-f]{64})\Z")]  # this machine's programs, or an image
    layers: Annotated[tuple[Layer, ...], msgspec.Meta(min_length=1, max_length=500)]  # lowest first


def key_of(name: str) -> str:
    """Where a snapshot's manifest lies. Raises UserError for what is no name of a snapshot."""
    try:
        msgspec.convert(name, Digest)
    except msgspec.ValidationError:
        raise UserError(f"no name of a snapshot: {name!r}", fix="the name that export_snapshot returned") from None
    return f"snapshots/{name.removeprefix('sha256:')}.json"


def encode(manifest: Manifest) -> tuple[str, bytes]:
    """The snapshot's name, and its manifest's bytes."""
    data = msgspec.json.encode(manifest, order="sorted")
    return f"sha256:{hashlib.sha256(data).hexdigest()}", data


def decode(name: str, data: bytes) -> Manifest:
    """The manifest of this name. Raises UserError for another one's, and for one that cannot be understood."""
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != name:
        raise UserError("damaged: its digest is not its name", where=f"snapshot {name}", fix=_FIX)
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise UserError(f"not understood: {error}", where=f"snapshot {name}", fix=_FIX) from error
