"""Layers made by an adversary: nothing leaves the root, nothing is obeyed, everything is bounded."""

import gzip
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from burnish.errors import UserError
from burnish.sandbox.images.image import ImageLimits
from burnish.sandbox.images.tar import MAX_EXTENDED_BYTES
from tests.image_sources import flatten, holds, member, tar_bytes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "outer" / "root"
    folder.mkdir(parents=True)
    (tmp_path / "outer" / "secret").write_text("untouched")
    return folder


@pytest.fixture(autouse=True)
def nothing_outside_changes(root: Path, request: pytest.FixtureRequest) -> object:
    yield
    assert holds(root.parent)["secret"] == "untouched"
    assert {entry.name for entry in root.parent.iterdir()} == {"root", "secret"}


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/../evil", "a/..", ".."])
def test_names_that_climb_are_refused(root: Path, name: str) -> None:
    with pytest.raises(UserError, match="leaves its archive"):
        flatten(root, tar_bytes(member(name, b"x")))


def test_absolute_names_start_at_the_root(root: Path) -> None:
    flatten(root, tar_bytes(member("/etc/passwd", b"ours"), member("//x///y", b"z")))
    assert holds(root) == {"etc": "dir", "etc/passwd": "ours", "x": "dir", "x/y": "z"}


@pytest.mark.parametrize("target", ["/", "..", "../..", "/..", "../../../../../../../..", "/proc/self/cwd/../../../.."])
@pytest.mark.parametrize("same_layer", [True, False])
def test_a_planted_link_leads_nowhere(root: Path, target: str, same_layer: bool) -> None:
    link, file = member("link", kind="symlink", link=target), member("link/secret", b"evil")
    layers = [tar_bytes(link, file)] if same_layer else [tar_bytes(link), tar_bytes(file)]
    flatten(root, *layers)
    found = holds(root)
    assert found["link"] == f"-> {target}"
    assert [path for path, content in found.items() if content == "evil"] != []


def test_a_link_to_the_real_outside_leads_nowhere(root: Path) -> None:
    outside = str(root.parent)
    flatten(
        root,
        tar_bytes(member("a", kind="symlink", link=outside), member("b", kind="symlink", link="a")),
        tar_bytes(member("b/secret", b"evil"), member("a/.wh.secret"), member("b/.wh..wh..opq")),
    )
    assert holds(root)[f"{outside[1:]}/secret"] == "evil"  # below the root


def test_a_file_replaces_a_link_and_is_not_written_through_it(root: Path) -> None:
    link = member("f", kind="symlink", link=str(root.parent / "secret"))
    flatten(root, tar_bytes(link, member("f", b"evil")))
    assert holds(root) == {"f": "evil"}


def test_a_folder_replaces_a_link(root: Path) -> None:
    link = member("d", kind="symlink", link="..")
    flatten(root, tar_bytes(link), tar_bytes(member("d", kind="dir", mode=0o700), member("d/secret", b"x")))
    assert holds(root) == {"d": "dir", "d/secret": "x"}
    assert stat.S_IMODE(root.parent.stat().st_mode) == 0o755


def test_links_in_a_circle_end(root: Path) -> None:
    circle = [member("a", kind="symlink", link="b"), member("b", kind="symlink", link="a")]
    for name in ("a/x", "a/.wh.x", "a/.wh..wh..opq"):
        with pytest.raises(UserError, match="cannot be done"):
            flatten(root, tar_bytes(*circle, member(name, b"")))


@pytest.mark.parametrize("link", ["../secret", "a/../../secret", "/../secret"])
def test_hard_links_that_climb_are_refused(root: Path, link: str) -> None:
    with pytest.raises(UserError, match="leaves its archive"):
        flatten(root, tar_bytes(member("h", kind="hardlink", link=link)))


def test_a_hard_link_through_a_link_stays_inside(root: Path) -> None:
    link = member("up", kind="symlink", link="..")
    with pytest.raises(UserError, match="hard link to nothing"):
        flatten(root, tar_bytes(link, member("h", kind="hardlink", link="up/secret")))


def test_a_hard_link_to_a_link_is_the_link(root: Path) -> None:
    link = member("l", kind="symlink", link=str(root.parent / "secret"))
    flatten(root, tar_bytes(link, member("h", kind="hardlink", link="l"), member("h", b"evil")))
    assert holds(root) == {"h": "evil", "l": f"-> {root.parent}/secret"}


@pytest.mark.parametrize("link", ["missing", "d", "", "/"])
def test_hard_links_need_a_file(root: Path, link: str) -> None:
    with pytest.raises(UserError, match="a hard link to"):
        flatten(root, tar_bytes(member("d", kind="dir"), member("h", kind="hardlink", link=link)))


