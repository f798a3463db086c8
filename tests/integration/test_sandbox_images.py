"""Sandboxes over an image, with a program that needs nothing beside itself."""

import shutil
import subprocess
from pathlib import Path

import pytest

from burnish.errors import SandboxError, UserError
from burnish.sandbox.images import ImageStore
from burnish.sandbox.process.backend import ProcessBackend

pytestmark = pytest.mark.namespaces

_PROGRAM = r"""
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    const char *paths[] = {"/usr", "/dev/null", "/proc/self", "/etc/of-image", "/home/agent", "/images", "/layers"};
    for (int i = 0; i < 7; i++) printf("%d", access(paths[i], F_OK) == 0);
    printf(" %d%d\n", fopen("/etc/of-image", "w") != NULL, fopen("made", "w") != NULL);
    return 7;
}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for a program without libraries")
    folder = tmp_path / "root"
    (folder / "bin").mkdir(parents=True)
    (folder / "etc").mkdir()
    (folder / "etc" / "of-image").write_text("content")
    (tmp_path / "program.c").write_text(_PROGRAM)
    built = subprocess.run([compiler, "-static", "-o", folder / "bin" / "look", tmp_path / "program.c"], check=False)
    if built.returncode:
        pytest.skip("needs a static C library")
    return folder


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path / "cache"))


async def test_a_sandbox_over_an_image(backend: ProcessBackend, root: Path) -> None:
    ImageStore().import_image(str(root), name="mine")  # after the host was started
    async with await backend.create(image="mine") as box:
        result = await box.commands.run(["look"], envs={"PATH": "/bin"})
        assert (result.exit_code, result.stdout) == (7, b"0111100 01\n")
        async with await box.snapshot() as snapshot, await backend.create(snapshot=snapshot) as copy:
            assert await copy.files.exists("made")
            assert (await copy.commands.run(["/bin/look"])).stdout == b"0111100 01\n"
        with pytest.raises(UserError, match=r"in use|used"):
            ImageStore().remove("mine")
    assert (root / "etc" / "of-image").read_text() == "content"


async def test_an_image_that_is_not_there(backend: ProcessBackend) -> None:
    with pytest.raises(UserError, match="'nope': no such image"):
        await backend.create(image="nope")


@pytest.mark.parametrize("name", ["dev", "proc"])
async def test_a_link_where_a_mount_belongs_is_refused(backend: ProcessBackend, root: Path, name: str) -> None:
    (root / name).symlink_to("/lower")
    ImageStore().import_image(str(root), name="hostile")
    with pytest.raises(SandboxError, match=f"/{name} of the image is no directory"):
        await backend.create(image="hostile")
