"""`burnish image`, verb by verb."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from burnish.errors import UserError
from burnish.sandbox import images
from burnish.sandbox.images.cli import image_app
from tests.image_sources import member, tar_bytes


def run(*words: object) -> str:
    result = CliRunner().invoke(image_app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "my.tar").write_bytes(tar_bytes(member("f", b"123"), member("null", kind="char")))
    return tmp_path / "my.tar"


def test_the_life_of_an_image(source: Path) -> None:
    said = run("import", source)
    assert said.startswith("my:latest ") and said.endswith(": 1 entries, 3 bytes, 1 devices left out\n")
    run("import", source, "--name", "other:1")
    assert [line.split()[0] for line in run("list").splitlines()] == ["my:latest", "other:1"]
    shown = json.loads(run("inspect", "other"))
    assert shown["name"] == "other:1" and shown["skipped"] == {"devices": 1}
    assert Path(shown["rootfs"], "f").read_text() == "123"
    run("remove", shown["digest"][:20])
    assert run("list") == ""


def test_another_store(source: Path, tmp_path: Path) -> None:
    run("import", source, "--store", tmp_path / "s")
    assert run("list") == "" and run("list", "--store", tmp_path / "s") != ""


def test_errors_are_for_main(source: Path) -> None:
    for words in (("remove", "no"), ("inspect", "no"), ("import", "/missing"), ("pull", "Not A Name")):
        with pytest.raises(UserError):
            run(*words)


def test_pull_hands_over(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def stand_in(store: images.ImageStore, reference: str, **more: Any) -> images.Image:
        seen.update(more, reference=reference)
        return store.import_image(str(source))

    monkeypatch.setattr(images, "pull_image", stand_in, raising=False)
    run("pull", "python:3.12-slim", "--name", "py", "--timeout-s", 5)
    assert (seen["reference"], seen["name"], seen["timeout_s"]) == ("python:3.12-slim", "py", 5.0)
