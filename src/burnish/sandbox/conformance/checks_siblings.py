"""Two sandboxes at once: neither finds the other, though they run on one kernel."""

import asyncio
import json
import os

from burnish.sandbox.base import SandboxBox
from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check

_HERE = """
import ctypes, os, socket, time
libc = ctypes.CDLL(None, use_errno=True)
for make in (lambda: libc.shmget(4711, 4096, 0o1666), lambda: libc.semget(4711, 1, 0o1666),
             lambda: libc.msgget(4711, 0o1666)):
    make()
kept = [socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 4711))]
kept[0].bind("\\0here")
kept[0].listen()
kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
kept[2].bind(("127.0.0.1", 4712))
with open("/dev/shm/here", "w"), open("/tmp/here", "w"):
    time.sleep(60)
"""
_WHO_IS_THERE = """
import ctypes, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
found = []
def attempt(name, function):
    try:
        if function() != -1:
            found.append(name)
    except OSError:
        pass
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("127.0.0.1", 4712))
        s.send(b"x")
        s.settimeout(0.2)
        try:
            s.recv(1)
        except TimeoutError:
            return 0  # somebody is there, and does not answer
attempt("shared memory", lambda: libc.shmget(4711, 0, 0))
attempt("semaphores", lambda: libc.semget(4711, 0, 0))
attempt("message queue", lambda: libc.msgget(4711, 0))
attempt("abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\\0here"))
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", 4711)).close())
attempt("udp", send)
attempt("/dev/shm", lambda: os.stat("/dev/shm/here") and None)
attempt("/tmp", lambda: os.stat("/tmp/here") and None)
attempt("processes", lambda: 0 if [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())]
        else -1)
def signal_all():
    others = []
    for pid in range(2, 2000):
        try:
            os.kill(pid, 0)
            others.append(pid)
        except OSError:
            pass
    return -1 if others == [os.getpid()] else 0
attempt("signals", signal_all)
print(json.dumps(found))
"""


async def _found(box: SandboxBox) -> set[str]:
    result = await box.commands.run(["python3", "-I", "-c", _WHO_IS_THERE])
    expect(result.ok, f"the probe itself failed: {tail(result)}")
    return set(json.loads(result.stdout))


@check("python", "shell", "isolation")
async def siblings_do_not_meet(bench: Bench) -> None:
    """Another sandbox shares no file, process, signal, port, abstract socket, queue or shared memory with this one."""
    async with await bench.backend.create(limits=LIMITS) as sibling:
        being_here = asyncio.create_task(bench.box.commands.run(["python3", "-I", "-c", _HERE]))
        await bench.until_there("/tmp/here", being_here)  # noqa: S108
        own = await _found(bench.box)
        expect({"abstract socket", "tcp", "processes", "/tmp"} <= own, f"within one sandbox only {own} are found")
        others = await _found(sibling)
        expect(not others, f"found from another sandbox: {sorted(others)}")
        being_here.cancel()
        await asyncio.wait([being_here])
    expect(await bench.box.files.exists("/tmp/here"), "the end of the sibling took a file along")  # noqa: S108


@check("python", "shell", "isolation")
async def signals_stay_inside(bench: Bench) -> None:
    """A sandbox that signals every process number there is harms neither its neighbour nor us."""
    async with await bench.backend.create(limits=LIMITS) as sibling:
        long = asyncio.create_task(sibling.commands.run("sleep 0.5; echo unharmed"))
        source = (
            "import os\nfor n in (-1, *range(2, 70000)):\n    try:\n        n == os.getpid() or os.kill(n, 15)\n"
            f"    except OSError: pass\nos.kill({os.getpid()}, 0)"
        )
        result = await bench.box.commands.run(["python3", "-I", "-S", "-c", source])
        expect(result.exit_code == 1, f"our own process number can be signalled: {tail(result)}")
        expect((await long).stdout == b"unharmed\n", "a signal reached the neighbour")


CHECKS = _registry.all()
