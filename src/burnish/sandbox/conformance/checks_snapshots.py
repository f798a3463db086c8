"""Snapshots, forks, and returns: the files of one moment, whatever happens to them elsewhere."""

import asyncio

from burnish.errors import UserError
from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check
_CHAIN_LENGTH = 200
# everything that a layer above another can say about the files below
_CHANGE_ALL = """
set -e
rm plain
rm -r tree && mkdir tree && echo new > tree/new
mv renamed-from renamed-to
echo over > replaced.tmp && mv replaced.tmp replaced
rm turned && mkdir turned
ln hard-1 hard-3
chmod 700 moded
touch -d @86400 dated
"""
_MAKE_ALL = """
set -e
echo plain > plain
mkdir -p tree/deep && echo old > tree/deep/old
echo renamed > renamed-from
echo below > replaced
echo turned > turned
echo hard > hard-1 && ln hard-1 hard-2
echo moded > moded && chmod 640 moded
echo dated > dated && touch -d @1000000000 dated
ln -s plain link
mkfifo pipe
"""
_DESCRIBE = "find . -mindepth 1 -printf '%P %y %m %n %l %T@\\n' | sort; find . -type f -exec grep -H '' {} + | sort"

# what a program can do to whoever copies its files while it runs
_MAKE_HARD_TO_COPY = """
import os, socket
home = os.getcwd()
for number in range(1200):
    open(f"a{number}", "w").close()
    os.link(f"a{number}", f"b{number}")
with open("sparse", "wb") as file:
    file.truncate(1 << 50)
    file.seek(1 << 45)
    file.write(b"data")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
open(b"name-\\xff", "w").close()
os.mkdir("shut")
open("shut/inside", "w").close()
os.chmod("shut", 0)
for _ in range(1100):
    os.mkdir("deeper" * 10)
    os.chdir("deeper" * 10)
with open("deepest", "w") as file:
    file.write("deepest")
"""
_DESCRIBE_HARD_TO_COPY = """
import json, os, stat
found = {name: list(os.lstat(name))[:1] + [os.lstat(name).st_nlink, os.lstat(name).st_blocks] for name in
         ("a0", "b1199", "sparse", "pipe", "socket", b"name-\\xff".decode(errors="surrogateescape"), "shut")}
with open("sparse", "rb") as file:
    file.seek(1 << 45)
    found["data"] = file.read(4).decode()
os.chmod("shut", 0o700)
found["inside"] = os.listdir("shut")
os.chmod("shut", 0)
for _ in range(1100):
    os.chdir("deeper" * 10)
found["deepest"] = open("deepest").read()
print(json.dumps(found))
"""


async def _describe(bench: Bench) -> bytes:
    result = await bench.sh(_DESCRIBE)
    expect(result.ok, f"the description itself failed: {tail(result)}")
    return result.stdout


@check("snapshot", "files")
async def a_snapshot_holds_the_files_of_its_moment(bench: Bench) -> None:
    """What is written, replaced or made after a snapshot is gone when the sandbox returns to it."""
    await bench.box.files.write("a", "before")
    async with await bench.box.snapshot() as snapshot:
        await bench.box.files.write("a", "after")
        await bench.box.files.write("b", "new")
        await bench.box.restore(snapshot)
        expect(await bench.box.files.read("a") == b"before", "a file that was replaced did not come back")
        expect(not await bench.box.files.exists("b"), "a file that was made later is still there")
        await bench.box.files.write("a", "again")
        await bench.box.restore(snapshot)
        expect(await bench.box.files.read("a") == b"before", "the second return differs from the first")


@check("snapshot", "files")
async def forks_share_a_past_and_nothing_else(bench: Bench) -> None:
    """A fork has the files of its original, and neither the original nor a sibling sees what it writes."""
    await bench.box.files.write("a", "shared")
    first, second = await bench.box.fork(2)
    async with first, second:
        await first.files.write("a", "first")
        await first.files.write("b", "first")
        await bench.box.files.write("c", "original")
        for box, mine in ((bench.box, b"shared"), (second, b"shared"), (first, b"first")):
            expect(await box.files.read("a") == mine, f"{box.id} sees what another one wrote")
        expect(not await second.files.exists("b"), "a sibling sees a new file")
        expect(not await bench.box.files.exists("b"), "the original sees a new file of its fork")
        expect(not await first.files.exists("c"), "a fork sees a new file of its original")
        expect(len({bench.box.id, first.id, second.id}) == 3, "two sandboxes have one id")


@check("snapshot", "files")
async def a_sandbox_can_start_from_a_snapshot(bench: Bench) -> None:
    """It has the files, and keeps them when the snapshot is released and the original ends."""
    async with await bench.backend.create(limits=LIMITS) as original:
        await original.files.write("deep/a", "kept")
        snapshot = await original.snapshot()
    box = await bench.backend.create(limits=LIMITS, snapshot=snapshot)
    await snapshot.release()
    await snapshot.release()
    async with box:
        expect(await box.files.read("deep/a") == b"kept", "the files of the snapshot are not there")
        (fork,) = await box.fork()
        async with fork:
            expect(await fork.files.read("deep/a") == b"kept", "a fork of it lost the files of the snapshot")


@check("snapshot")
async def a_released_snapshot_is_refused(bench: Bench) -> None:
    """Returning to it, or starting from it, is the caller's error."""
    snapshot = await bench.box.snapshot()
    await snapshot.release()
    for attempt in (bench.box.restore(snapshot), bench.backend.create(snapshot=snapshot)):
        try:
            await attempt
        except UserError:
            continue
        expect(False, "a released snapshot was taken")


