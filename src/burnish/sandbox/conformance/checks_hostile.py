"""A candidate that read our source: what it does to the supervisor, to the harness's programs and to its own files.

Whatever it does is a result of its command. A SandboxError here would let it choose that it is not measured.
"""

import asyncio

from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check

_BRIEF_S = 0.3  # of a command that is in the way of another

_REPLACE_ALL = """
import os
def attempt(function, *arguments):
    try:
        function(*arguments)
    except OSError:
        pass
def program(path):
    with open(path, "w") as file:
        file.write("#!/usr/bin/python3\\nprint('forged')\\n")
    os.chmod(path, 0o755)
program("/tmp/sh")
for name in ("bin", "sbin", "lib", "lib64", "lib32", "usr", "etc", "dev", "proc"):
    attempt(os.unlink, f"/{name}")
    attempt(os.rename, f"/{name}", f"/tmp/old-{name}")
    attempt(os.rmdir, f"/{name}")
    attempt(os.symlink, "/tmp", f"/{name}")
    attempt(program, f"/{name}/sh")
    attempt(program, f"/{name}/ld-linux-x86-64.so.2")
    attempt(os.symlink, "/tmp/sh", f"/tmp/{name}")
    attempt(os.rename, f"/tmp/{name}", f"/{name}")
attempt(program, "/etc/ld.so.preload")
"""
_LEAVE_TRAPS = """
import os, site, sysconfig
def leave(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
shell, python = "echo trap > /tmp/sprung\\n", "open('/tmp/sprung', 'w').write('trap')\\n"
home = os.environ["HOME"]
for name in (".bashrc", ".profile", ".bash_profile", ".bash_login", ".bash_logout", ".shrc", ".zshenv", ".env"):
    leave(f"{home}/{name}", shell)
user_site = sysconfig.get_path("purelib", "posix_user")
for folder in (home, user_site, "/tmp"):
    for name in ("sitecustomize", "usercustomize", "json", "os", "sys", "encodings", "__main__"):
        leave(f"{folder}/{name}.py", python)
leave(f"{user_site}/trap.pth", "import os; " + python)
leave(f"{home}/.pythonrc", python)
leave(f"{home}/pyvenv.cfg", "home = /tmp\\n")
for name in ("sh", "bash", "env", "python3", "true"):
    for folder in (home, f"{home}/bin", f"{home}/.local/bin"):
        leave(f"{folder}/{name}", "#!/bin/sh\\n" + shell)
        os.chmod(f"{folder}/{name}", 0o755)
"""
_STOPS_ALL = """
import os, signal, time
end = time.monotonic() + 0.8
while time.monotonic() < end:
    try:
        os.kill(-1, signal.SIGSTOP)
    except OSError:
        pass
"""
_LEASE = """
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
try:
    fcntl.fcntl(os.open("program", os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
except OSError:
    pass  # a kernel without leases has nothing to wait for
open("leased", "w").close()
time.sleep(60)
"""
_SIGNAL_STORM = """
import os, signal
for _ in range(3):
    os.fork()
while True:
    for number in (signal.SIGCHLD, signal.SIGCHLD, signal.SIGRTMIN, signal.SIGHUP):
        try:
            os.kill(1, number)
        except OSError:
            pass
"""
_EXIT_STORM = """
import os
for _ in range(2):
    os.fork()
while True:
    try:
        child = os.fork()
        if child == 0:
            for _ in range(4):
                if os.fork() == 0:
                    break
            os._exit(0)
        os.waitpid(child, 0)
    except OSError:
        pass
"""
_FILLS_SYSTEM_V = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for _ in range(3):
    segment = libc.shmget(0, 32 << 20, 0o1600)
    ctypes.memset(libc.shmat(segment, None, 0), 1, 32 << 20)
message = ctypes.create_string_buffer(bytes([1]) + bytes(8007))
sent = 0
while (queue := libc.msgget(0, 0o1600)) >= 0 and sent < 32 << 20:
    while libc.msgsnd(queue, message, 8000, 0o4000) == 0:
        sent += 8000
print(sent)
"""
_SHARED_HOG = """
import mmap, os
kept = []
while True:
    kept.append(os.memfd_create("hog"))
    os.write(kept[-1], bytes(4 << 20))
    kept.append(mmap.mmap(-1, 4 << 20))
    kept[-1].write(bytes(4 << 20))
