"""Merged layers are what the kernel shows of the single ones, over whatever lies below."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.sandbox.process import archive, syscalls, trees
from burnish.sandbox.process.merge import Merger

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems"),
]

PATHS = ["/".join(parts) for parts in ("a", "b", "c", "aa", "ab", "ba", "bb", "ca", "aab", "aba", "bab", "bbb")]
_KINDS = ("write", "append", "remove", "mkdir", "replace", "symlink", "link", "rename", "chmod", "fifo")
operations = st.lists(st.tuples(st.sampled_from(_KINDS), st.sampled_from(PATHS), st.sampled_from(PATHS)), max_size=10)
Operation = tuple[str, str, str]


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def replace(path: Path) -> None:
    remove(path)
    path.mkdir()


def append(path: Path, text: str) -> None:
    if path.is_fifo():
        return
    with path.open("a") as file:
        file.write(text)


def run(root: Path, operation: Operation, number: int) -> None:
    """What cannot be done is not done."""
    kind, first, second = operation
    path, other = root / first, root / second
    does: dict[str, Callable[[], object]] = {
        "write": lambda: append(path, f"written {number}"),
        "append": lambda: append(path, f"{number}"),
        "remove": lambda: remove(path),
        "mkdir": lambda: path.mkdir(),
        "replace": lambda: replace(path),
        "symlink": lambda: path.symlink_to(second),
        "link": lambda: os.link(path, other, follow_symlinks=False),
        "rename": lambda: path.rename(other),
        "chmod": lambda: None if path.is_symlink() else path.chmod(0o700 + number % 8),
        "fifo": lambda: os.mkfifo(path),
    }
    with contextlib.suppress(OSError):
        does[kind]()


def describe(root: Path) -> list[object]:
    found: list[object] = []
    opened = os.open(root, trees.FOLDER)
    try:
        for kind, folder, name, status in trees.walk(opened):
            if kind == trees.LEAVE or not name:  # the top is the private layer's own
                continue
            content: object = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(name, dir_fd=folder)
            elif stat.S_ISREG(status.st_mode):
                file = os.open(name, trees.FILE, dir_fd=folder)
                content = os.pread(file, 1 << 20, 0)
                os.close(file)
            found.append((kind, name, status.st_mode, status.st_uid, status.st_mtime_ns, content))
    finally:
        os.close(opened)
    return found


@contextlib.contextmanager
def tmpfs() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="burnish-merge-"))
    syscalls.mount("tmpfs", str(folder), "tmpfs")
    try:
        yield folder
    finally:
        syscalls.unmount(str(folder))
        folder.rmdir()


@contextlib.contextmanager
def shown(space: Path, lowest_first: Sequence[str], upper: str, *, rootless: bool) -> Iterator[Path]:
    for name in (upper, f"{upper}-work", f"{upper}-shown"):
        (space / name).mkdir()
    lowers = ":".join(str(space / name) for name in reversed(lowest_first))
    options = f"upperdir={space / upper},workdir={space / f'{upper}-work'},lowerdir={lowers}"
    options += ",volatile,index=off,metacopy=off,redirect_dir=nofollow" + (",userxattr" if rootless else "")
    target = space / f"{upper}-shown"
    syscalls.mount("overlay", str(target), "overlay", 0, options)
    try:
        yield target
    finally:
        syscalls.unmount(str(target))


def merge(space: Path, layers: Sequence[str], *, rootless: bool) -> str:
    names = ("merged", "links", "trash")
    for name in names:
        (space / name).mkdir()
    made = [os.open(space / name, trees.FOLDER) for name in names]
    root, links, trash = made
    merger = Merger(root, links, trash, archive.overlay_marks(rootless=rootless) + "opaque")
    for layer in layers:
        source = os.open(space / layer, trees.FOLDER)
        merger.apply(source)
        os.close(source)
    for descriptor in made:
        os.close(descriptor)
    assert not [*(space / "links").iterdir(), *(space / "trash").iterdir()]
    return "merged"


@pytest.mark.parametrize("rootless", [False, True])
@settings(max_examples=120, deadline=None)
@given(base=operations, layers=st.lists(operations, min_size=2, max_size=4))
def test_merged_layers_show_what_the_single_ones_did(
    rootless: bool, base: list[Operation], layers: list[list[Operation]]
) -> None:
    with tmpfs() as space:
        (space / "base").mkdir()
        for number, operation in enumerate(base):
            run(space / "base", operation, number)
        stack = ["base"]
        for index, todo in enumerate(layers):
            with shown(space, stack, f"layer{index}", rootless=rootless) as root:
                for number, operation in enumerate(todo):
                    run(root, operation, 100 * index + number)
            stack.append(f"layer{index}")
        with shown(space, stack, "single", rootless=rootless) as root:
            expected = describe(root)
        merged = merge(space, stack[1:], rootless=rootless)
        with shown(space, ["base", merged], "over", rootless=rootless) as root:
            assert describe(root) == expected