def test_a_hard_link_to_itself_keeps_the_file(root: Path) -> None:
    flatten(root, tar_bytes(member("f", b"x"), member("f", kind="hardlink", link="/f")))
    assert holds(root) == {"f": "x"}


def test_devices_are_left_out_and_counted(root: Path) -> None:
    devices = [member("null", kind="char"), member("disk", kind="block"), member("n2", kind="hardlink", link="null")]
    _, budget = flatten(root, tar_bytes(member("null", b"before")), tar_bytes(*devices, member("p", kind="fifo")))
    assert holds(root) == {"p": "fifo"}
    assert budget.skipped == {"devices": 3}


def test_privileged_bits_go_the_sticky_one_stays(root: Path) -> None:
    flatten(
        root,
        tar_bytes(
            member("su", b"x", mode=0o6755),
            member("tmp", kind="dir", mode=0o7777),
            member("p", kind="fifo", mode=0o6600),
        ),
    )
    modes = {name: oct(stat.S_IMODE((root / name).stat().st_mode)) for name in ("su", "tmp", "p")}
    assert modes == {"su": "0o755", "tmp": "0o1777", "p": "0o600"}


def test_only_harmless_attributes_are_kept(root: Path) -> None:
    wanted = {
        "user.note": "v",
        "user.overlay.opaque": "y",
        "trusted.overlay.redirect": "/x",
        "security.capability": "c",
    }
    pax = {f"SCHILY.xattr.{name}": value for name, value in wanted.items()}
    _, budget = flatten(root, tar_bytes(member("f", b"x", pax=pax), member("d", kind="dir", pax=pax)))
    if budget.skipped["xattrs"]:
        pytest.skip("this file system has no user attributes")
    assert os.listxattr(root / "f") == os.listxattr(root / "d") == ["user.note"]


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh...", "d/.wh...", ".wh.a/b", ".wh.a/.wh.b"])
def test_whiteouts_of_nothing_are_refused(root: Path, name: str) -> None:
    with pytest.raises(UserError, match="whiteout of nothing"):
        flatten(root, tar_bytes(member("d/x", b"")), tar_bytes(member(name)))


def test_whiteouts_through_links_stay_inside(root: Path) -> None:
    lower = [member("up", kind="symlink", link="../.."), member("secret", b"inner"), member("d/x", b"")]
    flatten(root, tar_bytes(*lower), tar_bytes(member("up/.wh.secret"), member("d/.wh.nothing"), member("no/.wh.x")))
    assert holds(root) == {"up": "-> ../..", "d": "dir", "d/x": ""}


def test_the_notes_of_aufs_are_left_out(root: Path) -> None:
    flatten(root, tar_bytes(member(".wh..wh.plnk/1.2", b"x"), member(".wh..wh.aufs"), member("f", b"x")))
    assert holds(root) == {"f": "x"}


def test_plain_sources_have_no_whiteouts(root: Path) -> None:
    flatten(root, tar_bytes(member("a", b"x"), member(".wh.a", b"y")), whiteouts=False)
    assert holds(root) == {"a": "x", ".wh.a": "y"}


def test_the_last_of_two_entries_counts(root: Path) -> None:
    flatten(root, tar_bytes(member("f", b"1"), member("./f", b"2"), member("d/x", b""), member("d", b"file")))
    assert holds(root) == {"f": "2", "d": "file"}


def test_names_in_any_encoding(root: Path) -> None:
    raw = tar_bytes(member("latin-\udce9", b"x"), member("new\nline", b"y"), member("-rf ~", b"z"), member("ü", b"u"))
    flatten(root, raw)
    found = {os.fsencode(entry.name) for entry in root.iterdir()}
    assert found == {b"latin-\xe9", b"new\nline", b"-rf ~", "ü".encode()}


@pytest.mark.parametrize("name", ["x" * 256, "a/" * 200 + "b", "a\0b"])
def test_names_that_cannot_be(root: Path, name: str) -> None:
    with pytest.raises(UserError, match="not a possible file name"):
        flatten(root, tar_bytes(member("short", b"", pax={"path": name})))


def test_links_cannot_dig_deeper_than_folders_may(root: Path) -> None:
    deep = "/".join(["d"] * 100)
    with pytest.raises(UserError, match="cannot be done"):
        flatten(
            root, tar_bytes(member(f"{deep}/x", b""), member("l", kind="symlink", link=deep), member(f"l/{deep}/x"))
        )


@pytest.mark.parametrize(
    ("limits", "match"),
    [
        (ImageLimits(max_bytes=1 << 20), "more than 1048576 bytes"),
        (ImageLimits(max_entries=2), "more than 2 entries"),
    ],
)
def test_bombs_are_bounded(root: Path, limits: ImageLimits, match: str) -> None:
    members = [member(f"f{number}", bytes(1 << 20)) for number in range(4)]
    bomb = gzip.compress(tar_bytes(*members))
    assert len(bomb) < 1 << 14
    with pytest.raises(UserError, match=match):
        flatten(root, bomb, limits=limits)


