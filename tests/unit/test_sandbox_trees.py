"""Copies of trees that were made to break a copy."""

import os
import resource
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from burnish.sandbox.process import trees


def descriptors() -> list[str]:
    return [entry.name for entry in Path("/proc/self/fd").iterdir()]


def copied(source: Path, tmp_path: Path) -> Path:
    made = [tmp_path / "copy", tmp_path / "links"]
    for folder in made:
        folder.mkdir()
    opened = [os.open(folder, trees.FOLDER) for folder in (source, *made)]
    before = descriptors()
    try:
        trees.copy(*opened)
        assert descriptors() == before
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert list(made[1].iterdir()) == []
    return made[0]


def few_descriptors(work: Callable[[], object]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, descriptors())) + 16, hard))
    try:
        work()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def deep_path() -> Iterator[Path]:
    """For trees that pytest's own clean-up would not get to the bottom of."""
    path = tempfile.mkdtemp(prefix="burnish-deep-")
    yield Path(path)
    subprocess.run(["rm", "-rf", path], check=True)


def test_depth_beyond_recursion_descriptors_and_paths(deep_path: Path) -> None:
    source = deep_path / "source"
    source.mkdir()
    here = os.open(source, trees.FOLDER)
    for _ in range(1500):
        os.mkdir("deeper", dir_fd=here)
        here, above = os.open("deeper", trees.FOLDER, dir_fd=here), here
        os.close(above)
    os.close(os.open("deepest", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    few_descriptors(lambda: copied(source, deep_path))
    opened = os.open(deep_path / "copy", trees.FOLDER)
    names = [name for kind, _, name, _ in trees.walk(opened) if kind != trees.LEAVE]
    os.close(opened)
    assert names == ["", *["deeper"] * 1500, "deepest"]


def test_hard_links_by_the_thousand(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    for number in range(1200):
        (source / f"a{number}").touch()
        os.link(source / f"a{number}", source / "sub" / f"b{number}")
    few_descriptors(lambda: copied(source, tmp_path))
    for number in (0, 1199):
        first, second = tmp_path / "copy" / f"a{number}", tmp_path / "copy" / "sub" / f"b{number}"
        assert first.stat().st_nlink == 2 and first.samefile(second)


def test_holes_stay_holes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with (source / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 30)
        file.write(b"data")
        file.seek((1 << 40) - 4)
        file.write(b"tail")
    (source / "hole").touch()
    os.truncate(source / "hole", 1 << 41)
    copy = copied(source, tmp_path)
    with (copy / "sparse").open("rb") as file:
        assert file.seek(1 << 30) and file.read(5) == b"data\0"
        assert file.seek(-4, os.SEEK_END) and file.read() == b"tail"
    assert (copy / "sparse").stat().st_size == 1 << 40 and (copy / "hole").stat().st_size == 1 << 41
    assert (copy / "sparse").stat().st_blocks < 1 << 12


def test_every_kind_of_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "fifo", 0o640)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(source / "socket"))
    (source / "link").symlink_to("nowhere")
    os.link(source / "link", source / "link-2", follow_symlinks=False)
    os.mknod(source / "whiteout", stat.S_IFCHR, 0)
    (source / "shut").mkdir()
    name = os.fsencode(source) + b"/not-utf8-\xff"
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o000))
    os.utime(source / "link", ns=(10**18, 10**18 + 1), follow_symlinks=False)
    os.utime(source / "fifo", ns=(10**18, 10**18 + 2))
    (source / "shut").chmod(0o500)
    with_xattr = True
    try:
        os.setxattr(source / "shut", "user.mark", b"\0x")
    except OSError:
        with_xattr = False
    copy = copied(source, tmp_path)
    for was in source.iterdir():
        one, other = was.lstat(), (copy / was.name).lstat()
        assert (one.st_mode, one.st_uid, one.st_gid, one.st_rdev, one.st_nlink) == (
            other.st_mode, other.st_uid, other.st_gid, other.st_rdev, other.st_nlink,
        ), was  # fmt: skip
        assert one.st_mtime_ns == other.st_mtime_ns
    assert len(list(source.iterdir())) == len(list(copy.iterdir()))
    if with_xattr:
        assert os.getxattr(copy / "shut", "user.mark") == b"\0x"


def test_a_directory_that_moves_under_the_walk_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    opened = os.open(tmp_path, trees.FOLDER)
    walk = trees.walk(opened)
    try:
        while next(walk)[2] != "b":
            pass
        (tmp_path / "a" / "b").rename(tmp_path / "elsewhere" / "b")
        with pytest.raises(OSError, match="moved while"):
            list(walk)
    finally:
        os.close(opened)