"""


@check("shell", "python", "isolation")
async def what_programs_are_found_by_cannot_be_replaced(bench: Bench) -> None:
    """/bin, /lib64 and the like, through which the shell and the loader are found, stay what they are."""
    result = await bench.box.commands.run(["python3", "-I", "-S", "-c", _REPLACE_ALL])
    expect(result.ok, f"the probe itself failed: {tail(result)}")
    result = await bench.sh("echo honest")
    expect(result.stdout == b"honest\n", f"the harness's shell was replaced: {tail(result)}")
    result = await bench.box.commands.run(["/usr/bin/env", "echo", "honest"])
    expect(result.stdout == b"honest\n", f"programs do not start as before: {tail(result)}")


@check("shell", "python", "files")
async def what_a_program_left_does_not_run_in_the_next_command(bench: Bench) -> None:
    """Start-up files, modules beside the working directory or of the user, programs of the same name."""
    result = await bench.box.commands.run(["python3", "-I", "-c", _LEAVE_TRAPS])
    expect(result.ok, tail(result))
    for argv in (
        ["/bin/sh", "-c", "true"], ["bash", "-c", "true"], ["bash", "--noprofile", "--norc", "-c", "true"], ["true"],
        ["env"], ["python3", "-I", "-c", "import json, os, site"], ["python3", "-I", "-S", "-B", "-c", "import json"],
    ):  # fmt: skip
        await bench.box.commands.run(argv)
        expect(not await bench.box.files.exists("/tmp/sprung"), f"{argv} ran what a candidate had left")  # noqa: S108


@check()
async def a_command_that_is_given_up_while_it_fails_to_start(bench: Bench) -> None:
    """Cancelled at any moment, also one that is no program: the sandbox answers the next one."""
    for turn in range(40):
        call = asyncio.create_task(bench.box.commands.run(["no-such-program-here"]))
        for _ in range(turn % 8):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
    expect((await bench.box.commands.run(["echo", "next"])).stdout == b"next\n", "it does not answer")


@check("python", "limits.wall")
async def a_command_that_is_stopped_before_it_starts_is_a_result(bench: Bench) -> None:
    """A program that stops every process it may cannot hold up pid 1, which starts another at that moment."""
    stopping = asyncio.create_task(bench.box.commands.run(["python3", "-I", "-S", "-c", _STOPS_ALL], timeout_s=3.0))
    while not stopping.done():
        result = await bench.box.commands.run(["true"], timeout_s=0.05)
        expect(result.ok or result.signal is not None or result.exit_code == 126, tail(result))
    await stopping
    expect((await bench.box.commands.run(["echo", "next"])).stdout == b"next\n", "it does not answer")


@check("python", "shell", "files", "limits.wall")
async def a_program_that_is_kept_from_being_opened_is_a_result(bench: Bench) -> None:
    """Nor can one that holds a lease on the file, which makes its opening wait."""
    await bench.sh("cp /usr/bin/true program")
    holding = asyncio.create_task(bench.box.commands.run(["python3", "-I", "-S", "-c", _LEASE], timeout_s=1.5))
    await bench.until_there("leased", holding)
    result = await bench.box.commands.run(["./program"], timeout_s=_BRIEF_S)
    expect(result.ok or result.timed_out or result.exit_code == 126, tail(result))
    await holding
    expect((await bench.box.commands.run(["./program"])).ok, "the program does not start afterwards")


@check("python", "limits.wall")
async def storms_do_not_stop_the_clock(bench: Bench) -> None:
    """Signals to pid 1, and orphans for it to reap, as many as a program can make."""
    for source in (_SIGNAL_STORM, _EXIT_STORM):
        result = await bench.box.commands.run(["python3", "-I", "-S", "-c", source], timeout_s=_BRIEF_S)
        expect(result.timed_out or result.exit_code == 1, tail(result))
        await bench.expect_nobody_left()


@check("python", "shell", "limits.memory")
async def memory_does_not_outlive_its_processes(bench: Bench) -> None:
    """System V segments and queues, which nobody has to hold: else the next command would find no memory left."""
    for _ in range(3):
        result = await bench.box.commands.run(["python3", "-I", "-S", "-c", _FILLS_SYSTEM_V])
        expect(result.ok, f"memory of the command before is still taken: {tail(result)}")
        expect(int(result.stdout) <= 4 << 20, f"{int(result.stdout)} bytes of messages stay")
    await bench.expect_alive()


@check("python", "reports.memory")
async def memory_that_is_shared_counts(bench: Bench) -> None:
    """Anonymous files and shared mappings are memory like any other."""
    result = await bench.box.commands.run(["python3", "-I", "-S", "-c", _SHARED_HOG], timeout_s=5.0)
    expect(result.limit_hit == "memory" and not result.ok, tail(result))
    await bench.expect_alive()


@check("limits.output", "shell")
async def output_that_is_read_back_harms_nobody(bench: Bench) -> None:
    """A program may open its own output to read it, empty the pipe, make it small, or leave it to others."""
    result = await bench.sh("exec 3</proc/self/fd/1; (sleep 0.05; cat <&3 >/dev/null) & yes | head -c 300000; echo end")
    expect(result.ok and result.dropped_bytes < 300_000, tail(result))
    await bench.expect_alive()
    async with await bench.backend.create(limits=LIMITS) as other:
        expect((await other.commands.run(["true"])).ok, "a neighbour does not answer")


CHECKS = _registry.all()
