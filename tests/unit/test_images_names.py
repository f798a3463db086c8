"""Names of images."""

import pytest

from burnish.errors import UserError
from burnish.sandbox.images.entries import MAX_DEPTH
from burnish.sandbox.images.image import ImageLimits
from burnish.sandbox.images.manifest import MAX_JSON_BYTES
from burnish.sandbox.images.reference import name_from_file, parse_reference
from burnish.sandbox.images.tar import MAX_EXTENDED_BYTES
from tests.guards.source import ROOT

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "registry", "repository", "name"),
    [
        ("python", "docker.io", "library/python", "python:latest"),
        ("docker.io/library/python:3.12-slim", "docker.io", "library/python", "python:3.12-slim"),
        ("index.docker.io/me/x", "docker.io", "me/x", "me/x:latest"),
        ("ghcr.io/x/y:1", "ghcr.io", "x/y", "ghcr.io/x/y:1"),
        (f"ghcr.io/x/y@{DIGEST}", "ghcr.io", "x/y", f"ghcr.io/x/y@{DIGEST}"),
        (f"ghcr.io/x/y:1@{DIGEST}", "ghcr.io", "x/y", f"ghcr.io/x/y:1@{DIGEST}"),
        ("localhost/x", "localhost", "x", "localhost/x:latest"),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000", "a/b", "127.0.0.1:5000/a/b:latest"),
        ("[::1]:5000/a", "[::1]:5000", "a", "[::1]:5000/a:latest"),
    ],
)
def test_names_are_read(text: str, registry: str, repository: str, name: str) -> None:
    found = parse_reference(text)
    assert (found.registry, found.repository, found.name) == (registry, repository, name)
    assert parse_reference(found.name) == found


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "@", "a b", "Upper", "../x", "a/../b", "/a", "a/", "a//b", "a:", "a:b/c", "a:-x", "a@sha256:123", "a@",
        f"a@{DIGEST.upper()}", "a\n", "a%2f", "http://x/y", "user@host/x", "x" * 200, "a:" + "t" * 129, ".hidden",
    ],
)  # fmt: skip
def test_other_shapes_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_reference(text)


@pytest.mark.parametrize("text", ["host", "host:1", "docker.io/library/host"])
def test_the_host_is_no_image(text: str) -> None:
    with pytest.raises(UserError, match="reserved"):
        parse_reference(text)


@pytest.mark.parametrize(
    ("file_name", "name"),
    [("My Root FS.tar.zst", "my-root-fs"), ("x.tgz", "x"), ("rootfs", "rootfs"), (".tar", "image"), ("日本", "image")],
)
def test_a_file_gives_a_name(file_name: str, name: str) -> None:
    assert name_from_file(file_name) == name
    parse_reference(name)


def test_the_page_has_the_bounds_of_the_code() -> None:
    page, limits = (ROOT / "docs" / "images.md").read_text(), ImageLimits()
    for words in (
        f"{limits.max_bytes >> 30} GiB unpacked",
        f"{limits.max_entries // 1_000_000} million entries",
        f"{limits.max_layers} layers",
        f"{MAX_JSON_BYTES >> 20} MiB for each JSON document",
        f"{MAX_EXTENDED_BYTES >> 20} MiB for each extended tar header",
        f"more than {MAX_DEPTH} deep",
    ):
        assert words in page.replace("\n", " "), words
