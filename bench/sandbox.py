"""Sandboxes of the `process` backend against the kernel's floor and the other sandboxes of this machine.

    python bench/sandbox.py [--quick] [--leaks N [--seed S]]

What is compared takes turns in one run, in an order drawn anew every round. The floor is `bench/sandbox_floor.c`: the
same namespaces and mounts without anything else. A peer is timed from its start until the sandbox is removed again;
burnish both until the first result (`cold_create`, which the bars are about) and until removed. A peer that does not
run here is left out, and why is said. `--leaks N` does something else: it kills N owners at random moments and counts
what they leave.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from _sandbox_code import code_row
from _sandbox_figures import TRUE, Figures, Turn, p50, since_ms, spawn, take_turns
from _sandbox_leaks import leaks_row
from _sandbox_peers import AbsentError, Floor, Peer, Skeleton, find_peers
from _sandbox_state import audit_row, exec_ms, fork_row, idle_row, new_backend, restore_row
from burnish.errors import SandboxError, UserError

FLOOR_BAR, COLD_P99_BAR_MS, WARM_BAR_MS, EXEC_BAR, RATE_BAR = 2.5, 15.0, 1.5, 1.5, 250.0
PEER_BAR = 1.0
POOL_SIZE = 8
POOL_FILL_S = 0.05
PEER_EVERY = 10  # rounds; bubblewrap, the only fast one, is in each
AT_ONCE = (2, 4, 8)


class Latencies:
    """Rows 1 to 3: everything that is timed alone."""

    def __init__(self, floor: Floor | None, peers: list[Peer], cold: Any, warm: Any, box: Any) -> None:
        self._floor, self._peers, self._cold, self._warm, self._box = floor, peers, cold, warm, box

    def turns(self) -> list[Turn]:
        runs = [self.cold, self.warm, self.exec, self.subprocess_run, self.posix_spawn]
        if self._floor is not None:
            runs.append(self.floor)
        ours = [Turn(run=run) for run in runs]
        return ours + [Turn(run=_peer_run(p), every=1 if p.name == "bwrap" else PEER_EVERY) for p in self._peers]

    async def cold(self) -> Mapping[str, float]:
        first_ms, removed_ms = await create_exec_close(self._cold)
        return {"cold_create": first_ms, "cold_create_removed": removed_ms}

    async def warm(self) -> Mapping[str, float]:
        first_ms, removed_ms = await create_exec_close(self._warm)
        await asyncio.sleep(POOL_FILL_S)  # or the pool would fill itself in somebody else's turn
        return {"warm_create": first_ms, "warm_create_removed": removed_ms}

    async def exec(self) -> Mapping[str, float]:
        return {"exec": await exec_ms(self._box)}

    async def floor(self) -> Mapping[str, float]:
        assert self._floor is not None
        return {"floor": self._floor.one_ms()}

    async def subprocess_run(self) -> Mapping[str, float]:
        """With its output collected, as a sandbox collects it."""
        start_s = time.perf_counter()
        subprocess.run([TRUE], stdin=subprocess.DEVNULL, capture_output=True, check=True)  # noqa: ASYNC221 (that it is)
        return {"subprocess_run": since_ms(start_s)}

    async def posix_spawn(self) -> Mapping[str, float]:
        wall_ms, code = spawn([TRUE])
        assert code == 0
        return {"posix_spawn": wall_ms}


def _peer_run(peer: Peer) -> Any:
    async def run() -> Mapping[str, float]:
        return {f"{peer.name}_removed": peer.one_ms()}

    return run


async def create_exec_close(backend: Any) -> tuple[float, float]:
    """Milliseconds from the call to the first result, and to the end of the sandbox."""
    start_s = time.perf_counter()
    box = await backend.create()
    result = await box.commands.run([TRUE])
    first_ms = since_ms(start_s)
    await box.kill()
    removed_ms = since_ms(start_s)
    assert result.ok, result
    return first_ms, removed_ms


async def latency_rows(figures: Figures, floor: Floor | None, peers: list[Peer], *, quick: bool) -> None:
    """Rows 1 to 3."""
    num_rounds = 20 if quick else 1000
    start_s = time.perf_counter()
    async with new_backend() as cold, await cold.create() as box:
        figures.value("host_start_and_create", since_ms(start_s), "ms")
        warm = new_backend(pool=POOL_SIZE)
        try:
            turns = Latencies(floor, peers, cold, warm, box).turns()
            await take_turns(turns, num_rounds=2)  # warm-up
            found = await take_turns(turns, num_rounds=num_rounds)
        finally:
            await warm.close()
    if floor is not None:
        figures.samples("floor", found["floor"])
        figures.samples("floor_in_a_row", floor.loop_ms(num_rounds))
    for peer in peers:
        figures.samples(f"{peer.name}_removed", found[f"{peer.name}_removed"])
    cold_figures(figures, found, peers)
    for figure in ("exec", "subprocess_run", "posix_spawn"):
        figures.samples(figure, found[figure])
    figures.value("exec_over_subprocess_run", p50(found["exec"]) / p50(found["subprocess_run"]), "x", bar=EXEC_BAR)


def cold_figures(figures: Figures, found: Mapping[str, list[float]], peers: list[Peer]) -> None:
    """Rows 1 and 2 against their bars."""
    figures.samples("cold_create", found["cold_create"], p99_bar=COLD_P99_BAR_MS)
    figures.samples("cold_create_removed", found["cold_create_removed"])
    cold = p50(found["cold_create"])
    if "floor" in found:
        figures.value("cold_create_over_floor", cold / p50(found["floor"]), "x", bar=FLOOR_BAR)
    else:
        figures.missing("cold_create_over_floor", "there is no floor", bar=f"<= {FLOOR_BAR:g} x")
    for peer in peers:
        theirs = p50(found[f"{peer.name}_removed"])
        figures.value(f"cold_create_over_{peer.name}", cold / theirs, "x", bar=PEER_BAR)
        figures.value(f"cold_create_removed_over_{peer.name}", p50(found["cold_create_removed"]) / theirs, "x")
    figures.samples("warm_create", found["warm_create"], p50_bar=WARM_BAR_MS)


async def rate_row(figures: Figures, *, quick: bool) -> None:
    """Row 6: create, exec and close, with several at a time; the best of them counts."""
    num_boxes, num_rounds = (16, 2) if quick else (200, 10)
    async with new_backend() as backend:
        await create_exec_close(backend)
        rates: dict[int, list[float]] = {at_once: [] for at_once in AT_ONCE}
        for _ in range(num_rounds):
            for at_once in AT_ONCE:
                rates[at_once].append(await _rate(backend, at_once, num_boxes))
    for at_once, values in rates.items():
        figures.value(f"create_exec_close_per_s_{at_once}_at_once", p50(values), "/s")
    best = max(p50(values) for values in rates.values())
    figures.value("create_exec_close_per_s", best, "/s", bar=RATE_BAR, want="min")


async def _rate(backend: Any, at_once: int, num_boxes: int) -> float:
    numbers = iter(range(num_boxes))

    async def work() -> None:
        for _ in numbers:  # shared by the workers
            await create_exec_close(backend)

    start_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return num_boxes / (time.perf_counter() - start_s)


async def measure(figures: Figures, folder: Path, *, quick: bool) -> None:
    """All rows but the leaks."""
    skeleton = Skeleton(folder / "skeleton")
    floor = None
    try:
        floor = Floor(folder, skeleton)
    except AbsentError as error:
        figures.note(f"no floor: {error}")
    peers, absent = find_peers(folder, skeleton)
    for peer in peers:
        figures.note(peer.describe())
    for name, reason in absent.items():
        figures.note(f"{name} is left out: {reason}")
    try:
        await _row(figures, "latencies", latency_rows(figures, floor, peers, quick=quick))
    finally:
        if floor is not None:
            floor.close()
    await _row(figures, "run_code", code_row(figures, quick=quick))
    await _row(figures, "fork", fork_row(figures, quick=quick))
    await _row(figures, "restore", restore_row(figures, quick=quick))
    await _row(figures, "create_exec_close_per_s", rate_row(figures, quick=quick))
    await _row(figures, "idle", idle_row(figures, quick=quick))
    await _row(figures, "audit", audit_row(figures, folder, quick=quick))


async def _row(figures: Figures, name: str, row: Coroutine[Any, Any, None]) -> None:
    """A row whose sandboxes fail is missed; the others are measured all the same."""
    try:
        await row
    except* (SandboxError, UserError) as failed:
        for error in failed.exceptions:
            figures.missing(name, str(error), bar="to be measured")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works, not how fast")
    parser.add_argument("--leaks", type=int, metavar="N", help="kill N owners at random moments instead")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a thousand sandboxes are as many sockets
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="burnish-bench-") as folder:
        Path(folder).chmod(0o755)  # runtimes with ids of their own look in
        if options.leaks is not None:
            leaks_row(figures, Path(folder), num_kills=options.leaks, seed=options.seed)
        else:
            asyncio.run(measure(figures, Path(folder), quick=options.quick))
    figures.print_table()
    return figures.exit_code


if __name__ == "__main__":
    sys.exit(main())
