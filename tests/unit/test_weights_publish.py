"""A version is there whole or not at all."""

import errno
from pathlib import Path

import pytest

from burnish.errors import LearnerError, StoreError
from burnish.weights.publish import checkpoint_folder, latest, publish_version, whole_folder


def publish(root: Path, version: int, *, keep: int = 2) -> None:
    with publish_version(root, version, keep=keep) as folder:
        (folder / "model.safetensors").write_text(str(version))


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for version in (1, 2, 12):
        publish(tmp_path, version)
    assert names(tmp_path) == ["v000002", "v000012"]
    assert latest(tmp_path) == (12, tmp_path / "v000012")


def test_nothing_is_visible_before_the_end(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    with publish_version(tmp_path, 2) as folder:
        (folder / "model.safetensors").write_text("half")
        assert latest(tmp_path) == (1, tmp_path / "v000001")
    assert latest(tmp_path) == (2, tmp_path / "v000002")


def test_a_full_disk_leaves_nothing_and_is_the_stores_failure(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No space left"), publish_version(tmp_path, 3) as folder:
        (folder / "model.safetensors").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path) == []
    assert latest(tmp_path) is None


def test_another_failure_keeps_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match="died"), checkpoint_folder(tmp_path, 3):
        raise LearnerError("died")
    assert names(tmp_path) == []


def test_what_a_killed_writer_left_is_never_read_and_is_swept(tmp_path: Path) -> None:
    killed = whole_folder(tmp_path, "v000009", keep=2, durable=False)
    (killed.__enter__() / "model.safetensors").write_text("half")  # and no exit: the process is gone
    assert latest(tmp_path) is None
    publish(tmp_path, 1)
    assert names(tmp_path) == ["v000001"]


def test_a_step_that_is_written_again_replaces_the_old(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with checkpoint_folder(tmp_path, 10) as folder:
            (folder / "learner.json").write_text(text)
    assert names(tmp_path) == ["step-000010"]
    assert (tmp_path / "step-000010" / "learner.json").read_text() == "second"


def test_a_root_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="prepare"):
        publish(tmp_path / "file" / "weights", 1)


def test_at_least_one_version_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep must be at least 1, not 0"):
        publish(tmp_path, 1, keep=0)
    assert latest(tmp_path / "nowhere") is None
