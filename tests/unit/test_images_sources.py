"""What can be imported: directories, archives in every compression, OCI layouts, docker-archives."""

import bz2
import gzip
import json
import lzma
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from burnish.errors import UserError
from burnish.sandbox.images import ImageStore
from burnish.sandbox.images.image import ImageLimits
from burnish.sandbox.images.location import default_store_dir
from tests.image_sources import (
    OTHER_ARCHITECTURE,
    Layout,
    digest_of,
    docker_archive,
    holds,
    member,
    tar_bytes,
    write_files,
)

BASE = tar_bytes(member("etc/os", b"old"), member("gone", b"x"), member("d/1", b"1"), member("d/2", b"2"))
UPPER = tar_bytes(member("etc/os", b"new"), member(".wh.gone"), member("d/.wh..wh..opq"), member("d/3", b"3"))
FLAT = {"etc": "dir", "etc/os": "new", "d": "dir", "d/3": "3"}
CONFIG = {"Env": ["PATH=/bin", "A=b=c"], "WorkingDir": "/app/", "User": "1000:1000", "Entrypoint": ["/evil"]}

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "tar": lambda data: data,
    "gz": gzip.compress,
    "two-gz": lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:]),
    "bz2": bz2.compress,
    "two-bz2": lambda data: bz2.compress(data[:100]) + bz2.compress(data[100:]),
    "xz": lzma.compress,
    "two-xz": lambda data: lzma.compress(data[:100]) + bytes(4) + lzma.compress(data[100:]),
    "zst": zstandard.compress,
    "two-zst": lambda data: zstandard.compress(data[:100]) + zstandard.compress(data[100:]),
    # Tools for lazy pulling put their notes into frames to be skipped.
    "noted-zst": lambda data: zstandard.compress(data) + b"\x50\x2a\x4d\x18\x04\0\0\0note",
}


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


def archive(path: Path, files: dict[str, bytes], compress: Callable[[bytes], bytes] = bytes) -> str:
    path.write_bytes(compress(tar_bytes(*(member(name, data) for name, data in files.items()))))
    return str(path)


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_an_archive_in_every_compression(store: ImageStore, tmp_path: Path, kind: str) -> None:
    data = tar_bytes(member("f", os.urandom(3_000_000)), member("d/g", b"x"))
    (tmp_path / "i.tar").write_bytes(COMPRESSIONS[kind](data))
    image = store.import_image(str(tmp_path / "i.tar"))
    assert sorted(holds(image.rootfs)) == ["d", "d/g", "f"]
    assert (image.size_bytes, image.num_entries, image.name) == (3_000_001, 3, "i:latest")


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_an_archive_that_is_cut_short(store: ImageStore, tmp_path: Path, kind: str, keep: float) -> None:
    data = COMPRESSIONS[kind](tar_bytes(member("f", os.urandom(100_000)), *(member(f"g{n}", b"") for n in range(90))))
    (tmp_path / "i.tar").write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(UserError, match=r"damaged|cut short"):
        store.import_image(str(tmp_path / "i.tar"))
    assert store.list() == [] and not list((store.root / "drafts").iterdir())


@pytest.mark.parametrize(
    "data", [b"", b"hello" * 1000, b"\x1f\x8bgarbage" * 99, b"BZhgarbage" * 99, b"\xfd7zXZ\0no" * 99]
)
def test_what_is_no_archive(store: ImageStore, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "i").write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        store.import_image(str(tmp_path / "i"))


def test_a_dictionary_larger_than_memory_is_refused(store: ImageStore, tmp_path: Path) -> None:
    packer = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    ).compressobj(size=-1)
    (tmp_path / "i").write_bytes(packer.compress(BASE) + packer.flush())
    with pytest.raises(UserError, match="damaged"):
        store.import_image(str(tmp_path / "i"))


def test_a_directory(store: ImageStore, tmp_path: Path) -> None:
    source = write_files(tmp_path / "src", {"a/f": b"data", "a/g": b""})
    (source / "a/hard").hardlink_to(source / "a/f")
    (source / "a/soft").symlink_to("/etc/passwd")
    (source / "a/f").chmod(0o4751)
    os.mkfifo(source / "fifo")
    os.utime(source / "a/f", ns=(5, 1_234_567_890_123_456_789))
    (source / "a").chmod(0o700)
    os.utime(source / "a", ns=(5, 42_000_000_000))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "s"))
        image = store.import_image(str(source), "mine:1")
    assert holds(image.rootfs) == {
        "a": "dir", "a/f": "data", "a/g": "", "a/hard": "= a/f", "a/soft": "-> /etc/passwd", "fifo": "fifo",
    }  # fmt: skip
    status = (image.rootfs / "a/f").stat()
    assert (status.st_mode & 0o7777, status.st_mtime_ns, status.st_nlink) == (0o751, 1_234_567_890_123_456_789, 2)
    assert (image.rootfs / "a").stat().st_mtime_ns == 42_000_000_000
    assert image.skipped == {"sockets": 1}
    assert image.ownership == ("numeric" if os.geteuid() == 0 else "importer")
    again = ImageStore(tmp_path / "other").import_image(str(image.rootfs))
    assert again.digest == image.digest


