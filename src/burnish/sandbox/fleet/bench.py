"""What sandboxes cost on this machine, in a minute. `make bench-sandbox` measures with more care and against others."""

import time
from collections.abc import Awaitable, Callable
from statistics import quantiles
from typing import TypeVar

from burnish.sandbox.base import SandboxBackend

T = TypeVar("T")


async def measure(backend: SandboxBackend, *, num_rounds: int) -> dict[str, list[float]]:
    """Seconds of every round by what was done; forks and returns only where the backend has them."""
    times: dict[str, list[float]] = {}

    async def timed(name: str, work: Callable[[], Awaitable[T]]) -> T:
        began = time.perf_counter()
        result = await work()
        times.setdefault(name, []).append(time.perf_counter() - began)
        return result

    has_snapshots = "snapshot" in await backend.capabilities()
    for number in range(num_rounds + 1):
        async with await timed("create", backend.create) as box:
            await timed("exec", lambda: box.commands.run(["true"]))
            if has_snapshots:
                for copy in await timed("fork", box.fork):
                    await copy.kill()
                async with await box.snapshot() as snapshot:
                    await timed("restore", lambda: box.restore(snapshot))
        if number == 0:  # it starts what later rounds find running
            times.clear()
    return times


def p50_p99(times: list[float]) -> tuple[float, float]:
    """Of at least two."""
    cuts = quantiles(times, n=100, method="inclusive")
    return cuts[49], cuts[98]
