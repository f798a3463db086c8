"""What a source turns out to be: an OCI layout, a docker-archive or plain files; and its parts."""

import contextlib
import functools
import hashlib
import io
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from burnish.errors import UserError
from burnish.sandbox.images import manifest as mf
from burnish.sandbox.images.entries import Budget, shown
from burnish.sandbox.images.image import ImageConfig
from burnish.sandbox.images.streams import CHUNK_BYTES, PlainStream, Section, open_regular
from burnish.sandbox.images.tar import read_tar_at

_MAX_DEPTH = 3  # blobs/sha256/DIGEST; a root file system has far more below, of no interest here
_MAX_HOPS = 8  # old docker-archives link a layer to another image's


class Parts(Protocol):
    """Named files of a layout."""

    def open(self, name: str, /) -> contextlib.AbstractContextManager[BinaryIO]:
        """Raises UserError when there is none of that name."""
        ...

    def has(self, name: str, /) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer of a bundle. `open` gives it as it is stored, its digest already checked where it has one."""

    open: Callable[[], contextlib.AbstractContextManager[BinaryIO]]
    diff_id: str  # digest of the decompressed archive


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """An image that can be unpacked."""

    config: ImageConfig
    layers: Sequence[Layer]  # lowest first
    name: str | None  # what the source calls it
    digest: str | None  # of the manifest


class FolderParts:
    """A layout in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def has(self, name: str) -> bool:
        return (self._root / name).is_file()

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        try:
            file = open_regular(self._root / name)
        except OSError as problem:
            raise UserError(f"{name} is missing", where=str(self._root), fix="make or fetch it again") from problem
        with file:
            yield file


class TarParts:
    """A layout in a tar archive, found by reading its headers once."""

    def __init__(self, file: BinaryIO, budget: Budget, *, where: str) -> None:
        """`file` is not compressed and stays open."""
        self._file, self._where = file, where
        self._found: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        stream = _Seekable(file, budget, where=where)
        for entry, offset in read_tar_at(stream, where=where, needs_end=True):
            budget.take_entry()
            if len(entry.path) > _MAX_DEPTH:
                continue
            name = b"/".join(entry.path).decode("utf-8", "surrogateescape")
            if entry.kind == "file":
                self._found[name] = (offset, entry.size)
            elif entry.kind in ("symlink", "hardlink"):
                aim = b"/".join(entry.hardlink) or b"/".join((*entry.path[:-1], entry.symlink))
                self._links[name] = posixpath.normpath(aim.decode("utf-8", "surrogateescape"))

    def has(self, name: str) -> bool:
        return self._real(name) in self._found

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        if (found := self._found.get(self._real(name))) is None:
            raise UserError(f"{name[:200]} is missing", where=self._where, fix="make or fetch it again")
        with io.BufferedReader(Section(self._file, *found)) as section:
            yield section

    def _real(self, name: str) -> str:
        name = posixpath.normpath(name)
        for _ in range(_MAX_HOPS):
            name = self._links.get(name, name)
        return name


class _Seekable(PlainStream):
    """Headers of an archive that need not be read through."""

    def __init__(self, file: BinaryIO, budget: Budget, *, where: str) -> None:
        super().__init__(file, budget, where=where)
        self._file = file
        self._end = file.seek(0, 2)
        file.seek(0)

    def skip(self, size: int) -> int:
        at = self._file.tell()
        return self._file.seek(min(at + size, self._end)) - at


def find_bundle(parts: Parts, wanted: str | None, where: str) -> Bundle | None:
    """The image in a layout; None when the parts are no layout but plain files.

    Args:
        parts: the files of the source.
        wanted: which image, where there are several.
        where: what to call the source in messages.

    Raises UserError when it is damaged, for other machines, or when there are several and none is wanted.
    """
    if parts.has("oci-layout") and parts.has("index.json"):
        return _oci_layout(parts, wanted, where)
    if parts.has("manifest.json"):
        listed = _json(parts, "manifest.json", where)
        if isinstance(listed, list) and listed and all(isinstance(one, dict) and "Layers" in one for one in listed):
            return _docker_archive(parts, listed, wanted, where)
    return None


