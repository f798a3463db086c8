"""The register: who counts as alive, and what is no record."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from burnish.errors import UserError
from burnish.sandbox.fleet import client, records
from burnish.sandbox.fleet.records import OwnerName

SANDBOX = {"id": "a", "created": 1.0, "image": "host", "limits": {}, "trajectory": None}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path))
    made = records.registry_dir()
    made.mkdir(mode=0o700)
    return made


def read(folder: Path, owner: OwnerName) -> records.Record | None:
    with records.opened(folder, make=False) as descriptor:
        return records.read(descriptor, owner)


def test_a_record_is_read_back_and_removed(folder: Path) -> None:
    owner = OwnerName.here()
    with records.opened(folder, make=True) as descriptor:
        records.write(descriptor, owner, [SANDBOX])
        assert records.owners(descriptor) == [owner]
        found = records.read(descriptor, owner)
        assert found is not None and found.sandboxes == (SANDBOX,)
        records.remove(descriptor, owner)
    assert list(folder.iterdir()) == []


def test_an_owner_that_does_not_answer_is_listed_as_it_wrote(folder: Path) -> None:
    with records.opened(folder, make=True) as descriptor:
        records.write(descriptor, OwnerName.here(), [SANDBOX])
    (found,) = client.find_all()
    assert found.sandbox == SANDBOX and not found.answers


def test_the_same_pid_with_another_start_time_is_a_dead_owner(folder: Path) -> None:
    here = OwnerName.here()
    reused = replace(here, start_time=here.start_time + 1)
    elsewhere = replace(reused, pid_namespace=1)  # its life cannot be judged from here
    with records.opened(folder, make=True) as descriptor:
        for owner in (here, reused, elsewhere):
            records.write(descriptor, owner, [SANDBOX])
    (folder / f"{reused}.new").write_text("half")
    assert here.is_alive and reused.is_dead and not elsewhere.is_dead and not elsewhere.is_alive
    assert [found.owner for found in client.find_all()] == [here]
    assert client.reap() == 1
    assert {path.name for path in folder.iterdir()} == {f"{here}.json", f"{elsewhere}.json"}


def test_the_same_pid_of_another_machine_is_left_alone_until_it_has_long_been_silent(folder: Path) -> None:
    """With one home on several machines, whose pid namespaces all have the same number."""
    other = replace(OwnerName.here(), boot="00000000", start_time=1)
    with records.opened(folder, make=True) as descriptor:
        records.write(descriptor, other, [SANDBOX])
    assert not other.is_alive and not other.is_dead
    assert client.find_all() == [] and client.reap() == 0
    os.utime(folder / f"{other}.json", (1.0, 1.0))
    assert client.reap() == 1 and list(folder.iterdir()) == []


def test_a_login_that_ends_takes_no_record_with_it(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/12345")
    assert records.registry_dir() == folder


@pytest.mark.parametrize(
    "content",
    [
        "", '{"sandboxes": [', "[]", '{"sandboxes": {}}', '{"sandboxes": [1]}', "[" * 100_000,
        json.dumps({"sandboxes": [{**SANDBOX, "id": 7}]}), "\0", json.dumps({"sandboxes": [{"id": "a"}]}),
    ],
)  # fmt: skip
def test_what_has_not_the_form_is_no_record(folder: Path, content: str) -> None:
    owner = OwnerName.here()
    (folder / f"{owner}.json").write_text(content)
    assert read(folder, owner) is None and client.find_all() == []


def test_links_pipes_folders_and_giants_are_no_records(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text(json.dumps({"sandboxes": [SANDBOX]}))
    dead = replace(OwnerName.here(), start_time=1)
    linked, piped, nested, giant = (replace(dead, number=number) for number in range(4))
    (folder / f"{linked}.json").symlink_to(target)
    os.mkfifo(folder / f"{piped}.json")
    (folder / f"{nested}.json").mkdir()
    with (folder / f"{giant}.json").open("wb") as file:
        file.truncate(records.MAX_RECORD_BYTES + 1)
    assert [read(folder, owner) for owner in (linked, piped, nested, giant)] == [None] * 4
    client.reap()
    assert target.exists() and [path.name for path in folder.iterdir()] == [f"{nested}.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users need root")
def test_another_users_file_is_no_record(folder: Path) -> None:
    owner = OwnerName.here()
    with records.opened(folder, make=True) as descriptor:
        records.write(descriptor, owner, [SANDBOX])
    os.chown(folder / f"{owner}.json", 12345, 12345)
    assert read(folder, owner) is None


@pytest.mark.parametrize("wrong", ["open to all", "a link"])
def test_a_folder_that_is_not_ours_alone_is_refused(folder: Path, tmp_path: Path, wrong: str) -> None:
    if wrong == "a link":
        folder.rename(tmp_path / "real")
        folder.symlink_to(tmp_path / "real")
    else:
        folder.chmod(0o755)
    with pytest.raises(UserError, match="set BURNISH_CACHE"):
        client.find_all()


def test_without_a_folder_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path))
    assert client.find_all() == [] and client.reap() == 0
