"""The JSON of images: indexes, manifests and configurations, none of it trusted."""

import json
import os
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from burnish.errors import UserError
from burnish.sandbox.images.image import ImageConfig
from burnish.sandbox.images.reference import DIGEST

MAX_JSON_BYTES = 4 << 20  # what registries allow for a manifest
MAX_NESTING = 4  # an index may point to indexes
REF_NAME = "org.opencontainers.image.ref.name"
FULL_NAMES = ("io.containerd.image.name", REF_NAME)
INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CONFIG_TYPES = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_ARCHITECTURES = {
    "x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "loongarch64": "loong64",
}  # fmt: skip
_OUR_ARCHITECTURE = _ARCHITECTURES.get(os.uname().machine, os.uname().machine)


def parse_json(data: bytes, where: str) -> Any:
    """A JSON document. Raises UserError when it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise UserError(f"not JSON: {problem}", where=where, fix="make or fetch it again") from problem


def child(document: Any, key: str, kind: type, where: str) -> Any:
    """`document[key]`, which must be of this kind; an empty one when it is absent or null."""
    value = document.get(key) if isinstance(document, dict) else document
    value = kind() if value is None else value
    if not isinstance(document, dict) or not isinstance(value, kind):
        raise UserError(f"{key!r} is not what an image has there", where=where, fix="make or fetch it again")
    return value


def digest_of(descriptor: Any, where: str) -> str:
    """A descriptor's digest. Only SHA-256 is known, as everywhere in practice."""
    digest = child(descriptor, "digest", str, where)
    if not DIGEST.fullmatch(digest):
        raise UserError(f"not a SHA-256 digest: {digest[:100]!r}", where=where, fix="make the image anew")
    return str(digest)


def size_of(descriptor: Any, where: str) -> int:
    """A descriptor's size in bytes."""
    size = child(descriptor, "size", int, where)
    if size < 0:
        raise UserError("a size below zero", where=where, fix="make the image anew")
    return int(size)


def is_index(document: Any) -> bool:
    """Whether this is a list of manifests and not a manifest."""
    return isinstance(document, dict) and (
        document.get("mediaType") in INDEX_TYPES or ("manifests" in document and "layers" not in document)
    )


def ours_first(index: Any, where: str) -> list[Any]:
    """The descriptors of an index that may be for this machine, those that say so first.

    Raises UserError when none can be, with what there is.
    """
    found = child(index, "manifests", list, where)
    fits = [one for one in found if _platform(one, where) == f"linux/{_OUR_ARCHITECTURE}"]
    fits += [one for one in found if _platform(one, where) == ""]
    if not fits:
        there = ", ".join(sorted({_platform(one, where) for one in found})) or "nothing"
        raise UserError(
            f"no image for linux/{_OUR_ARCHITECTURE}, but for {there[:300]}", where=where, fix="choose another image"
        )
    return fits


def _platform(descriptor: Any, where: str) -> str:
    platform = child(descriptor, "platform", dict, where)
    return f"{platform.get('os', 'linux')}/{platform.get('architecture', '')}" if platform else ""


def layers_of(manifest: Any, where: str) -> tuple[Any, list[Any]]:
    """The descriptors of the configuration and of the layers, lowest first. Raises UserError for no container image."""
    config = child(manifest, "config", dict, where)
    layers = child(manifest, "layers", list, where)
    kinds = [child(layer, "mediaType", str, where) for layer in layers]
    if child(config, "mediaType", str, where) not in _CONFIG_TYPES or any("tar" not in kind for kind in kinds):
        raise UserError("not a container image", where=where, fix="choose an image of a root file system")
    return config, layers


def read_config(config: Any, num_layers: int, where: str) -> tuple[ImageConfig, Sequence[str]]:
    """What an image configuration says, and the digests of its layers' archives after decompression.

    Raises UserError when it is damaged or for another machine.
    """
    found = child(config, "architecture", str, where)
    system = child(config, "os", str, where) or "linux"
    if (found or _OUR_ARCHITECTURE, system) != (_OUR_ARCHITECTURE, "linux"):
        raise UserError(
            f"an image for {system}/{found}, this machine is linux/{_OUR_ARCHITECTURE}",
            where=where,
            fix="choose the image for this machine",
        )
    diff_ids = child(child(config, "rootfs", dict, where), "diff_ids", list, where)
    if len(diff_ids) != num_layers:
        raise UserError(f"{num_layers} layers, but digests of {len(diff_ids)}", where=where, fix="make the image anew")
    inner = child(config, "config", dict, where)
    workdir = child(inner, "WorkingDir", str, where)
    user = child(inner, "User", str, where)
    made = ImageConfig(
        env=_env(child(inner, "Env", list, where), where),
        workdir=posixpath.normpath(f"/{workdir}").replace("//", "/"),
        user=user,
    )
    if "\0" in workdir + user:
        raise UserError("a NUL in the configuration", where=where, fix="make the image anew")
    return made, [digest_of({"digest": one}, where) for one in diff_ids]


def _env(lines: Sequence[Any], where: str) -> Mapping[str, str]:
    env = {}
    for line in lines:
        name, equals, value = line.partition("=") if isinstance(line, str) else ("", "", "")
        if not name or not equals or "\0" in line:
            raise UserError(f"an environment with {str(line)[:100]!r} in it", where=where, fix="make the image anew")
        env[name] = value
    return env
