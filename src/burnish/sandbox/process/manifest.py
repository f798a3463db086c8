"""What an exported snapshot is made of, as the object store keeps it: {"format", "base", "layers": [...]}."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from burnish.errors import UserError

FORMAT = 1  # raise it when a reader of the former would misunderstand
MAX_BYTES = 1 << 20
_MAX_LAYERS, _MAX_LAYER_BYTES = 500, 1 << 50
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Layer:
    """An archive. Example: Layer(digest="sha256:6f1c...", num_bytes=10240)"""

    digest: str  # of the archive, uncompressed
    num_bytes: int

    @property
    def key(self) -> str:
        return f"layers/{self.digest.removeprefix('sha256:')}.tar"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A snapshot. Example: Manifest(base="host", layers=(Layer(...),))"""

    base: str  # "host", this machine's programs, or the digest of an image
    layers: tuple[Layer, ...]  # lowest first


def key_of(name: str) -> str:
    """Where a snapshot's manifest lies. Raises UserError for what is no name of a snapshot."""
    if not _DIGEST.fullmatch(name):
        raise UserError(f"no name of a snapshot: {name!r}", fix="the name that export_snapshot returned")
    return f"snapshots/{name.removeprefix('sha256:')}.json"


def encode(manifest: Manifest) -> tuple[str, bytes]:
    """The snapshot's name, and its manifest's bytes."""
    layers = [{"digest": layer.digest, "bytes": layer.num_bytes} for layer in manifest.layers]
    data = json.dumps({"format": FORMAT, "base": manifest.base, "layers": layers}, sort_keys=True).encode()
    return f"sha256:{hashlib.sha256(data).hexdigest()}", data


def decode(name: str, data: bytes) -> Manifest:
    """The manifest of this name. Raises UserError for another one's, and for one that cannot be understood."""
    where = f"snapshot {name}"
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != name:
        raise UserError("damaged: its digest is not its name", where=where, fix="export it again")
    try:
        found = json.loads(data)
        if found["format"] != FORMAT:
            raise UserError(f"of format {found['format']!r}; known is {FORMAT}", where=where, fix="export it again")
        if found.keys() != {"format", "base", "layers"} or not 1 <= len(found["layers"]) <= _MAX_LAYERS:
            raise ValueError("keys")
        if found["base"] != "host":
            _digest(found["base"])
        return Manifest(found["base"], tuple(_layer(layer) for layer in found["layers"]))
    except UserError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"not understood: {error!r}", where=where, fix="export it again") from error


def _layer(found: dict[str, Any]) -> Layer:
    num_bytes = found["bytes"]
    if found.keys() != {"digest", "bytes"} or type(num_bytes) is not int or not 0 <= num_bytes <= _MAX_LAYER_BYTES:
        raise ValueError("a layer")
    return Layer(_digest(found["digest"]), num_bytes)


def _digest(found: str) -> str:
    if not _DIGEST.fullmatch(found):
        raise ValueError("a digest")
    return found
