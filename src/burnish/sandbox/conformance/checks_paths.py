"""Paths: working directories that are gone, closed or elsewhere, sizes at both ends, and links swapped meanwhile."""

import asyncio
import os
from dataclasses import replace

from burnish.sandbox.base import SandboxFileError
from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, contents, expect, host_folder, tail

_registry = Registry()
check = _registry.check

_GIGABYTE = 1 << 30
_STRANGE_FOLDERS = ("with space", "new\nline", "-rf", "quo'te\"s", "ünï", os.fsdecode(b"\xff\xfe"), "$HOME", "*")
_NUM_SWAPS = 150
# a regular file, a link to what must not be read or written, a pipe and a directory take turns under one name
_SWAP = """
import os, sys, time
secret = sys.argv[1]
os.mkfifo("pipe")
os.mkdir("folder")
with open("file", "w") as file:
    file.write("mine")
for number, target in enumerate((secret, os.path.dirname(secret), "/proc/self/environ", "/proc/1/root" + secret)):
    os.symlink(target, f"link{number}")
names = ["file", "pipe", "link0", "folder", "link1", "link2", "link3"]
open("ready", "w").close()
end = time.monotonic() + 20
turn = 0
while time.monotonic() < end:
    name = names[turn % len(names)]
    os.rename(name, "swapped")
    os.rename("swapped", name)
    turn += 1
"""


@check("files", "shell")
async def a_working_directory_may_be_a_link(bench: Bench) -> None:
    """To a directory it leads there; to nothing, a file or itself it is a result that says so."""
    await bench.sh("mkdir real; ln -s real link; ln -s gone dangling; ln -s loop loop; echo > file; ln -s file other")
    result = await bench.box.commands.run(["/bin/pwd"], cwd="link")
    expect(result.stdout.endswith(b"/real\n"), tail(result))
    for cwd in ("dangling", "loop", "other", "link/missing"):
        result = await bench.box.commands.run(["true"], cwd=cwd)
        expect(result.exit_code in (126, 127) and bool(result.stderr), f"{cwd}: {tail(result)}")


@check("files", "shell")
async def a_working_directory_may_be_closed(bench: Bench) -> None:
    """One that cannot be entered is a result; one that can be entered and not read is a working directory."""
    await bench.sh("mkdir closed dark; chmod 0 closed; chmod 0100 dark")
    result = await bench.box.commands.run(["true"], cwd="closed")
    expect(result.exit_code == 126 and bool(result.stderr), tail(result))
    result = await bench.box.commands.run(["echo", "in"], cwd="dark")
    expect(result.stdout == b"in\n", tail(result))


@check("files", "shell")
async def a_working_directory_may_go_away(bench: Bench) -> None:
    """Under a running command, and before the next one, which is a result; all others are as before."""
    await bench.sh("mkdir gone")
    running = asyncio.create_task(
        bench.box.commands.run("rmdir ../gone && echo > ../went; sleep 0.2; echo went on", cwd="gone")
    )
    await bench.until_there("went", running)
    result = await bench.box.commands.run(["true"], cwd="gone")
    expect(result.exit_code == 127 and b"gone" in result.stderr, tail(result))
    expect((await running).stdout == b"went on\n", tail(await running))
    await bench.expect_alive()


@check("files", "shell")
async def strange_directories_are_directories(bench: Bench) -> None:
    """Spaces, newlines, dashes, quotes, Unicode and bytes that are no UTF-8, to write into and to work in."""
    for name in _STRANGE_FOLDERS:
        await bench.box.files.write(f"{name}/file", name.encode("utf-8", "surrogateescape"))
        result = await bench.box.commands.run(["cat", "file"], cwd=name)
        expect(result.stdout == os.fsencode(name), f"{name!r}: {tail(result)}")
        expect(await bench.box.files.exists(f"{name}/file"), f"{name!r} does not exist")


@check("files", "shell")
async def a_gigabyte_is_refused_unread(bench: Bench) -> None:
    """A file larger than may be read costs nobody its size; an empty one beside it is nothing at all."""
    result = await bench.sh(f"truncate -s {_GIGABYTE} large; : > empty")
    expect(result.ok, tail(result))
    for path, most in (("large", 16 << 20), ("large", _GIGABYTE - 1)):
        try:
            await bench.box.files.read(path, max_bytes=most)
        except SandboxFileError as error:
            expect("larger" in error.reason, f"the reason is {error.reason!r}")
            continue
        expect(False, "a gigabyte was read")
    expect(await bench.box.files.read("empty", max_bytes=0) == b"", "an empty file is not empty")


@check("files", "shell", "limits.disk")
async def large_files_pass_in_both_directions(bench: Bench) -> None:
    """Sixty-four megabytes, exact, under a disk limit that has room for them."""
    limits = replace(LIMITS, disk_bytes=160 << 20)
    data = os.urandom(1 << 20) * 64
    async with await bench.backend.create(limits=limits) as box:
        await box.files.write("up", data)
        result = await box.commands.run("cp up down && tail -c 5 up")
        expect(result.ok and result.stdout == data[-5:], tail(result))
        expect(await box.files.read("down", max_bytes=len(data)) == data, "the bytes changed on the way")


@check("files", "shell")
async def a_program_of_two_megabytes_goes_through_a_file(bench: Bench) -> None:
    """More than a command line takes is no more than a file, or the input, takes."""
    script = b"# " + b"x" * 100 + b"\n"
    script = script * (2 * (1 << 20) // len(script)) + b"echo the end\n"
    await bench.box.files.write("long.sh", script)
    result = await bench.sh("sh long.sh")
    expect(result.stdout == b"the end\n", tail(result))
    result = await bench.box.commands.run(["sh"], stdin=script)
    expect(result.stdout == b"the end\n", tail(result))


@check("python", "limits.output")
async def characters_of_many_bytes_stay_whole(bench: Bench) -> None:
    """Wherever they fall on the edges of pipes and buffers; at the cut of too much output, bytes are counted."""
    text = "a" + "é€\U0001f600" * 30_000
    source = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())"
    async with await bench.backend.create(limits=replace(LIMITS, output_bytes=1 << 20)) as box:
        result = await box.commands.run(["python3", "-I", "-S", "-c", source], stdin=text.encode())
    expect(result.stdout.decode() == text and result.dropped_bytes == 0, f"{len(result.stdout)} bytes came")


@check("files", "python", "isolation")
async def a_link_that_is_swapped_leads_nowhere(bench: Bench) -> None:
    """A name that is a file, a link, a pipe and a directory in turn: what is read or written is its own, or refused."""
    with host_folder(secret=b"host secret") as folder:
        swapping = asyncio.create_task(
            bench.box.commands.run(["python3", "-I", "-S", "-c", _SWAP, str(folder / "secret")])
        )
        await bench.until_there("ready", swapping)
        for turn in range(_NUM_SWAPS):
            path = "swapped/secret" if turn % 5 == 4 else "swapped"
            try:
                data = await bench.box.files.read(path)
                expect(data in (b"mine", b"written", b""), f"read {data[:40]!r}")
            except SandboxFileError:
                pass
            if turn % 3 == 0:
                try:
                    await bench.box.files.write(path, b"written")
                except SandboxFileError:
                    continue
        expect(contents(folder) == {"secret": b"host secret"}, f"the host was written to: {contents(folder)}")
        swapping.cancel()
        await asyncio.wait([swapping])
    await bench.expect_alive()


CHECKS = _registry.all()
