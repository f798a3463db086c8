"""The rows about many sandboxes and their state: fork, restore, a thousand idle ones, audit and limits on against off.

Each is one function from the figures to nothing.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _sandbox_figures import TRUE, Figures, Turn, p50, since_ms, take_turns
from burnish.sandbox.audit import AuditLog
from burnish.sandbox.audited import AuditedBox
from burnish.sandbox.process.backend import ProcessBackend
from burnish.types import Limits

FORK_BAR_MS, FORK_100_BAR_MS, RESTORE_BAR_MS = 3.0, 300.0, 5.0
IDLE_BAR_MB, IDLE_LATENCY_BAR, AUDIT_BAR = 1.0, 1.5, 1.05
_MB = 1 << 20
_AT_ONCE = 8
_FILL_S = 60.0
_MARKER = "marker"
_KERNEL_KEYS = ("Slab", "KernelStack", "PageTables", "Percpu")


def new_backend(*, pool: int = 0) -> ProcessBackend:
    """A backend without a pool, unless one is asked for."""
    return ProcessBackend(pool=pool)


async def exec_ms(box: Any) -> float:
    """One `true` in a live sandbox."""
    start_s = time.perf_counter()
    result = await box.commands.run([TRUE])
    wall_ms = since_ms(start_s)
    assert result.ok, result
    return wall_ms


# -- 4 fork -----------------------------------------------------------------------------------------------------------


async def fork_row(figures: Figures, *, quick: bool) -> None:
    """fork(1) and fork(100), with little and with much in the parent's upper layer."""
    num_one, num_many = (3, 1) if quick else (20, 5)
    sizes = {"1mb": _MB, "64mb": 64 * _MB} if quick else {"1mb": _MB, "1gb": 1024 * _MB}
    async with new_backend() as backend:
        turns = [
            Turn(run=_fork_turn(backend, name, num_bytes, count), every=1 if count == 1 else num_one // num_many)
            for name, num_bytes in sizes.items()
            for count in (1, 100)
        ]
        found = await take_turns(turns, num_rounds=num_one)
    for name in sizes:
        figures.samples(f"fork_1_{name}", found[f"fork_1_{name}"], p50_bar=FORK_BAR_MS)
        figures.samples(f"fork_1_{name}_and_exec", found[f"fork_1_{name}_and_exec"])
        figures.samples(f"fork_100_{name}", found[f"fork_100_{name}"], p50_bar=FORK_100_BAR_MS)
        figures.samples(f"fork_100_{name}_and_exec", found[f"fork_100_{name}_and_exec"])


def _fork_turn(backend: Any, size_name: str, num_bytes: int, count: int) -> Any:
    figure = f"fork_{count}_{size_name}"

    async def run() -> Mapping[str, float]:
        """A new parent every time: after a fork what it wrote is a layer, and its upper is empty."""
        async with await _filled_box(backend, num_bytes) as parent:
            start_s = time.perf_counter()
            children = await parent.fork(count)
            forked_ms = since_ms(start_s)
            try:
                seen = [await child.commands.run(["cat", _MARKER]) for child in children]
                all_ms = since_ms(start_s)
                assert len(seen) == count and all(result.stdout == b"parent" for result in seen)
            finally:
                await asyncio.gather(*(child.kill() for child in children))
        return {figure: forked_ms, f"{figure}_and_exec": all_ms}

    return run


async def _filled_box(backend: Any, num_bytes: int) -> Any:
    """A sandbox whose upper layer holds `num_bytes` and a marker."""
    box = await backend.create(limits=Limits(disk_bytes=num_bytes + 64 * _MB, wall_s=_FILL_S))
    result = await box.commands.run(f"head -c {num_bytes} /dev/zero > filling && printf parent > {_MARKER}")
    assert result.ok, result
    return box


# -- 5 restore --------------------------------------------------------------------------------------------------------


async def restore_row(figures: Figures, *, quick: bool) -> None:
    """Back to a snapshot, after something was written over it."""
    async with new_backend() as backend, await _filled_box(backend, _MB) as box, await box.snapshot() as beginning:
        turn = Turn(run=_restore_turn(box, beginning))
        found = await take_turns([turn], num_rounds=5 if quick else 300)
    figures.samples("restore", found["restore"], p50_bar=RESTORE_BAR_MS)
    figures.samples("restore_and_exec", found["restore_and_exec"])
    figures.samples("snapshot", found["snapshot"])


def _restore_turn(box: Any, beginning: Any) -> Any:
    async def run() -> Mapping[str, float]:
        """From the beginning each time, or the layers would pile up."""
        await box.restore(beginning)
        start_s = time.perf_counter()
        snapshot = await box.snapshot()
        snapshot_ms = since_ms(start_s)
        await box.files.write(_MARKER, "spoiled")
        start_s = time.perf_counter()
        await box.restore(snapshot)
        restored_ms = since_ms(start_s)
        seen = await box.commands.run(["cat", _MARKER])
        all_ms = since_ms(start_s)
        await snapshot.release()
        assert seen.stdout == b"parent", seen
        return {"snapshot": snapshot_ms, "restore": restored_ms, "restore_and_exec": all_ms}

    return run


# -- 7 a thousand idle ones -------------------------------------------------------------------------------------------


async def idle_row(figures: Figures, *, quick: bool) -> None:
    """Memory of many live sandboxes that do nothing, and what they do to the latency of one that works."""
    num_boxes, num_execs = (50, 20) if quick else (1000, 500)
    async with new_backend() as backend, await backend.create() as box:
        await exec_ms(box)
        alone = [await exec_ms(box) for _ in range(num_execs)]
        kernel_before = _meminfo()
        others = await _create_many(backend, num_boxes - 1)
        _report_memory(figures, backend.host_pid, num_boxes, kernel_before)
        crowd = [await exec_ms(box) for _ in range(num_execs)]
        await _run_at_once([exec_ms(other) for other in others])  # the first one touches memory of its own
        chance = random.Random(0)
        others_ms = [await exec_ms(chance.choice(others)) for _ in range(num_execs)]
        start_s = time.perf_counter()
        await _run_at_once([other.kill() for other in others])
        figures.value("idle_close_each", since_ms(start_s) / len(others), "ms")
        alone += [await exec_ms(box) for _ in range(num_execs)]
    figures.samples("exec_alone", alone)
    figures.samples(f"exec_among_{num_boxes}", crowd)
    figures.samples(f"exec_in_any_of_{num_boxes}", others_ms)
    figures.value(f"exec_among_{num_boxes}_over_alone", p50(crowd) / p50(alone), "x", bar=IDLE_LATENCY_BAR)
    figures.value(f"exec_in_any_of_{num_boxes}_over_alone", p50(others_ms) / p50(alone), "x", bar=IDLE_LATENCY_BAR)


async def _create_many(backend: Any, count: int) -> list[Any]:
    boxes: list[Any] = []

    async def create() -> None:
        boxes.append(await backend.create())

    await _run_at_once([create() for _ in range(count)])
    return boxes


async def _run_at_once(waiting: Sequence[Any]) -> None:
    for start in range(0, len(waiting), _AT_ONCE):
        await asyncio.gather(*waiting[start : start + _AT_ONCE])


def _report_memory(figures: Figures, host_pid: int, num_boxes: int, before: Mapping[str, int]) -> None:
    """User memory decides; what the kernel keeps for them is said beside it."""
    pids = descendants(host_pid)
    try:
        private = sum(_private_dirty_bytes(pid) for pid in pids)
    except PermissionError:
        figures.missing("idle_private_mb_each", "smaps_rollup is not ours to read", bar=f"<= {IDLE_BAR_MB:g} MB")
    else:
        figures.value("idle_private_mb_each", private / num_boxes / _MB, "MB", bar=IDLE_BAR_MB)
    figures.value("idle_processes_each", len(pids) / num_boxes, "processes")
    after = _meminfo()
    kernel = sum(after[key] - before[key] for key in _KERNEL_KEYS)
    figures.value("idle_kernel_mb_each", kernel / (num_boxes - 1) / _MB, "MB")
    figures.value("idle_tmpfs_mb_each", (after["Shmem"] - before["Shmem"]) / (num_boxes - 1) / _MB, "MB")
    groups = {group: charged for group, charged in map(_memory_group, pids) if charged is not None}
    if groups:
        figures.value("idle_cgroup_mb_each", sum(groups.values()) / num_boxes / _MB, "MB")
    else:
        figures.note("no memory control group of the sandboxes could be read")


def descendants(pid: int) -> list[int]:
    """Live processes below `pid`, itself left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _private_dirty_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    return 0


def _meminfo() -> dict[str, int]:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {key.rstrip(":"): int(value) * 1024 for key, value, *_ in lines}


def _memory_group(pid: int) -> tuple[str, int | None]:
    """The memory control group of a process and the bytes it is charged with, the kernel's own for it among them."""
    root = Path("/sys/fs/cgroup")
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            file = root / "memory" / path.lstrip("/") / "memory.usage_in_bytes"
        elif number == "0":
            file = root / path.lstrip("/") / "memory.current"
        else:
            continue
        if file.exists():
            return str(file), int(file.read_text())
    return "", None


# -- 9 audit and limits -----------------------------------------------------------------------------------------------


async def audit_row(figures: Figures, folder: Path, *, quick: bool) -> None:
    """exec with the audit log and without, in turns. Limits cannot be switched off."""
    async with new_backend() as backend, await backend.create() as box_off:
        log = AuditLog(folder / "audit.jsonl")
        box_on = AuditedBox(box_off, log)
        await exec_ms(box_on)
        await exec_ms(box_off)

        async def run_on() -> Mapping[str, float]:
            return {"exec_audit_on": await exec_ms(box_on)}

        async def run_off() -> Mapping[str, float]:
            return {"exec_audit_off": await exec_ms(box_off)}

        found = await take_turns([Turn(run=run_on), Turn(run=run_off)], num_rounds=20 if quick else 3000)
    for figure, values in found.items():
        figures.samples(figure, values)
    log.close()
    ratio = p50(found["exec_audit_on"]) / p50(found["exec_audit_off"])
    figures.value("exec_audit_on_over_off", ratio, "x", bar=AUDIT_BAR)
