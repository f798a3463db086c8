"""The leak checks of conftest see what they are for; each leak made here is mended before the test ends."""

import asyncio
import inspect
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from tests import leaks


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch, no_leaks: None) -> None:
    monkeypatch.setattr(leaks, "GRACE_S", 0.0)


def test_a_thread() -> None:
    before, release = leaks.leftovers(), threading.Event()
    thread = threading.Thread(target=release.wait, name="forgotten")
    thread.start()
    try:
        assert [left.split(" (")[0] for left in leaks.remaining(before)] == ["thread forgotten"]
    finally:
        release.set()
        thread.join()
    assert leaks.remaining(before) == []


def test_a_process_and_its_child() -> None:
    before = leaks.leftovers()
    with subprocess.Popen(["sh", "-c", "sleep 60 & read line; kill $!"], stdin=subprocess.PIPE) as process:
        assert f"process {process.pid}: sh -c" in " ".join(leaks.remaining(before))
    assert process.returncode == 0
    assert leaks.remaining(before) == []


def test_a_temporary_folder() -> None:
    before = leaks.leftovers()
    with tempfile.TemporaryDirectory(prefix="burnish-") as folder:
        assert leaks.remaining(before) == [f"left in the temp folder: {Path(folder).name}"]
    assert leaks.remaining(before) == []


def test_a_task() -> None:
    async def leaky() -> None:
        kept.append(asyncio.create_task(asyncio.sleep(60), name="forgotten"))

    async def tidy() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()  # it ends a tick later, after the test's last line

    kept: list[asyncio.Task[None]] = []
    with pytest.raises(AssertionError, match="forgotten"):
        asyncio.run(leaks.watched(leaky)())
    asyncio.run(leaks.watched(tidy)())


async def test_async_tests_are_watched() -> None:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    assert frame.f_back.f_code.co_filename == leaks.__file__, "conftest did not wrap this test"
