"""Archives of layers: as other tools read them, and as strangers make them."""

import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.sandbox.process import archive, trees, unarchive
from burnish.sandbox.process.jobs import Refused

ME = os.geteuid()


def packed(root: Path, leave_out: str = "") -> bytes:
    with tempfile.TemporaryFile() as out:
        opened = os.open(root, trees.FOLDER)
        archive.pack(opened, out.fileno(), rootless=True, leave_out=leave_out)
        os.close(opened)
        out.seek(0)
        return out.read()


def unpack(data: bytes, root: Path, *, forbidden: bytes = b"") -> None:
    owners = unarchive.Owners(ME, ME, rootless=True, fixed_root=False)
    with tempfile.TemporaryFile() as source:
        source.write(data)
        source.seek(0)
        opened = os.open(root, trees.FOLDER)
        try:
            unarchive.unpack(source.fileno(), opened, owners, forbidden=forbidden)
        finally:
            os.close(opened)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "sub" / "root"
    made.mkdir(parents=True)
    return made


def member(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **fields: object) -> tuple[object, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.uname, info.gname = kind, len(content), "", ""
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def made_of(*members: tuple[object, bytes]) -> bytes:
    top = tarfile.TarInfo(".")
    top.type = tarfile.DIRTYPE
    parts = []
    for info, content in ((top, b""), *members):
        assert isinstance(info, tarfile.TarInfo)
        parts += [info.tobuf(tarfile.PAX_FORMAT), content, bytes(-len(content) % archive.BLOCK)]
    return b"".join([*parts, bytes(2 * archive.BLOCK)])


def test_the_same_files_make_the_same_bytes_wherever_they_are(tmp_path: Path, root: Path) -> None:
    source = tmp_path / "source"
    (source / "b" / "deep").mkdir(parents=True)
    (source / "b" / "a").write_bytes(b"x" * 3000)
    os.link(source / "b" / "a", source / "z")
    (source / "link").symlink_to("../../..")
    os.mkfifo(source / "pipe", 0o600)
    with (source / "sparse").open("wb") as file:
        file.seek(1 << 30)
        file.write(b"end")
        file.truncate(1 << 31)
    (source / ("n" * 200)).mkdir(mode=0o700)
    os.close(os.open(os.fsencode(source) + b"/\xff", os.O_CREAT | os.O_WRONLY, 0o640))
    os.utime(source / "z", ns=(0, 123_456_789_012_345_678))
    data = packed(source)
    unpack(data, root)
    assert packed(root) == data
    assert (root / "z").samefile(root / "b" / "a") and (root / "sparse").stat().st_blocks < 100
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:  # others can read it, too
        assert [name for name in tar.getnames() if len(name) < 100] == [
            ".", "b", "b/a", "b/deep", "link", "pipe", "sparse", "z", "\udcff",
        ]  # fmt: skip
        found = tar.extractfile("sparse")
        assert found is not None and found.seek(1 << 30) and found.read(4) == b"end\0"


def test_what_is_left_out_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "etc" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "etc").mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path, "etc"))) as tar:
        assert tar.getnames() == [".", "a", "a/etc"]


def test_a_path_without_a_bound_is_refused(tmp_path: Path) -> None:
    here = os.open(tmp_path, trees.FOLDER)
    for _ in range(archive.MAX_PATH_BYTES // 200 + 1):
        os.mkdir("n" * 200, dir_fd=here)
        here, above = os.open("n" * 200, trees.FOLDER, dir_fd=here), here
        os.close(above)
    os.close(here)
    with pytest.raises(OSError, match="a path of more than 16384 bytes"):
        packed(tmp_path)


D, S, L = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
HOSTILE = {
    "dots": (member("../out"),),
    "dots inside": (member("a", D), member("a/../../out")),
    "absolute": (member("/out"),),
    "a link as a parent": (member("a", S, linkname=".."), member("a/out")),
    "a link as a target": (member("a", S, linkname="../out"), member("a", content=b"x")),
    "a hard link out": (member("a", L, linkname="../out"),),
    "a hard link through a link": (member("a", S, linkname=".."), member("b", L, linkname="a/there")),
    "a hard link to a directory": (member("a", D), member("b", L, linkname="a")),
    "a hard link to nothing": (member("b", L, linkname="a"),),
    "a device": (member("a", tarfile.CHRTYPE, devmajor=1, devminor=3),),
    "a block device": (member("a", tarfile.BLKTYPE),),
    "twice": (member("a"), member("a")),
    "a file as a parent": (member("a"), member("a/b")),
    "no parent": (member("a/b"),),
    "a parent that was left": (member("a", D), member("b", D), member("a/c")),
    "a name too long": (member("n" * 300),),
    "overlay's own marks": (member("a", D, pax_headers={"trusted.overlay.opaque": "y"}),),
    "an unknown record": (member("a", pax_headers={"SCHILY.xattr.security.capability": "x"}),),
    "overlay's marks by another name": (member("a", pax_headers={"SCHILY.xattr.user.overlay.opaque": "y"}),),
    "holes that are none": (member("a", content=b"1\n5\n", pax_headers={"GNU.sparse.realsize": "9"}),),
    "holes without an end": (
        member("a", content=b"99999999\n".ljust(512, b"\0"), pax_headers={"GNU.sparse.realsize": "9"}),
    ),
    "a size beyond all": (
        member("a", content=b"1\n0\n0\n".ljust(512, b"\0"), pax_headers={"GNU.sparse.realsize": str(1 << 70)}),
    ),
    "what every host writes": (member("etc", D),),
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_nothing_is_written_outside(members: tuple[tuple[object, bytes], ...], tmp_path: Path, root: Path) -> None:
    (tmp_path / "sub" / "there").write_bytes(b"mine")
    before = sorted(str(path) for path in tmp_path.rglob("*") if root not in path.parents)
    with pytest.raises(Refused) as refusal:
        unpack(made_of(member("fine"), *members), root, forbidden=b"etc")
    assert "top directory" not in str(refusal.value) and (root / "fine").exists()
    assert sorted(str(path) for path in tmp_path.rglob("*") if root not in path.parents) == before
    assert (tmp_path / "sub" / "there").stat().st_nlink == 1


def test_privileges_are_not_taken_over(root: Path) -> None:
    unpack(made_of(member("a", mode=0o6777, uid=0), member("b", D, mode=0o7777)), root)
    assert (root / "a").stat().st_mode & 0o7777 == 0o777 and (root / "b").stat().st_mode & 0o7777 == 0o1777


def cuts(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), 256):
        yield data[:at]


def test_an_archive_cut_short_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(b"x" * 700)
    (source / ("n" * 150)).mkdir()
    data = packed(source)
    for number, cut in enumerate([*cuts(data), data + b"\0"]):
        target = tmp_path / str(number)
        target.mkdir()
        with pytest.raises(Refused, match="damaged"):
            unpack(cut, target)


def test_a_changed_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    """The digest notices it afterwards; until then it must do nothing worse than a wrong layer."""
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "a").write_bytes(b"x" * 10)
    os.utime(source / "d" / "a", ns=(0, 5))
    data = packed(source)
    for at in range(0, len(data), 7):
        target = tmp_path / f"t{at}"
        target.mkdir()
        changed = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        try:
            unpack(changed, target)
        except Refused:
            continue
