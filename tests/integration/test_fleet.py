"""Owners and the command line as processes of their own."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from burnish.observe.emit import attached
from burnish.sandbox import make_backend
from burnish.sandbox.audited import trajectory
from burnish.sandbox.fleet import client, records
from burnish.sandbox.fleet.backend import Fleet
from burnish.testing import MemoryBackend

OWNER = """
import asyncio, sys
from burnish.sandbox import make_backend
from burnish.sandbox.audited import trajectory

async def main():
    trajectory.set(sys.argv[1])
    backend = make_backend(sys.argv[2], listed=True)
    box = await backend.create()
    await box.files.write("a.txt", "of the original")
    print(box.id, flush=True)
    try:
        result = await box.commands.run("sleep 1000", timeout_s=1000) if sys.argv[2] == "process" else None
        await asyncio.sleep(1000)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    await backend.close()

asyncio.run(main())
"""

Start = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return records.registry_dir()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts an owner for a trajectory; answers it and its sandbox's id."""
    owners: list[subprocess.Popen[str]] = []

    def start(trajectory: str, backend: str = "memory") -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", OWNER, trajectory, backend]
        owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        owners.append(owner)
        assert owner.stdout is not None
        return owner, owner.stdout.readline().strip()

    yield start
    for owner in owners:
        owner.kill()
        owner.communicate()


def socket_in(folder: Path) -> Path:
    (path,) = folder.glob("*.sock")
    return path


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def let_everybody_in(path: Path) -> None:
    path.parent.chmod(0o755)
    path.chmod(0o777)


def burnish(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "burnish", "sandbox", *words], capture_output=True, text=True)


def listed() -> dict[str, Any]:
    return {one["trajectory"]: one for one in json.loads(burnish("ls", "--json").stdout)}


def test_two_owners_are_seen_and_a_killed_one_leaves_nothing(start: Start, folder: Path) -> None:
    first, first_id = start("t/1")
    start("t/2")
    found = listed()
    assert found.keys() == {"t/1", "t/2"}
    assert found["t/1"]["id"] == first_id and found["t/1"]["owner"] == first.pid and found["t/1"]["answers"]
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert listed().keys() == {"t/2"}
    assert len(list(folder.glob(f"*-{first.pid}-*"))) == 2
    assert "records removed: 1" in burnish("gc").stdout
    assert list(folder.glob(f"*-{first.pid}-*")) == []
    assert listed().keys() == {"t/2"}


@pytest.mark.namespaces
def test_fork_snapshot_and_kill_reach_a_sandbox_at_work(start: Start, tmp_path: Path) -> None:
    owner, id = start("t/1", "process")
    copied = burnish(
        "fork", id, "--", "/bin/sh", "-c", "cat a.txt; echo changed > a.txt; ls " + str(tmp_path) + "; exit 7"
    )
    assert copied.returncode == 7 and copied.stdout == "of the original" and "No such file" in copied.stderr
    saved = burnish("snapshot", id, str(tmp_path / "files.tar"))
    assert saved.returncode == 0, saved.stderr
    with tarfile.open(tmp_path / "files.tar") as tar:
        member = tar.extractfile("./a.txt")
        assert member is not None and member.read() == b"of the original"
    again = burnish("snapshot", id, str(tmp_path / "files.tar"))
    assert again.returncode == 2 and "there already" in again.stderr
    assert listed()["t/1"]["id"] == id  # and nobody else: the copies are gone
    assert burnish("kill", id).returncode == 0
    assert owner.stdout is not None and "SandboxError" in owner.stdout.readline()
    unknown = burnish("kill", id)
    assert unknown.returncode == 2 and "fix:" in unknown.stderr


async def test_a_listed_fleet_cleans_up_and_tells_whom_it_serves(folder: Path) -> None:
    backend = make_backend("memory", listed=True)
    trajectory.set("t/9")
    await backend.create()
    (found,) = await asyncio.to_thread(client.find_all)
    assert found.sandbox["trajectory"] == "t/9" and found.sandbox["limits"]["wall_s"] > 0
    await backend.close()
    assert names_in(folder) == []


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"[]\n", b"{\n", b'{"op": "burn"}\n', b'{"op": "kill"}\n', b"[" * 100_000 + b"\n", b"x" * (2 << 20),
     b'{"op": "fork", "id": "memory-0", "argv": "ls"}\n', b'{"op": "snapshot", "id": "memory-0"}\n'],
)  # fmt: skip
async def test_what_a_peer_says_does_not_reach_the_owner(folder: Path, line: bytes) -> None:
    async with Fleet(MemoryBackend(), listed=True) as fleet:
        box = await fleet.create()
        path = socket_in(folder)
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(line)
        if not line:
            writer.close()
        answer = b""
        with contextlib.suppress(ConnectionError):  # it hung up
            answer = await reader.read()
        writer.close()
        assert answer == b"" or "error" in json.loads(answer)
        assert (await box.commands.run("echo alive")).stdout == b"alive\n"
        assert [one.sandbox["id"] for one in await asyncio.to_thread(client.find_all)] == [box.id]


async def test_who_cannot_be_listed_works_and_says_so(folder: Path) -> None:
    await asyncio.to_thread(folder.symlink_to, "/")
    events: list[dict[str, Any]] = []
    with attached(events.append):
        async with Fleet(MemoryBackend(), listed=True) as fleet, await fleet.create() as box:
            assert (await box.commands.run("true")).ok
            await fleet.create()
    assert [event["event"] for event in events].count("sandbox.unlisted") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
async def test_another_user_gets_no_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the files' modes would let it in."""
    async with Fleet(MemoryBackend(), listed=True) as fleet:
        await fleet.create()
        path = socket_in(folder)
        let_everybody_in(path)
        monkeypatch.chdir(folder)  # the folders above are nobody else's either
        peer = socket.socket(socket.AF_UNIX)
        os.seteuid(12345)  # the kernel notes whose it is when it connects
        try:
            peer.connect(path.name)
        finally:
            os.seteuid(0)
        reader, writer = await asyncio.open_unix_connection(sock=peer)
        writer.write(b'{"op": "list"}\n')
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
        writer.close()
        assert answer == b""
