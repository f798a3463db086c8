"""Snapshots of files that a candidate prepared for the one who copies, mounts and enters them, and of programs that
will not stand still."""

import asyncio

from burnish.errors import SandboxError
from burnish.sandbox.conformance.suite import LIMITS, Bench, CheckSkipped, Registry, expect, host_folder, tail

_registry = Registry()
check = _registry.check

_MARKS = """
import ctypes, os, sys
os.makedirs("d/inner", exist_ok=True)
open("d/kept", "w").close()
open("plain", "w").close()
for name in ("d", "plain", "."):
    for prefix in ("trusted.overlay.", "user.overlay.", "user.overlay.overlay.", "user."):
        for mark in ("opaque", "redirect", "whiteout", "whiteouts", "metacopy", "origin", "impure", "nlink", "upper"):
            for value in (b"y", b"x", sys.argv[1].encode()):
                try:
                    os.setxattr(name, prefix + mark, value)
                except OSError:
                    pass
libc = ctypes.CDLL(None, use_errno=True)
for path in ("whiteout", "d/whiteout", "/tmp/whiteout", "/dev/shm/whiteout"):
    for kind in (0o20000, 0o60000):
        try:
            os.mknod(path, kind | 0o600, 0)
            print("made", path)
        except OSError:
            pass
    libc.renameat2(-100, b"plain", -100, path.encode(), 4)  # leaves a whiteout behind
    if os.path.exists(path):
        os.rename(path, "plain")
for name in (".wh.kept", ".wh..wh..opq", "d/.wh.kept", "#1", "work", "upper", "root"):
    open(name, "w").close()
"""
_DESCRIBE = "find . /dev/shm /tmp -mindepth 1 -printf '%p %y %m %n %l\\n' | sort"
_RUINS = (
    "chmod 0 ~; chmod 0 / 2>/dev/null",
    "cd /; rm -rf ~ 2>/dev/null; ln -s /proc/self/cwd /home/agent 2>/dev/null; ln -s loop loop",
    "cd /; rm -rf ~ /tmp /var /run /home 2>/dev/null; ln -s /proc /run; ln -s / /tmp; echo > /home",
)
_DEEP = """
import os
for _ in range(1200):
    os.mkdir("d")
    os.chdir("d")
open("leaf", "w").close()
"""
_MANY_LINKS = """
import os
for number in range(1200):
    open(f"f{number}", "w").close()
    os.link(f"f{number}", f"g{number}")
"""
_WAKES_ITSELF = """
import ctypes, os, signal, struct
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("how", ctypes.c_int), ("_", ctypes.c_char * 48)]
first = os.open("first", os.O_RDWR | os.O_CREAT)
for number in range(800):
    with open(f"between{number}", "w") as file:
        file.write("x" * 2000)
last = os.open("last", os.O_RDWR | os.O_CREAT)
signal.signal(signal.SIGCONT, lambda *_: None)
timers, library = [ctypes.c_void_p() for _ in range(8)], ctypes.CDLL(None, use_errno=True)
for timer in timers:
    assert library.timer_create(1, ctypes.byref(Event(None, signal.SIGCONT, 0, b"")), ctypes.byref(timer)) == 0
number = 0
while True:
    if number % 500 == 0:  # one that was due at the moment of a stop is lost
        for turn, timer in enumerate(timers, 2):
            assert library.timer_settime(timer, 0, struct.pack("4q", 0, turn * 150_000, 0, turn * 150_000), None) == 0
    number += 1
    os.pwrite(first, b"%09d" % number, 0)
    os.pwrite(last, b"%09d" % number, 0)
    if number == 1:
        open("ready", "w").close()
"""


@check("snapshot", "python", "shell", "isolation")
async def marks_of_the_file_system_below_mean_nothing(bench: Bench) -> None:
    """Attributes, devices and names by which layers hide files or lead elsewhere: a copy has what the original has."""
    with host_folder(secret=b"host secret") as folder:
        result = await bench.box.commands.run(["python3", "-I", "-c", _MARKS, f"/../../../..{folder}"])
        expect(result.ok and not result.stdout, tail(result))
        before = (await bench.sh(_DESCRIBE)).stdout
        async with await bench.box.snapshot():
            expect((await bench.sh(_DESCRIBE)).stdout == before, "a snapshot changed the files")
            (fork,) = await bench.box.fork()
            async with fork:
                expect((await fork.commands.run(_DESCRIBE)).stdout == before, "a copy has other files")
                found = await fork.commands.run("cat secret d/secret plain/secret plain")
                expect(b"host secret" not in found.stdout, "a file of the host was reached")
                expect((await fork.commands.run("rm -r d && mkdir d && ls -A d")).stdout == b"", "it shows through")