def test_a_directory_with_the_store_inside(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="store is inside"):
        ImageStore(tmp_path / "a" / "store").import_image(str(tmp_path))


def test_the_digest_tells_every_difference(store: ImageStore, tmp_path: Path) -> None:
    variants = [
        [member("a", b"x")],
        [member("b", b"x")],
        [member("a", b"y")],
        [member("a", b"x", mode=0o600)],
        [member("a", b"x", mtime=1)],
        [member("a", kind="symlink", link="x")],
        [member("a", kind="fifo")],
        [member("a", kind="dir")],
        [member("a", b"x"), member("b", b"x")],
        [member("a", b"x"), member("b", kind="hardlink", link="a")],
        [member("a/b", b"x")],
        [member("./", kind="dir", mode=0o700), member("a", b"x")],
    ]
    digests = set()
    for number, members in enumerate(variants):
        (tmp_path / f"v{number}.tar").write_bytes(tar_bytes(*members))
        digests.add(store.import_image(str(tmp_path / f"v{number}.tar")).digest)
    assert len(digests) == len(variants)


@pytest.mark.parametrize("form", ["folder", "tar", "zst"])
def test_an_oci_layout(store: ImageStore, tmp_path: Path, form: str) -> None:
    layout = Layout()
    ours = layout.image([BASE, UPPER], config=CONFIG)
    other = layout.image([tar_bytes(member("no"))], architecture=OTHER_ARCHITECTURE)
    files = layout.files(layout.index(other, layout.index(ours)))
    if form == "folder":
        source = str(write_files(tmp_path / "lay", files))
    else:
        source = archive(tmp_path / "lay.tar", files, COMPRESSIONS[form])
    image = store.import_image(source)
    assert holds(image.rootfs) == FLAT
    assert (image.env, image.workdir, image.user) == ({"PATH": "/bin", "A": "b=c"}, "/app", "1000:1000")
    assert (image.name, image.source_digest) == ("lay:latest", ours["digest"])
    assert store.get(ours["digest"]) == store.get(image.digest[:20]) == image


def test_layouts_for_other_machines(store: ImageStore, tmp_path: Path) -> None:
    layout = Layout()
    files = layout.files(layout.image([BASE], architecture=OTHER_ARCHITECTURE))
    with pytest.raises(UserError, match=f"but for linux/{OTHER_ARCHITECTURE}"):
        store.import_image(str(write_files(tmp_path / "a", files)))
    hidden = layout.image([BASE], architecture=OTHER_ARCHITECTURE)
    del hidden["platform"]
    with pytest.raises(UserError, match="this machine is"):
        store.import_image(str(write_files(tmp_path / "b", layout.files(hidden))))
    with pytest.raises(UserError, match="this machine is"):
        store.import_image(archive(tmp_path / "c", docker_archive([BASE], architecture=OTHER_ARCHITECTURE)))


def test_one_of_several(store: ImageStore, tmp_path: Path) -> None:
    layout, note = Layout(), "org.opencontainers.image.ref.name"
    one = layout.image([BASE], annotations={note: "example.org/one:1"})
    two = layout.image([BASE, UPPER], annotations={note: "two"})
    source = str(write_files(tmp_path / "lay", layout.files(one, two)))
    with pytest.raises(UserError, match=r"several images: example.org/one:1, two\n.*SOURCE#NAME"):
        store.import_image(source)
    assert holds(store.import_image(f"{source}#two").rootfs) == FLAT
    assert store.import_image(f"{source}#example.org/one:1").name == "example.org/one:1"
    with pytest.raises(UserError, match="no image 'three'"):
        store.import_image(f"{source}#three")
    with pytest.raises(UserError, match="plain files"):
        store.import_image(f"{store.get('lay').rootfs}#x")


@pytest.mark.parametrize("compress", ["tar", "gz"])
def test_a_docker_archive(store: ImageStore, tmp_path: Path, compress: str) -> None:
    files = docker_archive([BASE, UPPER], "me/app:2")
    image = store.import_image(archive(tmp_path / "x", files, COMPRESSIONS[compress]))
    assert (holds(image.rootfs), image.name) == (FLAT, "me/app:2")


