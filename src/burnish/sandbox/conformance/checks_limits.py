"""Limits: each one holds, the result names it, and the sandbox and its neighbours live on."""

import asyncio
from dataclasses import replace

from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check

_HOG = "import sys; sys.stdout.write('early'); sys.stdout.flush(); x = []\nwhile True: x.append(bytearray(1 << 20))"
_COUNTING_HOG = """
import sys
x = []
while True:
    x.append(bytearray(1 << 20))
    sys.stdout.write(".")
    sys.stdout.flush()
"""
_FORK_BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.05)
"""
_MOST_OPEN_FILES = 1 << 14


@check("limits.wall")
async def a_timeout_is_a_result(bench: Bench) -> None:
    """A command that outlives its time is killed, and says so."""
    result = await bench.box.commands.run(["sleep", "60"], timeout_s=0.3)
    expect(result.timed_out and result.limit_hit == "wall" and result.signal == 9, tail(result))
    expect(result.exit_code is None and not result.ok, tail(result))


@check("limits.wall")
async def the_limit_of_the_sandbox_is_the_default(bench: Bench) -> None:
    """Without a timeout of its own a command has the sandbox's wall limit."""
    async with await bench.backend.create(limits=replace(LIMITS, wall_s=0.3)) as box:
        result = await box.commands.run(["sleep", "60"])
    expect(result.timed_out and result.limit_hit == "wall", tail(result))


@check("shell", "limits.wall")
async def a_timeout_kills_the_whole_tree(bench: Bench) -> None:
    """Children in sessions of their own that ignore SIGTERM end with it."""
    line = "trap '' TERM; setsid sh -c \"trap '' TERM HUP INT; sleep 1000\" & (setsid sleep 1000 &) & sleep 1000"
    result = await bench.sh(line, timeout_s=0.4)
    expect(result.timed_out, tail(result))
    await bench.expect_nobody_left()


@check("shell", "limits.wall")
async def a_stopped_process_times_out(bench: Bench) -> None:
    """SIGSTOP does not stop the clock."""
    result = await bench.sh("sleep 1000 & kill -STOP $! $$; sleep 1000", timeout_s=0.4)
    expect(result.timed_out and result.signal == 9, tail(result))
    await bench.expect_alive()


@check("shell", "limits.wall")
async def output_before_a_timeout_is_kept(bench: Bench) -> None:
    """What was written until then is in the result."""
    result = await bench.sh("echo early; echo soon >&2; sleep 60", timeout_s=0.4)
    expect(result.timed_out and result.stdout == b"early\n" and result.stderr == b"soon\n", tail(result))


@check("python", "limits.wall")
async def a_busy_loop_times_out(bench: Bench) -> None:
    """Load on every core does not keep the deadline from firing."""
    source = "import os\nfor _ in range(7): os.fork()\nwhile True: pass"
    result = await bench.box.commands.run(["python3", "-I", "-S", "-c", source], timeout_s=1.0)
    expect(result.timed_out or result.exit_code == 1, tail(result))
    await bench.expect_alive()


@check("limits.output")
async def output_is_bounded(bench: Bench) -> None:
    """Of a flood the first and the last half of the limit are kept, and the rest is counted."""
    data = b"head" + bytes(100_000) + b"tail"
    result = await bench.box.commands.run(["cat"], stdin=data)
    limit = LIMITS.output_bytes
    expect(len(result.stdout) == limit, f"{len(result.stdout)} bytes kept of a limit of {limit}")
    expect(result.stdout.startswith(b"head") and result.stdout.endswith(b"tail"), "head or tail is missing")
    expect(result.dropped_bytes == len(data) - limit, f"dropped {result.dropped_bytes}")
    expect(result.ok and result.limit_hit == "output", tail(result))