@check("snapshot", "shell", "limits.disk")
async def every_kind_of_change_is_taken_back(bench: Bench) -> None:
    """Deletions, whole directories replaced, renames, types, hard links, modes, times, links, pipes."""
    result = await bench.sh(_MAKE_ALL)
    expect(result.ok, tail(result))
    before = await _describe(bench)
    async with await bench.box.snapshot() as snapshot:
        expect(await _describe(bench) == before, "taking a snapshot changed the files")
        result = await bench.sh(_CHANGE_ALL)
        expect(result.ok, tail(result))
        changed = await _describe(bench)
        async with await bench.box.snapshot() as second:
            expect(await _describe(bench) == changed, "the changes do not survive a snapshot")
            await bench.box.restore(snapshot)
            expect(await _describe(bench) == before, "the files did not come back as they were")
            await bench.box.restore(second)
            expect(await _describe(bench) == changed, "the later snapshot changed with the return to the earlier one")


@check("snapshot", "files")
async def a_chain_of_snapshots_loses_nothing(bench: Bench) -> None:
    """Two hundred snapshots with a write between each: every write is there, and any of them can be returned to."""
    held = []
    for number in range(_CHAIN_LENGTH):
        await bench.box.files.write(f"f{number}", str(number))
        await bench.box.files.write("last", str(number))
        held.append(await bench.box.snapshot())
    for number in (_CHAIN_LENGTH - 1, 57, 0):
        await bench.box.restore(held[number])
        expect(await bench.box.files.read("last") == str(number).encode(), f"not the state of snapshot {number}")
        expect(await bench.box.files.read("f0") == b"0", "the first write is lost")
        expect(not await bench.box.files.exists(f"f{number + 1}"), "a later write is there")
    for snapshot in held:
        await snapshot.release()


@check("snapshot", "shell", "limits.disk")
async def a_full_disk_can_be_snapshot(bench: Bench) -> None:
    """The snapshot is whole, what it holds counts against the limit, and a return to it is as full as it was."""
    await bench.sh("echo kept > kept; cat /dev/zero > filler")
    async with await bench.box.snapshot() as snapshot:
        result = await bench.sh("head -c 1000000 /dev/zero > more")
        expect(not result.ok and result.limit_hit == "disk", f"the disk has room again: {tail(result)}")
        (fork,) = await bench.box.fork()
        async with fork:
            result = await fork.commands.run("cat kept; head -c 1000000 /dev/zero > more")
            expect(result.stdout == b"kept\n" and not result.ok, f"a fork has more room: {tail(result)}")
        await bench.box.restore(snapshot)
        result = await bench.sh("cat kept; stat -c %s filler")
        kept, size = result.stdout.split()
        expect(kept == b"kept" and int(size) > LIMITS.disk_bytes // 2, f"not whole: {tail(result)}")


@check("snapshot", "shell")
async def a_snapshot_of_running_commands_leaves_them_running(bench: Bench) -> None:
    """Their files are copied while they stand still; the result says so, and they end as they would have."""
    writer = asyncio.create_task(bench.sh("for i in $(seq 200); do echo $i >> log; sleep 0.01; done; echo done"))
    for _ in range(1000):
        if await bench.box.files.exists("log"):
            break
        await asyncio.sleep(0.01)
    async with await bench.box.snapshot() as snapshot:
        expect(snapshot.was_live, "the result does not say that commands were running")
        async with await bench.backend.create(limits=LIMITS, snapshot=snapshot) as copy:
            lines = (await copy.files.read("log")).splitlines()
            numbers = [int(line) for line in lines]
            expect(numbers == list(range(1, len(numbers) + 1)), f"the copy is no moment of the original: {lines[-3:]}")
            result = await copy.commands.run("ps -e 2>/dev/null | wc -l; sleep 0.1; wc -l < log")
            expect(int(result.stdout.split()[-1]) == len(numbers), "a process of the original runs in the copy")
        result = await writer
        expect(result.stdout == b"done\n", f"the command did not go on: {tail(result)}")


@check("snapshot", "python", "limits.disk")
async def nothing_that_a_program_makes_breaks_a_copy(bench: Bench) -> None:
    """A thousand levels, hard links by the thousand, a petabyte of holes, pipes, sockets, modes, names: all copied."""
    result = await bench.box.commands.run(["python3", "-I", "-S", "-c", _MAKE_HARD_TO_COPY])
    expect(result.ok, f"the tree could not be made: {tail(result)}")
    before = await bench.probe(_DESCRIBE_HARD_TO_COPY)
    runs = asyncio.create_task(bench.sh("echo > begun; sleep 100"))
    for _ in range(1000):
        if await bench.box.files.exists("begun"):
            break
        await asyncio.sleep(0.01)
    async with await bench.box.snapshot() as snapshot:
        expect(snapshot.was_live, "there was nothing to copy")
        runs.cancel()
        async with await bench.backend.create(limits=LIMITS, snapshot=snapshot) as copy:
            after = await Bench(bench.backend, copy).probe(_DESCRIBE_HARD_TO_COPY)
    differing = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    expect(not differing, f"the copy differs: {differing}")


@check("snapshot", "shell")
async def forks_draw_their_own_randomness(bench: Bench) -> None:
    """No two siblings, nor the original, read the same random bytes; and their clock is the machine's."""
    forks = await bench.box.fork(3)
    line = "head -c 16 /dev/urandom | od -An -tx1; date +%s"
    results = await asyncio.gather(*(box.commands.run(line) for box in (bench.box, *forks)))
    await asyncio.gather(*(box.kill() for box in forks))
    drawn = [result.stdout.splitlines()[0] for result in results]
    clocks = [int(result.stdout.splitlines()[1]) for result in results]
    expect(len(set(drawn)) == len(drawn), "the same random bytes twice")
    expect(max(clocks) - min(clocks) <= 5, "the clocks differ")


CHECKS = _registry.all()
