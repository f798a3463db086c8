"""Files: exact, and never anything but a regular file inside the sandbox."""

import os

from burnish.sandbox.base import SandboxFileError
from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, contents, expect, host_folder, tail

_registry = Registry()
check = _registry.check

_STRANGE_NAMES = ("with space", "new\nline", "-rf", "quo'te\"s", "ünï", os.fsdecode(b"\xff\xfe"), "a" * 255, "...", "~")


async def _refused(bench: Bench, path: str, *, max_bytes: int = 1 << 20) -> str:
    """The reason why a read is refused; fails the check when it is not."""
    try:
        data = await bench.box.files.read(path, max_bytes=max_bytes)
    except SandboxFileError as error:
        return error.reason
    expect(False, f"reading {path!r} gave {len(data)} bytes")
    raise AssertionError


async def _write_refused(bench: Bench, path: str, data: bytes = b"x") -> None:
    try:
        await bench.box.files.write(path, data)
    except SandboxFileError:
        return
    expect(False, f"writing {path!r} was allowed")


@check("files")
async def files_come_back_as_they_went(bench: Bench) -> None:
    """Text, all byte values, nothing, and eight megabytes."""
    for data in (b"", bytes(range(256)), os.urandom(8 << 20)):
        await bench.box.files.write("file", data)
        expect(await bench.box.files.read("file") == data, f"{len(data)} bytes changed on the way")
    await bench.box.files.write("text", "ünï\n")
    expect(await bench.box.files.read("text") == "ünï\n".encode(), "text is not UTF-8")


@check("files")
async def writing_replaces(bench: Bench) -> None:
    """A shorter content leaves nothing of the longer one."""
    await bench.box.files.write("file", b"long content")
    await bench.box.files.write("file", b"short")
    expect(await bench.box.files.read("file") == b"short", "the old content shows through")


@check("files")
async def directories_are_made(bench: Bench) -> None:
    """Parents of a written file appear; relative paths start at the working directory."""
    await bench.box.files.write("a/b/c/file", b"deep")
    home = (await bench.box.commands.run(["pwd"])).stdout.decode().strip()
    expect(await bench.box.files.read(f"{home}/a/b/c/file") == b"deep", "the file is elsewhere")
    expect(await bench.box.files.exists("a/b"), "the directory does not exist")


@check("files")
async def strange_names_are_names(bench: Bench) -> None:
    """Spaces, newlines, dashes, quotes, Unicode, bytes that are no UTF-8, and 255 characters."""
    for name in _STRANGE_NAMES:
        await bench.box.files.write(f"d/{name}", name.encode("utf-8", "surrogateescape"))
    for name in _STRANGE_NAMES:
        content = await bench.box.files.read(f"d/{name}")
        expect(content == name.encode("utf-8", "surrogateescape"), f"{name!r} holds something else")


@check("files")
async def what_is_missing_is_refused(bench: Bench) -> None:
    """A missing file is a SandboxFileError that says so, and `exists` says no."""
    await bench.box.files.write("file", b"")
    expect("No such file" in await _refused(bench, "missing"), "the reason does not say what is wrong")
    expect("No such file" in await _refused(bench, "/missing/file"), "the reason does not say what is wrong")
    await _refused(bench, "")
    expect(not await bench.box.files.exists("missing"), "it exists")
    expect(await bench.box.files.exists("file") and await bench.box.files.exists("/"), "it does not exist")


@check("files")
async def a_directory_is_no_file(bench: Bench) -> None:
    """Reading or writing one is refused."""
    await bench.box.files.write("dir/file", b"")
    await _refused(bench, "dir")
    await _write_refused(bench, "dir")
    await _write_refused(bench, "new/")
    await _write_refused(bench, "dir/file/below")


@check("files")
async def a_size_limit_holds(bench: Bench) -> None:
    """A file of exactly `max_bytes` is read, one byte more is refused."""
    await bench.box.files.write("file", bytes(1000))
    expect(len(await bench.box.files.read("file", max_bytes=1000)) == 1000, "the limit itself was refused")
    expect("larger" in await _refused(bench, "file", max_bytes=999), "the reason does not say what is wrong")


@check("files")
async def a_nul_in_a_name_is_refused(bench: Bench) -> None:
    """For reading and for writing; nothing is cut at it."""
    await bench.box.files.write("a", b"")
    await _refused(bench, "a\0b")
    await _write_refused(bench, "a\0b")