@check("snapshot", "python", "files")
async def attributes_of_files_survive(bench: Bench) -> None:
    """Extended attributes of the user's own, in a snapshot of a quiet sandbox and of a busy one."""
    await bench.box.files.write("marked", b"x")
    mark = "import os\nos.setxattr('marked', 'user.burnish', b'kept')"
    if not (await bench.box.commands.run(["python3", "-I", "-S", "-c", mark])).ok:
        raise CheckSkipped("this kernel's tmpfs has no attributes of users")
    show = ["python3", "-I", "-S", "-c", "import os\nprint(os.getxattr('marked', 'user.burnish'))"]
    for is_busy in (False, True):
        busy = asyncio.create_task(bench.box.commands.run(["sleep", "1000" if is_busy else "0"]))
        await asyncio.sleep(0.1)
        async with await bench.box.snapshot() as snapshot, await bench.backend.create(snapshot=snapshot) as copy:
            expect(snapshot.was_live == is_busy, "it was live, or it was not")
            result = await copy.commands.run(show)
            expect(result.stdout == b"b'kept'\n", f"busy={is_busy}: {tail(result)}")
        busy.cancel()
        await asyncio.wait([busy])


@check("snapshot", "shell")
async def a_sandbox_may_ruin_its_own_files(bench: Bench) -> None:
    """A root without rights, a home that is gone or a link: commands give results, and copies live."""
    for line in _RUINS:
        async with await bench.backend.create(limits=LIMITS) as box, await box.snapshot() as whole:
            await box.commands.run(line)
            await box.commands.run("echo hi")
            (fork,) = await box.fork()
            async with fork:
                await fork.commands.run("echo hi")
            result = await box.commands.run(["/usr/bin/env", "echo", "hi"], cwd="/")
            expect(result.stdout == b"hi\n" or result.exit_code == 126, f"after {line}: {tail(result)}")
            await box.restore(whole)
            result = await box.commands.run("echo hi")
            expect(result.stdout == b"hi\n", f"a return does not undo {line}: {tail(result)}")


@check("snapshot", "python", "shell")
async def odd_trees_can_be_copied_while_they_are_used(bench: Bench) -> None:
    """A thousand levels, a thousand files with two names, sockets, pipes, dangling links and closed directories."""
    odd = "mkfifo p; ln -s /nowhere l; mkdir -m 0 closed; python3 -I -c 'import socket; socket.socket(1).bind(\"s\")'"
    for source in (_MANY_LINKS, _DEEP):
        async with await bench.backend.create(limits=LIMITS) as box:
            result = await box.commands.run(["python3", "-I", "-S", "-c", source])
            expect(result.ok, tail(result))
            await box.commands.run(odd)
            sleeping = asyncio.create_task(box.commands.run("sleep 1000"))
            await asyncio.sleep(0.1)
            try:
                async with await box.snapshot() as snapshot, await bench.backend.create(snapshot=snapshot) as copy:
                    expect(snapshot.was_live, "nothing was running")
                    numbers = [(await each.commands.run("find . 2>/dev/null | wc -l")).stdout for each in (box, copy)]
                    expect(numbers[0] == numbers[1], f"files before and after: {numbers}")
            finally:
                sleeping.cancel()
                await asyncio.wait([sleeping])


@check("snapshot", "python", "shell")
async def a_program_that_wakes_itself_stands_still_too(bench: Bench) -> None:
    """A copy is of one moment or fails, where a timer continues a stopped process a thousand times a second."""
    writing = asyncio.create_task(bench.box.commands.run(["python3", "-I", "-S", "-c", _WAKES_ITSELF], timeout_s=30.0))
    try:
        await bench.until_there("ready", writing)
        for _ in range(3):
            try:
                snapshot = await bench.box.snapshot()
            except SandboxError:  # a moment that cannot be had is no snapshot
                continue
            async with snapshot, await bench.backend.create(snapshot=snapshot) as copy:
                first, last = int(await copy.files.read("first")), int(await copy.files.read("last"))
                expect(0 <= first - last <= 1, f"the copy is of no moment: {first} and {last}")
    finally:
        writing.cancel()
        await asyncio.wait([writing])


@check("snapshot", "shell")
async def a_process_that_was_stopped_stays_so(bench: Bench) -> None:
    """A snapshot stops and continues what runs, and not what had been stopped before."""
    line = "(kill -STOP $(cut -d' ' -f4 /proc/self/stat); echo woken > woken) & echo on > on; sleep 1.5; cat woken"
    running = asyncio.create_task(bench.sh(line))
    await bench.until_there("on", running)
    await asyncio.sleep(0.2)
    async with await bench.box.snapshot() as snapshot:
        expect(snapshot.was_live, "nothing was running")
    result = await running
    expect(result.stdout == b"", "the snapshot woke a process that had been stopped")


CHECKS = _registry.all()