def _oci_layout(parts: Parts, wanted: str | None, where: str) -> Bundle:
    index = _json(parts, "index.json", where)
    groups: dict[str, list[Any]] = {}  # one name may stand at an image for each of several machines
    for one in mf.child(index, "manifests", list, where):
        for name in _names(one, where):
            groups.setdefault(name, []).append(one)
    if wanted is not None or len({str(group) for group in groups.values()}) > 1:
        index = {"manifests": _wanted(groups, wanted, where)}
    chosen, descriptor = _follow(parts, index, where, 0)
    config_at, layers = mf.layers_of(chosen, where)
    with _checked(parts, config_at, where) as file:
        document = mf.parse_json(file.read(mf.MAX_JSON_BYTES), where)
    config, diff_ids = mf.read_config(document, len(layers), where)
    return Bundle(
        config=config,
        layers=[
            Layer(open=functools.partial(_checked, parts, layer, where), diff_id=diff_id)
            for layer, diff_id in zip(layers, diff_ids, strict=True)
        ],
        # A bare tag names nothing.
        name=next((name for name in _names(index["manifests"][0], where) if ":" in name or "/" in name), None),
        digest=mf.digest_of(descriptor, where),
    )


def _names(descriptor: Any, where: str) -> list[str]:
    notes = mf.child(descriptor, "annotations", dict, where)
    return [notes[key] for key in mf.FULL_NAMES if isinstance(notes.get(key), str)]


def _follow(parts: Parts, index: Any, where: str, depth: int) -> tuple[Any, Any]:
    """The manifest for this machine and its descriptor, down through indexes in indexes."""
    if depth == mf.MAX_NESTING:
        raise UserError("too many indexes in one another", where=where, fix="choose another image")
    descriptor = mf.ours_first(index, where)[0]
    with _checked(parts, descriptor, where) as file:
        document = mf.parse_json(file.read(mf.MAX_JSON_BYTES), where)
    return _follow(parts, document, where, depth + 1) if mf.is_index(document) else (document, descriptor)


@contextlib.contextmanager
def _checked(parts: Parts, descriptor: Any, where: str) -> Iterator[BinaryIO]:
    """A blob that is what its digest says."""
    digest, size = mf.digest_of(descriptor, where), mf.size_of(descriptor, where)
    with parts.open(f"blobs/{digest.replace(':', '/')}") as file:
        found = hashlib.sha256()
        num_bytes = 0
        while num_bytes <= size and (data := file.read(CHUNK_BYTES)):
            found.update(data)
            num_bytes += len(data)
        if num_bytes != size or f"sha256:{found.hexdigest()}" != digest:
            raise UserError(f"the blob {digest} is damaged", where=where, fix="make or fetch it again")
        file.seek(0)
        yield file


def _docker_archive(parts: Parts, listed: list[Any], wanted: str | None, where: str) -> Bundle:
    names = {tag: one for one in listed for tag in mf.child(one, "RepoTags", list, where) if isinstance(tag, str)}
    one = _wanted(names, wanted, where) if wanted is not None or len(listed) > 1 else listed[0]
    layers = [str(layer) for layer in mf.child(one, "Layers", list, where)]
    document = _json(parts, mf.child(one, "Config", str, where), where)
    config, diff_ids = mf.read_config(document, len(layers), where)
    return Bundle(
        config=config,
        layers=[
            Layer(open=functools.partial(parts.open, layer), diff_id=diff_id)
            for layer, diff_id in zip(layers, diff_ids, strict=True)
        ],
        name=wanted or next((name for name, image in names.items() if image is one), None),
        digest=None,
    )


def _wanted(names: Mapping[str, Any], wanted: str | None, where: str) -> Any:
    if wanted is not None and wanted in names:
        return names[wanted]
    there = ", ".join(shown(name.encode("utf-8", "replace")) for name in sorted(names)) or "none with a name"
    cause = "there are several images" if wanted is None else f"there is no image {wanted!r}"
    raise UserError(f"{cause}: {there}", where=where, fix="name one of them: SOURCE#NAME")


def _json(parts: Parts, name: str, where: str) -> Any:
    with parts.open(name) as file:
        return mf.parse_json(file.read(mf.MAX_JSON_BYTES), f"{where}: {name[:200]}")