def test_a_size_that_is_not_there(root: Path) -> None:
    info, _ = member("f")
    info.size = 1 << 50
    with pytest.raises(UserError, match="cut short"):
        flatten(root, info.tobuf(tarfile.PAX_FORMAT) + b"x" * 512)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_extended_headers_are_bounded(root: Path, kind: bytes) -> None:
    info, _ = member("h")
    info.type, info.size = kind, MAX_EXTENDED_BYTES + 1
    with pytest.raises(UserError, match="extended header of"):
        flatten(root, info.tobuf(tarfile.GNU_FORMAT))


def test_extended_headers_in_a_row_end(root: Path) -> None:
    info, _ = member("h")
    info.type = b"L"
    with pytest.raises(UserError, match="ends too early"):
        flatten(root, info.tobuf(tarfile.GNU_FORMAT) * 5000)


@pytest.mark.parametrize(
    "body",
    [
        b"garbage", b"0 a=b\n", b"-6 a=b\n", b"6 a=b", b"99 a=b\n", b"6 =bb\n", b"6 abc\n", b"1", b" a=b\n",
        b"11 size=-1\n", b"12 size=1e9\n", b"13 uid=hello\n", b"30 size=99999999999999999999999\n",
    ],
)  # fmt: skip
def test_garbage_in_extended_headers(root: Path, body: bytes) -> None:
    header, _ = member("h")
    header.type, header.size = b"x", len(body)
    after = tar_bytes(member("f", b"x"))
    with pytest.raises(UserError, match="damaged archive"):
        flatten(root, header.tobuf(tarfile.USTAR_FORMAT) + body.ljust(512, b"\0") + after)


def test_times_out_of_range_are_moved_inside(root: Path) -> None:
    odd = {"old": "-5", "late": "9" * 17, "odd": "nan", "exact": "12.000000345"}
    flatten(root, tar_bytes(*(member(name, b"", pax={"mtime": text}) for name, text in odd.items())))
    times = {name: (root / name).stat().st_mtime_ns for name in odd}
    assert (times["old"], times["odd"], times["exact"]) == (0, 0, 12_000_000_345)
    assert times["late"] > 4e18


def test_sparse_files_are_refused_with_a_way_out(root: Path) -> None:
    with pytest.raises(UserError, match="--sparse"):
        flatten(root, tar_bytes(member("f", b"x", pax={"GNU.sparse.map": "0,1"})))


def test_the_root_is_a_folder(root: Path) -> None:
    flatten(root, tar_bytes(member("./", kind="dir", mode=0o711)))
    assert stat.S_IMODE(root.stat().st_mode) == 0o711
    with pytest.raises(UserError, match="root of the image"):
        flatten(root, tar_bytes(member("/", kind="symlink", link="/tmp")))


def test_unreadable_modes_are_no_trouble(root: Path) -> None:
    flatten(
        root,
        tar_bytes(member("d", kind="dir", mode=0), member("d/e/f", b"x", mode=0)),
        tar_bytes(member("d/e/g", b"y")),
    )
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0
    (root / "d").chmod(0o700)
    assert stat.S_IMODE((root / "d/e/f").stat().st_mode) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owners_are_kept_as_numbers(root: Path) -> None:
    entries = [
        member("f", b"x", owner=1234),
        member("d", kind="dir", owner=1235),
        member("l", kind="symlink", link="f", owner=1236),
    ]
    flatten(root, tar_bytes(*entries))
    assert [(root / name).lstat().st_uid for name in "fdl"] == [1234, 1235, 1236]


def test_impossible_owners(root: Path) -> None:
    with pytest.raises(UserError, match="owner"):
        flatten(root, tar_bytes(member("f", b"x", pax={"uid": "4294967295"})))


def test_no_descriptor_is_left_open(root: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    layer = tar_bytes(member("a/b/c", b"x"), member("l", kind="symlink", link="a/../a"), member("l/b/d", b"y"))
    flatten(root, layer, tar_bytes(member("a/.wh.b")))
    for broken in (layer[:700], tar_bytes(member("x/y"), member("l", kind="hardlink", link="l/no"))):
        with pytest.raises(UserError):
            flatten(root, broken)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_header_may_be_of_an_old_kind(root: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        info, _ = member("long/" + "n" * 120)
        info.uid = 1 << 30  # base 256
        archive.addfile(info, io.BytesIO())
    if os.geteuid() == 0:
        flatten(root, out.getvalue())
        assert (root / info.name).stat().st_uid == 1 << 30
