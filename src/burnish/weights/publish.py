"""Folders that appear whole or not at all: published weights and checkpoints.

A folder is filled under a hidden name beside its final place and renamed when it is complete. Readers list only final
names, so a writer that is killed at any moment leaves nothing that could be taken for a version; the next writer of the
same root sweeps what it left. One root has one writer.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from burnish.errors import StoreError, boundary
from burnish.types import PolicyVersion

_UNFINISHED = ".unfinished-"


@contextmanager
def publish_version(root: Path, version: PolicyVersion, *, keep: int = 2) -> Iterator[Path]:
    """Yields an empty folder to fill; on success it becomes `root/v000012` and only the newest `keep` remain.

    Not flushed to the disk: published weights feed engines of this run, which read them through the page cache, and a
    run that lost its machine resumes from a checkpoint. `keep` must leave the version that an engine may be reading.

    Raises StoreError when the folder cannot be written (a full disk); nothing of it is left then.
    """
    with whole_folder(root, f"v{version:06d}", keep=keep, durable=False) as path:
        yield path


@contextmanager
def checkpoint_folder(root: Path, version: PolicyVersion, *, keep: int = 2) -> Iterator[Path]:
    """Like `publish_version` for `root/step-000010`, and safe against loss of power: flushed before it is named."""
    with whole_folder(root, f"step-{version:06d}", keep=keep, durable=True) as path:
        yield path


def latest(root: Path) -> tuple[PolicyVersion, Path] | None:
    """The newest complete version or checkpoint under `root`; None when there is none."""
    found = _complete(root)
    return found[-1] if found else None


@contextmanager
def whole_folder(root: Path, name: str, *, keep: int, durable: bool) -> Iterator[Path]:
    """Yields a folder to fill and gives it its name when the block ends well. An existing one is replaced.

    Raises ValueError for `keep` below 1; StoreError as `publish_version`. What the block raises passes through.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, not {keep}")
    unfinished = root / f"{_UNFINISHED}{name}"
    with boundary(StoreError, during=f"prepare {root / name}"):
        root.mkdir(parents=True, exist_ok=True)
        for leftover in root.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover)
        unfinished.mkdir()
    try:
        try:
            yield unfinished
        except OSError as problem:
            raise StoreError(f"write {root / name}: {problem}", evidence=repr(problem)) from problem
        with boundary(StoreError, during=f"commit {root / name}"):
            _commit(unfinished, root / name, durable=durable)
    except BaseException:  # cancellation too; the disk that was full gets its space back
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    with boundary(StoreError, during=f"prune {root}"):
        for _, old in _complete(root)[:-keep]:
            _discard(old)


def _commit(unfinished: Path, final: Path, *, durable: bool) -> None:
    if durable:
        for path in unfinished.rglob("*"):
            _flush(path)
        _flush(unfinished)
    if final.exists():
        _discard(final)
    unfinished.rename(final)
    if durable:
        _flush(final.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(folder: Path) -> None:
    """Removes a complete folder. It loses its name first, so that a half-removed one is never read."""
    hidden = folder.with_name(f"{_UNFINISHED}{folder.name}.old")
    folder.rename(hidden)
    shutil.rmtree(hidden)


def _complete(root: Path) -> list[tuple[PolicyVersion, Path]]:
    """Oldest first."""
    if not root.is_dir():
        return []
    matches = ((re.fullmatch(r"(?:v|step-)(\d{6,})", path.name), path) for path in root.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)
