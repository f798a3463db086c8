"""The interpreters that wait for `run_code`: who starts them, who ends them, and what they never meet."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from burnish.errors import UserError
from burnish.sandbox.process.backend import ProcessBackend
from burnish.sandbox.process.box import ProcessBox
from burnish.types import Limits

pytestmark = pytest.mark.namespaces

WHO = "print(*(line.split()[-1] for line in open('/proc/self/status') if line.startswith('NSpid')))"


@pytest.fixture
async def backend() -> AsyncIterator[ProcessBackend]:
    async with ProcessBackend(pool=0) as backend:
        try:
            await backend.capabilities()
        except UserError as error:
            pytest.skip(str(error))
        yield backend


@pytest.fixture
async def box(backend: ProcessBackend) -> AsyncIterator[ProcessBox]:
    async with await backend.create() as box:
        yield box


def inside(backend: ProcessBackend) -> list[int]:
    """All processes of sandboxes that are no supervisors."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    return [pid for pid, parent in parents.items() if parents.get(parent) == backend.host_pid]


async def the_one_that_waits(backend: ProcessBackend) -> int:
    for _ in range(500):
        if waiting := inside(backend):
            return waiting[0]
        await asyncio.sleep(0.01)
    raise AssertionError("no interpreter was started ahead")


def own_pid(pid: int) -> int:
    """As its sandbox counts."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))


async def test_what_waits_is_used_once(backend: ProcessBackend, box: ProcessBox) -> None:
    assert inside(backend) == []
    assert (await box.commands.run_code("python", WHO)).ok
    for _ in range(3):
        waiting = await the_one_that_waits(backend)
        expected = own_pid(waiting)
        result = await box.commands.run_code("python", WHO)
        assert int(result.stdout) == expected and result.num_left == 0
        assert waiting not in inside(backend)


async def test_a_command_has_the_sandbox_for_itself(backend: ProcessBackend) -> None:
    async with await backend.create(limits=Limits(num_pids=1)) as box:
        await box.commands.run_code("python", "pass")
        await the_one_that_waits(backend)
        result = await box.commands.run(["true"])
        assert result.ok and result.limit_hit is None and result.num_left == 0
        await asyncio.sleep(0.1)
        assert inside(backend) == []  # not before there is code again


async def test_one_that_dies_is_not_missed(backend: ProcessBackend, box: ProcessBox) -> None:
    await box.commands.run_code("python", "pass")
    os.kill(await the_one_that_waits(backend), signal.SIGKILL)
    for _ in range(500):
        if not inside(backend):
            break
        await asyncio.sleep(0.01)
    assert (await box.commands.run_code("python", "print(1)")).stdout == b"1\n"
    await the_one_that_waits(backend)


async def test_another_environment_is_another_interpreter(backend: ProcessBackend, box: ProcessBox) -> None:
    await box.commands.run_code("python", "pass")
    unwanted = own_pid(await the_one_that_waits(backend))
    source = "import os; print(os.environ['A'])\n" + WHO
    result = await box.commands.run_code("python", source, envs={"A": "1"})
    value, pid = result.stdout.split()
    assert value == b"1" and int(pid) != unwanted and result.num_left == 0
    expected = own_pid(await the_one_that_waits(backend))
    result = await box.commands.run_code("python", source, envs={"A": "1"})
    assert result.stdout.split() == [b"1", b"%d" % expected]


@pytest.mark.parametrize(
    ("envs", "line"),
    [
        ({"PYTHONPATH": "/home/agent"}, "true"),
        ({"LD_PRELOAD": "/home/agent/x.so"}, "true"),
        ({"PATH": "bin:/usr/bin"}, "true"),
        ({"PATH": "/home/agent/bin:/usr/bin"}, "mkdir bin && ln -s $(which python3) bin/python3"),
        ({}, "mkdir -p .local/lib/python3.11/site-packages"),
        ({"HOME": "/tmp"}, "mkdir -p /tmp/.local/lib"),
    ],
)
async def test_nothing_starts_where_the_candidate_has_a_say(
    backend: ProcessBackend, box: ProcessBox, envs: dict[str, str], line: str
) -> None:
    assert (await box.commands.run(line)).ok
    for _ in range(2):
        result = await box.commands.run_code("python", "print(1)", envs=envs)
        assert result.stdout == b"1\n"
        await asyncio.sleep(0.1)
        assert inside(backend) == []


async def test_harmless_variables_are_no_hindrance(backend: ProcessBackend, box: ProcessBox) -> None:
    envs = {"PYTHON_VERSION": "3.12.1", "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "7"}
    first = await box.commands.run_code("python", "print(hash('a'))", envs=envs)
    await the_one_that_waits(backend)
    assert (await box.commands.run_code("python", "print(hash('a'))", envs=envs)).stdout == first.stdout


async def test_what_the_owner_writes_for_the_start_is_read(backend: ProcessBackend, box: ProcessBox) -> None:
    """What waits has started before, so it is not used."""
    folder = await box.commands.run_code("python", "import site; print(site.getusersitepackages(), end='')")
    await the_one_that_waits(backend)
    await box.files.write(f"{folder.stdout.decode()}/planted.pth", "import sys; sys.planted = 1\n")
    assert (await box.commands.run_code("python", "import sys; print(sys.planted)")).stdout == b"1\n"


async def test_snapshots_do_not_mind(backend: ProcessBackend, box: ProcessBox) -> None:
    await box.commands.run_code("python", "open('a', 'w').write('kept')")
    await the_one_that_waits(backend)
    async with await box.snapshot() as snapshot:
        assert not snapshot.was_live
        [fork] = await box.fork(1)
        async with fork:
            for one in (box, fork):
                assert (await one.commands.run_code("python", "print(open('a').read())")).stdout == b"kept\n"
            await the_one_that_waits(backend)
            await box.restore(snapshot)
            assert (await box.commands.run_code("python", "print(open('a').read())")).stdout == b"kept\n"


async def test_a_cancelled_call_ends_its_code(backend: ProcessBackend, box: ProcessBox) -> None:
    await box.commands.run_code("python", "pass")
    await the_one_that_waits(backend)
    call = asyncio.create_task(box.commands.run_code("python", "import time; time.sleep(1000)"))
    await asyncio.sleep(0.1)
    call.cancel()
    await asyncio.wait([call])
    assert (await box.commands.run(["true"])).num_left == 0
    assert inside(backend) == []