@check("files", "shell")
async def commands_and_files_see_the_same(bench: Bench) -> None:
    """A written file can be read, changed and removed by a command, and the other way round."""
    await bench.box.files.write("in", b"from outside\n")
    result = await bench.sh("cat in && echo more >> in && mv in out && echo new > made")
    expect(result.ok and result.stdout == b"from outside\n", tail(result))
    expect(await bench.box.files.read("out") == b"from outside\nmore\n", "the change is not visible")
    expect(await bench.box.files.read("made") == b"new\n", "the new file is not visible")
    await bench.sh("rm -r out made")
    expect(not await bench.box.files.exists("out"), "the removal is not visible")


@check("files", "shell", "isolation")
async def links_do_not_lead_to_the_host(bench: Bench) -> None:
    """A symbolic link to a file of the host reads nothing of it."""
    with host_folder(secret=b"host secret") as folder:
        secret = folder / "secret"
        await bench.sh(f"ln -s {secret} direct; ln -s {folder} parent; ln -s /proc/1/root{secret} magic")
        for path in ("direct", "parent/secret", "magic", f"/proc/1/root{secret}", f"../../../../../..{secret}"):
            await _refused(bench, path)


@check("files", "shell", "isolation")
async def links_do_not_write_on_the_host(bench: Bench) -> None:
    """Writing through a link, or up by `..`, changes nothing outside."""
    with host_folder(victim=b"untouched") as folder:
        victim = folder / "victim"
        await bench.sh(f"ln -s {victim} direct; ln -s {folder} parent; ln -s /proc/1/root{folder} magic")
        for path in ("direct", "parent/victim", "magic/victim", f"../../../../../..{folder}/new"):
            try:
                await bench.box.files.write(path, b"escaped")
            except SandboxFileError:
                continue
        expect(contents(folder) == {"victim": b"untouched"}, f"the host was written to: {contents(folder)}")


@check("files", "shell")
async def special_files_are_refused(bench: Bench) -> None:
    """A FIFO, a socket, a device and files of /proc neither hang nor flood, behind links too."""
    await bench.sh("mkfifo fifo; ln -s /dev/zero link; ln -s /proc/self/mem mem; ln -s /proc/self/environ environ")
    for path in ("fifo", "link", "/dev/zero", "/dev/random", "/dev/null", "mem", "environ", "/proc/self/maps"):
        await _refused(bench, path)
    for path in ("mem", "/proc/self/oom_score_adj", "/proc/self/fd/1", "fifo"):
        await _write_refused(bench, path)


@check("files", "shell")
async def a_file_without_rights_is_refused(bench: Bench) -> None:
    """Of the program's own: what may not be read is not, what may not be written stays, and the reason is told."""
    await bench.box.files.write("closed", b"as it was")
    await bench.sh("chmod -r closed")
    expect("Permission denied" in await _refused(bench, "closed"), "the reason does not say what is wrong")
    await bench.sh("chmod 444 closed; mkdir fixed; echo x > fixed/file; chmod 555 fixed")
    await _write_refused(bench, "closed")
    await _write_refused(bench, "fixed/new")
    expect(await bench.box.files.read("closed") == b"as it was", "a file that may not be written was")


@check("files", "shell", "isolation")
async def descriptors_of_the_supervisor_are_out_of_reach(bench: Bench) -> None:
    """No path of /proc reads, writes or even names what the serving process has open."""
    await bench.sh(
        "for n in 0 1 2 3 4 5 6 7 8 9 10 11; do ln -s /proc/self/fd/$n own$n; ln -s /proc/1/fd/$n its$n; done"
    )
    for number in range(12):
        for path in (f"own{number}", f"its{number}", f"/proc/self/fd/{number}"):
            await _refused(bench, path)
            await _write_refused(bench, path)


@check("files", "isolation")
async def system_directories_cannot_be_written(bench: Bench) -> None:
    """/usr, /etc, /dev and /proc take no file."""
    for path in (
        "/usr/new",
        "/usr/bin/python3",
        "/etc/passwd",
        "/etc/ld.so.preload",
        "/dev/new",
        "/proc/new",
        "/bin/sh",
    ):
        await _write_refused(bench, path)


@check("files", "limits.disk")
async def a_full_disk_refuses_a_file(bench: Bench) -> None:
    """Writing more than fits is refused with the reason, and the sandbox lives on."""
    try:
        await bench.box.files.write("big", bytes(LIMITS.disk_bytes + (1 << 20)))
    except SandboxFileError as error:
        expect("No space left" in error.reason, f"the reason is {error.reason!r}")
    else:
        expect(False, "more than the disk limit was written")
    expect((await bench.box.commands.run(["true"])).ok, "the sandbox did not answer afterwards")


CHECKS = _registry.all()
