"""Names, digests, holders and leftovers of a store."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from burnish.errors import SandboxError, UserError
from burnish.sandbox.images import Image, ImageStore, custody
from burnish.sandbox.images.custody import Custody
from tests.image_sources import holds, member, tar_bytes


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


def add(store: ImageStore, name: str, content: bytes = b"x") -> Image:
    source = store.root.parent / "source.tar"
    source.write_bytes(tar_bytes(member("f", content)))
    return store.import_image(str(source), name)


def folders(store: ImageStore) -> dict[str, int]:
    return {name: len(list((store.root / name).iterdir())) for name in ("names", "images", "drafts")}


def test_an_empty_store_is_not_made_by_looking(store: ImageStore) -> None:
    assert store.list() == []
    store.sweep()
    with pytest.raises(UserError, match="no such image"):
        store.get("x")
    assert not store.root.exists()


def test_images_are_found(store: ImageStore) -> None:
    one, two = add(store, "py:1", b"1"), add(store, "me/py:2", b"2")
    assert [image.name for image in store.list()] == ["me/py:2", "py:1"]
    for ref in ("py:1", "py", "docker.io/library/py:1", one.digest, one.digest[7:], one.digest[7:13], one.digest[:15]):
        assert store.get(ref) == one
    assert store.get("me/py") == two
    assert one.source == str(store.root.parent / "source.tar")


def test_a_wrong_name_is_told_the_closest(store: ImageStore) -> None:
    add(store, "python:3.12")
    for ref in ("pyton:3.12", "python:3.13", "Python:3.12"):
        with pytest.raises(UserError, match=r"did you mean python:3\.12\?"):
            store.get(ref)
    with pytest.raises(UserError, match="import it, or pull it"):
        store.get("zzzz")


def test_a_name_without_a_tag_must_be_clear(store: ImageStore) -> None:
    add(store, "x:1"), add(store, "x:2")
    with pytest.raises(UserError, match="several images fit: x:1, x:2"):
        store.get("x")
    latest = add(store, "x", b"3")
    assert store.get("x") == latest


def test_one_image_may_have_several_names(store: ImageStore) -> None:
    one, two = add(store, "a"), add(store, "b")
    assert one.digest == two.digest and one.rootfs == two.rootfs
    assert folders(store) == {"names": 2, "images": 1, "drafts": 0}
    store.remove("a")
    assert holds(store.get("b").rootfs) == {"f": "x"}
    add(store, "a")
    store.remove(one.digest)
    assert folders(store) == {"names": 0, "images": 0, "drafts": 0}


def test_a_name_that_moves_takes_the_old_image_along(store: ImageStore) -> None:
    old, new = add(store, "a", b"1"), add(store, "a", b"2")
    assert not old.rootfs.exists() and store.get("a") == new
    assert folders(store) == {"names": 1, "images": 1, "drafts": 0}


def test_a_held_image_stays(store: ImageStore) -> None:
    old = add(store, "a", b"1")
    with store.hold("a") as held:
        with store.hold("a"):
            assert held == old
        with pytest.raises(UserError, match="in use"):
            store.remove("a")
        assert store.get("a") == old
        add(store, "a", b"2")
        assert holds(old.rootfs) == {"f": "1"}  # nameless now
    store.sweep()
    assert not old.rootfs.exists()
    store.remove("a")


def test_holding_what_goes_at_that_moment(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    image = add(store, "a")
    store.remove("a")
    monkeypatch.setattr(store, "get", lambda ref: image)
    with pytest.raises(UserError, match="removed just now"), store.hold("a"):
        pass


def test_holding_what_another_takes_the_place_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "image"

    def make() -> None:
        folder.mkdir()
        (folder / "lock").touch()

    def swap(descriptor: int, kind: int) -> None:
        folder.rename(tmp_path / "removed")
        make()

    make()
    monkeypatch.setattr(custody, "wait_for", swap)
    with pytest.raises(FileNotFoundError), custody.share(folder):
        pass


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(store: ImageStore) -> None:
    add(store, "a")
    (store.root / "drafts" / "draft-dead" / "rootfs" / "deep").mkdir(parents=True)
    (store.root / "drafts" / "draft-dead" / "lock").touch()
    (store.root / "drafts" / "draft-newborn").mkdir()  # its maker died before the lock was there
    (store.root / "images" / ("0" * 64) / "rootfs").mkdir(parents=True)  # published, not named
    assert [image.name for image in store.list()] == ["a:latest"]
    with Custody(store.root).draft() as mine:
        store.sweep()
        assert mine.is_dir() and folders(store)["drafts"] == 1
    assert folders(store) == {"names": 1, "images": 1, "drafts": 0}


@pytest.mark.parametrize("step", ["unpack", "_record", "remove_tree", "_publish"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device"), OSError(5, "I/O")]
)
def test_an_import_that_fails_leaves_nothing(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    before = add(store, "a", b"1")

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    if step == "_publish":
        monkeypatch.setattr(store, step, fail)
    else:
        monkeypatch.setattr(f"burnish.sandbox.images.store.{step}", fail)
    if step == "remove_tree":
        monkeypatch.setattr(
            "burnish.sandbox.images.store.unpack", lambda path, wanted, draft, limits: (draft / "x").touch()
        )
    expected = {28: UserError, 5: SandboxError}.get(getattr(error, "errno", 0) or 0, KeyboardInterrupt)
    with pytest.raises(expected):
        add(store, "a", b"2")
    assert store.list() == [before]
    assert folders(store) == {"names": 1, "images": 1, "drafts": 0}


def test_a_full_disk_says_where(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("burnish.sandbox.images.tree.os.write", full)
        with pytest.raises(UserError, match="the disk is full") as caught:
            add(store, "a")
    assert caught.value.where == str(store.root)
    assert folders(store) == {"names": 0, "images": 0, "drafts": 0}


def test_a_lock_that_is_not_given_back(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    add(store, "a")
    monkeypatch.setattr(custody, "LOCK_TIMEOUT_S", 0.05)
    with Custody(store.root).locked(), pytest.raises(SandboxError, match="deadline exceeded"):
        store.remove("a")


def test_a_damaged_store_is_said_to_be(store: ImageStore) -> None:
    image = add(store, "a")
    (image.rootfs.parent / "image.json").write_text(json.dumps({"unknown": 1}))
    with pytest.raises(SandboxError, match="read the image store"):
        store.list()


def test_many_importers_at_once(store: ImageStore) -> None:
    """Threads lock like processes do: each opens the lock files for itself."""
    sources = []
    for number in range(4):
        sources.append(store.root.parent / f"s{number}.tar")
        sources[-1].write_bytes(tar_bytes(member("f", b"%d" % (number % 2))))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                store.import_image(str(sources[number]), f"own{number}")
                store.import_image(str(sources[number]), f"shared{number % 2}")
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert folders(store) == {"names": 6, "images": 2, "drafts": 0}
