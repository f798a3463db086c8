"""Limits on the CPU, what programs see of their limits, and limits that a backend does not have."""

import asyncio
from dataclasses import replace

from burnish.errors import UserError
from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check

_BURN = "import os\nfor _ in range(2): os.fork()\nwhile True: pass"
_BURN_UNSEEN = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children, so no parent is told what they used
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.03
        while time.process_time() < end: pass
        os._exit(0)
    time.sleep(0.03)
"""
_BURN_A_LITTLE = "import time\nend = time.process_time() + 0.15\nwhile time.process_time() < end: pass"
_COUNT = "import json, os\nprint(json.dumps([os.cpu_count(), len(os.sched_getaffinity(0))]))"
_MEMINFO = """
import json
lines = [line.split() for line in open("/proc/meminfo")]
try:
    open("/proc/meminfo", "r+").close()
    written = True
except OSError:
    written = False
print(json.dumps([{line[0].rstrip(":"): int(line[1]) for line in lines}, written]))
"""
_FORKS = "import os, time\nfor _ in range(4):\n    if os.fork() == 0: time.sleep(60)\nprint('done')"
_FORK_BOMB = "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.05)"


@check()
async def a_limit_that_is_not_declared_is_refused(bench: Bench) -> None:
    """Asking for a limit that the backend cannot hold, or that makes no sense, raises before anything runs."""
    declared = await bench.backend.capabilities()
    for limits, capability in (
        (replace(LIMITS, num_cpus=1.0), "limits.cpu"),
        (replace(LIMITS, cpu_s=1.0), "limits.cpu_time"),
        (replace(LIMITS, num_cpus=0.0), ""),
        (replace(LIMITS, cpu_s=-1.0), ""),
        (replace(LIMITS, num_cpus=float("nan")), ""),
    ):
        try:
            box = await bench.backend.create(limits=limits)
        except UserError:
            expect(capability not in declared, f"{limits} was refused, and {capability} is declared")
            continue
        await box.kill()
        expect(capability in declared, f"{limits} was taken, and {capability or 'its value'} cannot be held")


@check("python", "limits.cpu")
async def processors_are_shared_out(bench: Bench) -> None:
    """All processes of a sandbox together get no more than its part of the machine; it answers all the same."""
    async with await bench.backend.create(limits=replace(LIMITS, num_cpus=0.2)) as box:
        result = await box.commands.run(["python3", "-I", "-S", "-c", _BURN], timeout_s=1.0)
        used = result.cpu_s
        expect(result.timed_out, tail(result))
        expect(used is not None and used <= 0.3 * result.wall_s, f"{used} s of CPU in {result.wall_s} s under 0.2")
        expect((await box.commands.run("echo alive")).stdout == b"alive\n", "the sandbox did not answer afterwards")


@check("python", "shell", "limits.cpu")
async def programs_count_their_own_processors(bench: Bench) -> None:
    """`nproc` and language run-times see as many as the limit, rounded up; all of them without a limit."""
    everything = await bench.probe(_COUNT)
    expect(len(set(everything)) == 1, f"without a limit they differ: {everything}")
    for num_cpus in (0.5, 1.0):
        async with await bench.backend.create(limits=replace(LIMITS, num_cpus=num_cpus)) as box:
            result = await box.commands.run(["python3", "-I", "-c", _COUNT])
            expect(result.stdout == b"[1, 1]\n", f"under {num_cpus}: {tail(result)}")
            result = await box.commands.run("nproc; grep -c '^cpu[0-9]' /proc/stat; grep -c ^btime /proc/stat")
            expect(result.stdout.split() == [b"1"] * 3, f"under {num_cpus}: {tail(result)}")


@check("python", "limits.cpu_time")
async def cpu_time_is_bounded(bench: Bench) -> None:
    """A command whose processes together use more is killed with all of them, and the result says why."""
    async with await bench.backend.create(limits=replace(LIMITS, cpu_s=0.4)) as box:
        result = await box.commands.run(["python3", "-I", "-S", "-c", _BURN])
        expect(result.limit_hit == "cpu" and result.signal == 9 and not result.timed_out, tail(result))
        result = await box.commands.run("echo alive; ls /proc | grep -c '^[0-9]'")
        expect(result.stdout.startswith(b"alive\n") and result.limit_hit is None, tail(result))
        expect(int(result.stdout.split()[1]) <= 4, f"processes are left: {tail(result)}")  # pid 1, sh, ls, grep


@check("python", "limits.cpu_time", "limits.cpu")
async def cpu_time_of_unseen_children_counts(bench: Bench) -> None:
    """Short-lived processes whose parent does not want to hear of them do not come free."""
    async with await bench.backend.create(limits=replace(LIMITS, cpu_s=0.4)) as box:
        result = await box.commands.run(["python3", "-I", "-S", "-c", _BURN_UNSEEN])
        expect(result.limit_hit == "cpu" and not result.timed_out, tail(result))
        expect(result.cpu_s is not None and result.cpu_s >= 0.4, f"the result tells of {result.cpu_s} s")


@check("python", "limits.cpu_time")
async def cpu_time_is_counted_per_command(bench: Bench) -> None:
    """Each command has the limit for itself, and waiting uses nothing of it."""
    async with await bench.backend.create(limits=replace(LIMITS, cpu_s=0.3)) as box:
        for _ in range(3):
            result = await box.commands.run(["python3", "-I", "-S", "-c", _BURN_A_LITTLE])
            expect(result.ok and result.limit_hit is None, tail(result))
        result = await box.commands.run(["sleep", "0.6"])
        expect(result.ok and result.limit_hit is None, tail(result))


@check("python", "shows_limits")
async def programs_see_their_own_memory(bench: Bench) -> None:
    """What `free` reads tells the sandbox's limit, no swap, and nothing of the machine."""
    values, written = await bench.probe(_MEMINFO)
    most = LIMITS.memory_bytes >> 10
    expect(values["MemTotal"] == most, f"MemTotal is {values['MemTotal']} kB of {most}")
    expect(0 < values["MemAvailable"] <= most and values["SwapTotal"] == 0, f"{values}")
    expect(not written, "it can be written")


@check("python", "snapshot", "limits.pids", "reports.pids")
async def a_fork_bomb_does_not_starve_its_siblings(bench: Bench) -> None:
    """Copies of one sandbox have a bound on processes each."""
    (fork,) = await bench.box.fork()
    async with fork:
        bomb = asyncio.create_task(fork.commands.run(["python3", "-I", "-S", "-c", _FORK_BOMB], timeout_s=1.5))
        await asyncio.sleep(0.7)
        result = await bench.box.commands.run(["python3", "-I", "-S", "-c", _FORKS])
        expect(result.stdout == b"done\n" and result.limit_hit is None, tail(result))
        await bomb


CHECKS = _registry.all()
