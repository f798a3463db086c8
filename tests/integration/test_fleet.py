"""Owners and the command line as processes of their own."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from burnish.observe.emit import attached
from burnish.sandbox import make_backend
from burnish.sandbox.audited import trajectory
from burnish.sandbox.fleet import client, records
from burnish.sandbox.fleet.backend import Fleet
from burnish.sandbox.process.cgroups import start_time
from burnish.testing import MemoryBackend
from burnish.types import Limits

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
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path))
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


def burnish(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "burnish", "sandbox", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True)


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
async def test_what_a_peer_says_does_not_reach_the_owner(
    folder: Path, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Fleet(MemoryBackend(), listed=True) as fleet:
        box = await fleet.create()
        monkeypatch.chdir(folder)  # a path may be too long for a socket
        reader, writer = await asyncio.open_unix_connection(socket_in(folder).name)
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


@pytest.mark.namespaces
async def test_a_sandbox_with_a_full_disk_can_be_saved(tmp_path: Path) -> None:
    """In parts, and with room of the copy's own for the tar."""
    limits = Limits(disk_bytes=16 << 20, wall_s=30.0)
    backend = make_backend("process", listed=True)
    try:
        box = await backend.create(limits=limits)
        await box.commands.run("cat /dev/urandom > large; cksum < large")
        total = (await box.commands.run("cksum < large")).stdout
        archive = tmp_path / "files.tar"
        with archive.open("wb") as file:
            size = await asyncio.to_thread(client.download, box.id, file.write)
    finally:
        await backend.close()
    assert size == archive.stat().st_size > limits.disk_bytes // 2
    with tarfile.open(archive) as tar:
        content = tar.extractfile("./large")
        assert content is not None
        checked = await asyncio.to_thread(subprocess.run, ["cksum"], input=content.read(), capture_output=True)
    assert checked.stdout == total


@pytest.mark.namespaces
def test_shell_lines_run_in_a_copy(start: Start) -> None:
    _, id = start("t/1", "process")
    done = burnish("fork", id, stdin="cat a.txt; echo; pwd; exit 3\n")
    assert (done.returncode, done.stdout) == (3, "of the original\n/home/agent\n"), done.stderr
    assert burnish("fork", id, "--", "cat", stdin="passed on").stdout == "passed on"
    assert "more than" in burnish("fork", id, "--", "cat", stdin="x" * (600 << 10)).stderr


async def test_the_audit_log_says_for_whom_a_sandbox_was_that_a_terminal_ended(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    backend = make_backend("memory", audit=log, listed=True)
    boxes = []
    for name in ("t/1", "t/2"):
        trajectory.set(name)
        boxes.append(await backend.create())
    await asyncio.to_thread(client.ask, boxes[1].id, "kill")
    await backend.close()
    lines = map(json.loads, (await asyncio.to_thread(log.read_text)).splitlines())
    (kill,) = [line for line in lines if line["event"] == "kill"]
    assert (kill["sandbox"], kill["trajectory"]) == (boxes[1].id, "t/2")


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
def test_who_is_of_another_pid_namespace_gets_no_answer(start: Start, folder: Path) -> None:
    """As every program in a sandbox is, which without privileges has our user id."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare(1)")
    start("t/1")
    script = (
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
        'try:\n    s.sendall(b\'{"op": "list"}\\n\'); print(len(s.recv(9)))\n'
        "except OSError:\n    print(0)\n"
    )
    for namespace, heard in (("--pid", "0"), ("--mount", "9")):
        command = [unshare, namespace, "--fork", sys.executable, "-c", script, socket_in(folder).name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.stdout.strip() == heard, done.stderr


@pytest.mark.namespaces
async def test_no_program_in_a_sandbox_sees_the_folder(folder: Path) -> None:
    backend = make_backend("process", listed=True)
    try:
        box = await backend.create()
        assert await asyncio.to_thread(folder.is_dir)
        found = await box.commands.run(["ls", str(folder), str(socket_in(folder))])
    finally:
        await backend.close()
    assert found.stdout == b"" and found.stderr.count(b"No such file or directory") == 2, found


@pytest.mark.namespaces
def test_a_host_that_was_stopped_is_ended_by_gc(start: Start) -> None:
    owner, id = start("t/1", "process")
    host = int(id.split("-")[1])
    started = start_time(host)
    os.kill(host, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    assert start_time(host) == started
    assert "stopped hosts of dead owners ended: 1" in burnish("gc").stdout
    deadline = time.monotonic() + 10
    while start_time(host) == started and time.monotonic() < deadline:
        time.sleep(0.01)
    assert start_time(host) != started


@pytest.mark.namespaces
def test_gc_ends_no_host_of_a_living_owner(start: Start) -> None:
    _, id = start("t/1", "process")
    assert "hosts" not in burnish("gc").stdout
    assert burnish("fork", id, "--", "cat", "a.txt").stdout == "of the original"