def test_a_docker_archive_with_a_linked_layer(store: ImageStore, tmp_path: Path) -> None:
    files = docker_archive([BASE, UPPER], "me/app:2")
    members = [member(name, data) for name, data in files.items() if name != "1/layer.tar"]
    members += [member("real/layer.tar", UPPER), member("1/layer.tar", kind="symlink", link="../real/layer.tar")]
    (tmp_path / "x").write_bytes(tar_bytes(*members))
    assert holds(store.import_image(str(tmp_path / "x")).rootfs) == FLAT


def test_a_file_called_manifest_is_no_docker_archive(store: ImageStore, tmp_path: Path) -> None:
    image = store.import_image(archive(tmp_path / "x", {"manifest.json": b"{}", "a": b"b"}))
    assert holds(image.rootfs) == {"manifest.json": "{}", "a": "b"}


@pytest.mark.parametrize("damage", ["content", "size", "missing", "diff_id", "kind", "escape"])
def test_damaged_layouts(store: ImageStore, tmp_path: Path, damage: str) -> None:
    layout = Layout()
    ours = layout.image([BASE], diff_ids=[digest_of(b"other")] if damage == "diff_id" else None)
    manifest = json.loads(layout.blobs[ours["digest"]])
    blob = manifest["layers"][0]
    if damage == "size":
        blob["size"] += 1
    if damage == "kind":
        manifest["config"]["mediaType"] = "application/vnd.cncf.helm.config.v1+json"
    if damage == "escape":
        blob["digest"] = "sha256:../../../../etc/passwd"
    files = layout.files(layout.add_json(manifest, ours["mediaType"]))
    path = f"blobs/{blob['digest'].replace(':', '/')}"
    if damage == "content":
        files[path] = files[path][:-1] + b"!"
    if damage == "missing":
        del files[path]
    expected = {
        "content": "damaged", "size": "damaged", "missing": "missing", "diff_id": "not what the image",
        "kind": "not a container image", "escape": "not a SHA-256",
    }[damage]  # fmt: skip
    with pytest.raises(UserError, match=expected):
        store.import_image(str(write_files(tmp_path / "lay", files)))
    assert store.list() == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("index.json", b"[" * 100_000),
        ("index.json", b"[]"),
        ("index.json", b'{"manifests": [3]}'),
        ("index.json", b'{"manifests": {}}'),
        ("index.json", b'{"manifests": []}'),
        ("index.json", b'{"manifests": [{"digest": "sha256:", "size": "x"}]}'),
        ("index.json", b"\xff"),
    ],
)
def test_garbage_in_layouts(store: ImageStore, tmp_path: Path, name: str, content: bytes) -> None:
    files = Layout().files() | {name: content}
    with pytest.raises(UserError):
        store.import_image(str(write_files(tmp_path / "lay", files)))


@pytest.mark.parametrize(
    "config",
    [{"Env": ["novalue"]}, {"Env": [3]}, {"Env": "A=b"}, {"User": 0}, {"WorkingDir": "a\0b"}, {"Env": ["A=\0"]}],
)
def test_garbage_in_configurations(store: ImageStore, tmp_path: Path, config: dict[str, object]) -> None:
    layout = Layout()
    with pytest.raises(UserError):
        store.import_image(str(write_files(tmp_path / "lay", layout.files(layout.image([BASE], config=config)))))


@pytest.mark.parametrize(("given", "workdir"), [("", "/"), ("app", "/app"), ("/a/../..//b/", "/b"), ("//", "/")])
def test_working_directories(store: ImageStore, tmp_path: Path, given: str, workdir: str) -> None:
    layout = Layout()
    files = layout.files(layout.image([BASE], config={"WorkingDir": given}))
    assert store.import_image(str(write_files(tmp_path / "lay", files))).workdir == workdir


def test_too_many_layers(store: ImageStore, tmp_path: Path) -> None:
    source = archive(tmp_path / "x", docker_archive([BASE] * 3))
    with pytest.raises(UserError, match="3 layers, more than 2"):
        store.import_image(source, limits=ImageLimits(max_layers=2))


def test_no_source(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        store.import_image(str(tmp_path / "missing"))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match="not a regular file"):
        store.import_image(str(tmp_path / "fifo"))


def test_where_images_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path))
    assert default_store_dir() == tmp_path / "images"
    monkeypatch.delenv("BURNISH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_store_dir() == Path("/x/burnish/images")
