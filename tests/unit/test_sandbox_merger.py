"""Merging of layers that were made to break it; test_sandbox_merge.py compares with the kernel."""

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.sandbox.process import trees
from burnish.sandbox.process.merge import Merger

_DEPTH = 1500


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def space() -> Iterator[Path]:
    """For trees that pytest's own clean-up would not get to the bottom of."""
    path = tempfile.mkdtemp(prefix="burnish-deep-")
    yield Path(path)
    subprocess.run(["rm", "-rf", path], check=True)


def merge(space: Path, *layers: str) -> Path:
    """With few descriptors, all of which are closed."""
    names = ("merged", "links", "trash")
    for name in names:
        (space / name).mkdir()
    opened = [os.open(space / name, trees.FOLDER) for name in (*names, *layers)]
    before = num_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(opened) + 16, hard))
    try:
        root, links, trash, *sources = opened
        merger = Merger(root, links, trash, "user.opaque")
        for source in sources:
            merger.apply(source)
        assert num_descriptors() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in opened:
            os.close(descriptor)
    assert not [*(space / "links").iterdir(), *(space / "trash").iterdir()]
    return space / "merged"


def make_deep(folder: Path) -> None:
    folder.mkdir(parents=True)
    here = os.open(folder, trees.FOLDER)
    for _ in range(_DEPTH):
        os.mkdir("deeper", dir_fd=here)
        here, above = os.open("deeper", trees.FOLDER, dir_fd=here), here
        os.close(above)
    os.close(os.open("deepest", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_depth_beyond_recursion_descriptors_and_paths(space: Path) -> None:
    """One deep tree over another, and one that is replaced by a file."""
    make_deep(space / "lower" / "same")
    make_deep(space / "lower" / "replaced")
    make_deep(space / "upper" / "same")
    (space / "upper" / "replaced").write_text("a file")
    opened = os.open(merge(space, "lower", "upper"), trees.FOLDER)
    names = [name for kind, _, name, _ in trees.walk(opened) if kind != trees.LEAVE]
    os.close(opened)
    assert names == ["", "replaced", "same", *["deeper"] * _DEPTH, "deepest"]
    assert (space / "merged" / "replaced").read_text() == "a file"


def test_hard_links_stay_within_their_layer(space: Path) -> None:
    for layer in ("lower", "upper"):
        (space / layer).mkdir()
        (space / layer / "a").write_text(layer)
        for name in ("b", f"of-{layer}"):
            os.link(space / layer / "a", space / layer / name)
    (space / "lower" / "a-too").hardlink_to(space / "lower" / "a")
    merged = merge(space, "lower", "upper")
    assert (merged / "a").samefile(merged / "b") and (merged / "a").samefile(merged / "of-upper")
    assert (merged / "of-lower").samefile(merged / "a-too") and (merged / "a-too").read_text() == "lower"
    assert (merged / "a").stat().st_nlink == 3 and (merged / "a-too").stat().st_nlink == 2


def test_no_link_is_followed(space: Path) -> None:
    """A link below, where the layer above has a directory, and the other way round."""
    outside = space / "outside"
    outside.mkdir()
    for layer, linked, other in (("lower", "a", "b"), ("upper", "b", "a")):
        (space / layer / other).mkdir(parents=True)
        (space / layer / other / layer).touch()
        (space / layer / linked).symlink_to(outside)
    merged = merge(space, "lower", "upper")
    assert not list(outside.iterdir())
    assert (merged / "a" / "upper").exists() and not (merged / "a").is_symlink() and (merged / "b").is_symlink()