@check("limits.output")
async def output_at_the_limit_is_whole(bench: Bench) -> None:
    """Exactly the limit is not over it."""
    data = bytes(range(256)) * (LIMITS.output_bytes // 256)
    result = await bench.box.commands.run(["cat"], stdin=data)
    expect(result.stdout == data and result.dropped_bytes == 0 and result.limit_hit is None, tail(result))


@check("shell", "limits.output", "limits.wall")
async def endless_output_on_both_streams(bench: Bench) -> None:
    """Two floods at once are drained in bounded memory, and the deadline still fires."""
    result = await bench.sh("yes out & yes err >&2", timeout_s=0.6)
    expect(result.timed_out and result.limit_hit == "wall", tail(result))
    expect(len(result.stdout) == len(result.stderr) == LIMITS.output_bytes, tail(result))
    expect(result.dropped_bytes > 0, "nothing was counted as dropped")
    await bench.expect_alive()


@check("python", "reports.memory")
async def a_memory_hog_is_stopped(bench: Bench) -> None:
    """The result names memory, keeps the output so far, and the sandbox lives on."""
    result = await bench.box.commands.run(["python3", "-I", "-c", _HOG])
    expect(result.limit_hit == "memory" and not result.ok and not result.timed_out, tail(result))
    expect(result.stdout == b"early", tail(result))
    await bench.expect_alive()


@check("python", "limits.memory")
async def memory_does_not_pass_the_limit(bench: Bench) -> None:
    """A hog gets what the limit and the room for files allow, and not a page more."""
    result = await bench.box.commands.run(["python3", "-I", "-S", "-c", _COUNTING_HOG])
    most = (LIMITS.memory_bytes + LIMITS.disk_bytes) >> 20
    expect(most // 2 < len(result.stdout) <= most, f"{len(result.stdout)} MiB under a limit of {most}")


@check("python", "shell", "files", "reports.memory")
async def a_memory_hog_in_a_child_is_named(bench: Bench) -> None:
    """Whether the command survives its child or is stopped with it."""
    await bench.box.files.write("hog.py", _HOG)
    result = await bench.sh("python3 -I hog.py > /dev/null; echo after")
    expect(result.limit_hit == "memory" and not result.timed_out, tail(result))
    expect(result.signal == 9 or result.stdout == b"after\n", tail(result))


@check("python", "reports.memory", "limits.pids")
async def many_small_hogs_do_not_take_the_sandbox_along(bench: Bench) -> None:
    """When many processes share the memory, those of the command die and the sandbox answers."""
    source = "import os\nfor _ in range(4): os.fork()\nx = []\nwhile True: x.append(bytearray(1 << 18))"
    await bench.box.commands.run(["python3", "-I", "-S", "-c", source], timeout_s=5.0)
    await bench.expect_alive()


@check("python", "limits.pids")
async def a_fork_bomb_is_bounded(bench: Bench) -> None:
    """It fills its own sandbox only; neighbour and sandbox answer during and after."""
    async with await bench.backend.create(limits=LIMITS) as neighbour:
        bomb = asyncio.create_task(bench.box.commands.run(["python3", "-I", "-S", "-c", _FORK_BOMB], timeout_s=1.5))
        await asyncio.sleep(0.7)
        expect((await neighbour.commands.run("echo hi")).stdout == b"hi\n", "the neighbour did not answer")
        result = await bomb
    expect(result.timed_out, tail(result))
    await bench.expect_alive()
    await bench.expect_nobody_left()


@check("python", "limits.pids")
async def the_number_of_processes_is_bounded(bench: Bench) -> None:
    """A program can have as many processes as the limit says, and not many more."""
    source = """
import json, os, time
n = 1
try:
    while n < 200:
        if os.fork() == 0:
            time.sleep(60)
        n += 1
except OSError:
    pass
print(json.dumps(n))
"""
    count = await bench.probe(source)
    expect(LIMITS.num_pids - 2 <= count <= LIMITS.num_pids + 2, f"{count} processes under {LIMITS.num_pids}")


@check("python", "reports.pids")
async def the_limit_on_processes_is_named(bench: Bench) -> None:
    """A program that ran into it is told so, also when it went on."""
    source = "import os, time\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(60)\nexcept OSError: pass"
    result = await bench.box.commands.run(["python3", "-I", "-S", "-c", source])
    expect(result.limit_hit == "pids" and result.ok, tail(result))


@check("shell", "limits.disk")
async def a_full_disk_is_named(bench: Bench) -> None:
    """Writing past the limit fails inside, and the result says disk; after a clean-up all is well."""
    for place in ("big", "/tmp/big", "/dev/shm/big"):  # noqa: S108
        result = await bench.sh(f"head -c {LIMITS.disk_bytes + (1 << 20)} /dev/zero > {place}")
        expect(not result.ok and result.limit_hit == "disk", f"{place}: {tail(result)}")
        await bench.sh(f"rm -f {place}")
    await bench.expect_alive()


@check("python", "limits.disk")
async def inodes_are_bounded(bench: Bench) -> None:
    """Empty files do not come free."""
    source = "n = 0\nwhile n < 200000:\n    open(f'f{n}', 'w').close()\n    n += 1"
    result = await bench.box.commands.run(["python3", "-I", "-S", "-c", source])
    expect(result.exit_code == 1 and result.limit_hit == "disk", tail(result))
    expect(b"No space left" in result.stderr, tail(result))


@check("python", "limits.open_files")
async def open_files_are_bounded(bench: Bench) -> None:
    """A process cannot hold descriptors without end."""
    source = """
import json, os
n = 0
try:
    while n < 1 << 17:
        os.dup(0)
        n += 1
except OSError:
    pass
print(json.dumps(n))
"""
    count = await bench.probe(source)
    expect(count < _MOST_OPEN_FILES, f"{count} descriptors in one process")


@check("shell")
async def killing_everything_harms_nobody_else(bench: Bench) -> None:
    """`kill -9 -1` ends the candidate's own processes; the sandbox answers."""
    await bench.sh("sleep 1000 & kill -9 -1")
    await bench.sh("kill -STOP -1; kill -TERM 1; kill -KILL 1; kill -STOP 1; kill -INT 1")
    await bench.expect_alive()


@check("reports.usage", "shell")
async def the_result_tells_what_was_used(bench: Bench) -> None:
    """CPU time of the command, and how many processes it left behind."""
    result = await bench.sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    expect(result.cpu_s is not None and 0.01 < result.cpu_s <= result.wall_s * 1.5, f"cpu_s={result.cpu_s}")
    expect(result.num_left == 0, f"{result.num_left} processes were left by a loop")
    result = await bench.sh("sleep 100 & setsid sleep 100 & echo started")
    expect(result.num_left == 2, f"{result.num_left} processes of 2 were counted")
    result = await bench.sh("sleep 0.1")
    expect(result.cpu_s is not None and result.cpu_s < 0.05, f"sleeping took cpu_s={result.cpu_s}")


@check("reports.peak_memory", "python")
async def the_result_tells_the_peak_of_memory(bench: Bench) -> None:
    """Of this command, not of one before it; and whether the kernel killed for it."""
    size = 32 << 20
    result = await bench.box.commands.run(["python3", "-I", "-S", "-c", f"b'x' * {size}"])
    peak = result.peak_memory_bytes
    expect(peak is not None and size <= peak <= 2 * size, f"peak {peak} for {size} bytes")
    expect(result.oom_killed is False, f"oom_killed={result.oom_killed}")
    result = await bench.sh("true")
    peak = result.peak_memory_bytes
    expect(peak is not None and peak < size, f"peak {peak} of a command that does nothing")
    result = await bench.box.commands.run(["python3", "-I", "-S", "-c", f"b'x' * {LIMITS.memory_bytes * 2}"])
    expect(result.oom_killed is True and result.limit_hit == "memory", tail(result))


CHECKS = _registry.all()
