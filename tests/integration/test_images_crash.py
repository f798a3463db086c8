"""Importers that are killed, disks that are full, and importers who are not root; each in a process of its own."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from burnish.errors import UserError
from burnish.sandbox.images import ImageStore
from tests.image_sources import holds, member, tar_bytes

IMPORT = """
import sys
from pathlib import Path
from burnish.errors import UserError
from burnish.sandbox.images import ImageStore
try:
    image = ImageStore(Path(sys.argv[1])).import_image(sys.argv[2], sys.argv[3])
    print(image.ownership, dict(image.skipped))
except UserError as error:
    print(error)
"""

DROP = """
import os, encodings.idna
from burnish.sandbox.images.store import ImageStore
os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""


def importer(*words: object) -> list[str]:
    return [sys.executable, "-c", IMPORT, *map(str, words)]


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


def test_an_importer_that_is_killed_leaves_nothing(store: ImageStore, tmp_path: Path) -> None:
    source = tmp_path / "i.tar"
    source.write_bytes(tar_bytes(*(member(f"d{n % 50}/f{n}", b"x" * 2000) for n in range(3000))))
    start_s = time.monotonic()
    subprocess.run(importer(store.root, source, "whole"), check=True, stdout=subprocess.DEVNULL)
    whole, lasts_s = store.get("whole"), time.monotonic() - start_s
    store.remove("whole")
    moments = random.Random(0)
    for number in range(8):
        with subprocess.Popen(importer(store.root, source, f"n{number}"), stdout=subprocess.DEVNULL) as process:
            time.sleep(lasts_s * (0.3 + 0.7 * moments.random()))
            process.kill()
        for image in store.list():
            assert image.digest == whole.digest and len(list(image.rootfs.iterdir())) == 50
    store.sweep()
    assert list((store.root / "drafts").iterdir()) == []
    assert len(list((store.root / "images").iterdir())) == len({image.digest for image in store.list()})
    assert store.import_image(str(source), "again").digest == whole.digest


def test_two_processes_at_once(store: ImageStore, tmp_path: Path) -> None:
    source = tmp_path / "i.tar"
    source.write_bytes(tar_bytes(*(member(f"f{n}", b"x") for n in range(500))))
    processes = [subprocess.Popen(importer(store.root, source, "same"), stdout=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0] and len(set(said)) == 1
    assert len(store.list()) == 1 and list((store.root / "drafts").iterdir()) == []


@pytest.mark.namespaces
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    source, disk = tmp_path / "i.tar", tmp_path / "disk"
    source.write_bytes(tar_bytes(*(member(f"f{n}", os.urandom(100_000)) for n in range(30))))
    disk.mkdir()
    line = 'mount -t tmpfs -o size=1m none "$0" && "$@" && find "$0" -mindepth 2'
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(
        ["unshare", *user, "--mount", "sh", "-c", line, disk, *importer(disk / "store", source, "x")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"{disk}/store: the disk is full: No space left on device" in done.stdout
    left = {Path(line).name for line in done.stdout.splitlines() if line.startswith(f"{disk}/store/")}
    assert left == {"lock", "names", "images", "drafts"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_somebody_who_is_not_root(tmp_path: Path, own_temp_folder: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    source, home = tmp_path / "i.tar", tmp_path / "home"
    locked = [member("d", kind="dir", mode=0), member("d/e", kind="dir", mode=0o500), member("d/e/f", b"x", mode=0)]
    source.write_bytes(tar_bytes(*locked, member("own", b"x", owner=1234), member("null", kind="char")))
    home.mkdir()
    os.chown(home, 65534, 65534)
    # The interpreter may be where only root can start it, so it drops root by itself.
    command = importer(home / "store", source, "x")
    command[2] = DROP + command[2]
    for _ in range(2):  # the second import finds the first, and removes its own draft with the locked folders
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "importer {'devices': 1}\n", done.stderr
    image = ImageStore(home / "store").get("x")
    assert {path.lstat().st_uid for path in image.rootfs.rglob("*")} == {65534}
    assert holds(image.rootfs)["d/e/f"] == "x"
    assert [(image.rootfs / name).stat().st_mode & 0o777 for name in ("d", "d/e", "d/e/f")] == [0, 0o500, 0]
    with pytest.raises(UserError, match="no such image"):
        ImageStore(home / "other").get("x")
