"""The walk that stands in for openat2 where the kernel does not have it."""

import os
from pathlib import Path

import pytest

from burnish.sandbox.oci import agent_files
from burnish.sandbox.oci.agent_files import Refused


def read(home: Path, path: str, max_bytes: int = 1 << 20) -> bytes:
    return agent_files.read(str(home), path, 0, max_bytes)[1]


def test_a_file_in_parts(tmp_path: Path) -> None:
    agent_files.write(str(tmp_path), "a/b/file", 0, b"first ")
    agent_files.write(str(tmp_path), "a/b/file", 6, b"second")
    assert (tmp_path / "a/b/file").read_bytes() == b"first second"
    assert agent_files.read(str(tmp_path), "a/./b//file", 6, 100) == (12, b"second")
    agent_files.write(str(tmp_path), "a/b/../b/file", 0, b"x")
    assert read(tmp_path, "/" + str(tmp_path / "a/b/file")) == b"x"
    with pytest.raises(Refused, match=r"larger than 0 bytes \(1\)"):
        read(tmp_path, "a/b/file", 0)


def test_links_are_walked_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "absolute").symlink_to(tmp_path / "link")
    (tmp_path / "up").symlink_to(f"../{tmp_path.name}/absolute")
    (tmp_path / "loop").symlink_to("loop")
    assert read(tmp_path, "up") == b"x"
    agent_files.write(str(tmp_path), "up", 0, b"through")
    assert (tmp_path / "file").read_bytes() == b"through"
    with pytest.raises(OSError, match="Too many levels"):
        read(tmp_path, "loop")
    assert agent_files.exists(str(tmp_path), "up") and not agent_files.exists(str(tmp_path), "loop")


@pytest.mark.parametrize(
    "target", ["/proc/self/environ", "/proc/self/fd/0", "/proc/self/root/etc/passwd", "/dev/stdin"]
)
def test_nothing_below_proc_is_entered(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    for path in ("link", target):
        with pytest.raises(Refused, match="not a regular file"):
            read(tmp_path, path)
        with pytest.raises((Refused, OSError)):
            agent_files.write(str(tmp_path), path, 0, b"x")
        assert not agent_files.exists(str(tmp_path), path)


def test_only_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    for path in ("fifo", "/dev/null", "dir", "/"):
        with pytest.raises(Refused):
            read(tmp_path, path)
    for path in ("fifo", "/dev/null", "new/", "/", ".."):
        with pytest.raises(Refused):
            agent_files.write(str(tmp_path), path, 0, b"x")
    with pytest.raises(IsADirectoryError):
        agent_files.write(str(tmp_path), "dir", 0, b"x")


def test_what_is_missing(tmp_path: Path) -> None:
    for path in ("", "missing", "missing/file"):
        with pytest.raises(FileNotFoundError):
            read(tmp_path, path)
    assert agent_files.exists(str(tmp_path), "/") and not agent_files.exists(str(tmp_path), "missing")


def test_a_link_put_in_place_of_the_file_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the walk and the open: the name is opened without following."""
    (tmp_path / "name").symlink_to("/etc/passwd")
    monkeypatch.setattr(agent_files, "_link", lambda here, name: None)
    with pytest.raises(OSError, match=r"Too many levels|Not a directory"):
        read(tmp_path, "name")


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    (tmp_path / "a").mkdir()
    for path in ("a", "a/b/c", "/proc/self/x", "missing/x", "a/../a/x/"):
        for call in (
            lambda path=path: agent_files.read(str(tmp_path), path, 0, 1),
            lambda path=path: agent_files.write(str(tmp_path), path, 0, b""),
            lambda path=path: agent_files.exists(str(tmp_path), path),
        ):
            try:
                call()
            except (OSError, Refused):
                continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before
