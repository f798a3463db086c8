"""How a check is declared and run."""

import asyncio
import contextlib
import inspect
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from burnish.errors import SandboxError
from burnish.sandbox.base import CAPABILITIES, ExecResult, SandboxBackend, SandboxBox, SandboxFileError
from burnish.types import Limits

CHECK_S = 60.0  # a check that takes longer has hung
LIMITS = Limits(wall_s=20.0, memory_bytes=128 << 20, num_pids=32, output_bytes=16 << 10, disk_bytes=16 << 20)
"""Small, so that hitting one is quick; the time is generous, because checks that mean it set their own."""

_POLL_S = 0.02
# every process but pid 1, the supervisor, and the shell that counts
_COUNT_OTHERS = "n=0; for p in /proc/[0-9]*; do case ${p#/proc/} in 1|$$) ;; *) n=$((n+1));; esac; done; echo $n"

BackendFactory = Callable[[], SandboxBackend]


class CheckFailed(Exception):
    """The backend broke a promise of the contract."""


class CheckSkipped(Exception):
    """The sandbox has nothing to hold against this promise, such as no compiler of a language."""


def expect(condition: bool, message: str) -> None:
    """Fails the check unless `condition` holds."""
    if not condition:
        raise CheckFailed(message)


@dataclass(frozen=True, slots=True)
class Bench:
    """What a check works with: a fresh sandbox under `LIMITS`, and the backend for checks that need more of them."""

    backend: SandboxBackend
    box: SandboxBox

    async def sh(self, line: str, *, timeout_s: float | None = None) -> ExecResult:
        return await self.box.commands.run(line, timeout_s=timeout_s)

    async def probe(self, source: str) -> Any:
        """Runs Python source in the sandbox, which prints one JSON value, and returns the value."""
        result = await self.box.commands.run(["python3", "-I", "-c", source])
        expect(result.ok, f"the probe itself failed: {tail(result)}")
        try:
            return json.loads(result.stdout)
        except ValueError as error:
            raise CheckFailed(f"the probe printed no JSON: {tail(result)}") from error

    async def until_there(self, path: str, running: "asyncio.Task[ExecResult]") -> None:
        """Waits until a command has made a file; fails the check when it ends before."""
        while not running.done():
            if await self.box.files.exists(path):
                return
            await asyncio.sleep(_POLL_S)
        raise CheckFailed(f"it ended without making {path}: {tail(await running)}")

    async def expect_nobody_left(self) -> None:
        """Fails the check when a process of an earlier command still runs."""
        result = await self.sh(_COUNT_OTHERS)
        expect(result.stdout == b"0\n", f"processes left over: {result.stdout.decode().strip()}")

    async def expect_alive(self) -> None:
        """Fails the check when the sandbox does not answer as if nothing had happened."""
        result = await self.sh("echo alive")
        fine = result.stdout == b"alive\n" and result.limit_hit is None
        expect(fine, f"the sandbox did not recover: {tail(result)}")


@contextlib.contextmanager
def host_folder(**files: bytes) -> Iterator[Path]:
    """A temporary folder of the host with these files, for checks that try to reach it from inside."""
    with tempfile.TemporaryDirectory(prefix="burnish-check-") as name:
        folder = Path(name)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        yield folder


def contents(folder: Path) -> dict[str, bytes]:
    """What is in the folder now."""
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def tail(result: ExecResult) -> str:
    """A result for a message, short."""
    return (
        f"exit_code={result.exit_code} signal={result.signal} timed_out={result.timed_out} limit={result.limit_hit} "
        f"stdout={result.stdout[-120:]!r} stderr={result.stderr[-200:]!r}"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One promise of the contract.

    Example: Check(name="a_non_zero_exit_is_a_result", meaning="...", needs=("shell",), run=function)
    """

    name: str
    meaning: str
    needs: tuple[str, ...]
    run: Callable[[Bench], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """What came of it. `reason` says why it failed or was skipped.

    Example: CheckResult(name="no_network", status="skipped", reason="not declared: network_none", wall_s=0.0)
    """

    name: str
    meaning: str
    status: Literal["passed", "failed", "skipped"]
    reason: str
    wall_s: float


class Registry:
    """Collects the checks of a module. `@registry.check("shell")` names the capabilities it needs."""

    def __init__(self) -> None:
        self._checks: list[Check] = []

    def check(self, *needs: str) -> Callable[[Callable[[Bench], Awaitable[None]]], Callable[[Bench], Awaitable[None]]]:
        assert set(needs) <= CAPABILITIES.keys()

        def register(function: Callable[[Bench], Awaitable[None]]) -> Callable[[Bench], Awaitable[None]]:
            meaning = " ".join((inspect.getdoc(function) or "").split())
            assert meaning
            self._checks.append(Check(name=function.__name__, meaning=meaning, needs=needs, run=function))
            return function

        return register

    def add(self, name: str, meaning: str, needs: tuple[str, ...], run: Callable[[Bench], Awaitable[None]]) -> None:
        """One that is not written as a function of its own."""
        assert set(needs) <= CAPABILITIES.keys()
        self._checks.append(Check(name=name, meaning=meaning, needs=needs, run=run))

    def all(self) -> tuple[Check, ...]:
        return tuple(self._checks)


async def run_check(check: Check, backend: SandboxBackend, capabilities: frozenset[str]) -> CheckResult:
    """One check in a sandbox of its own. A failure of the sandbox is a failed check; a bug in the suite is raised."""
    missing = [need for need in check.needs if need not in capabilities]
    started = time.monotonic()

    def result(status: Literal["passed", "failed", "skipped"], reason: str = "") -> CheckResult:
        wall_s = time.monotonic() - started
        return CheckResult(name=check.name, meaning=check.meaning, status=status, reason=reason, wall_s=wall_s)

    if missing:
        return result("skipped", f"not declared: {', '.join(missing)}")
    try:
        async with asyncio.timeout(CHECK_S), await backend.create(limits=LIMITS) as box:
            await check.run(Bench(backend, box))
    except CheckSkipped as reason:
        return result("skipped", str(reason))
    except CheckFailed as failure:
        return result("failed", str(failure))
    except SandboxError as error:
        return result("failed", f"{error} {error.evidence}".strip())
    except SandboxFileError as error:
        return result("failed", f"a file was refused: {error}")
    except TimeoutError:
        return result("failed", f"did not end within {CHECK_S:g} s")
    return result("passed")


async def run_conformance(backend_factory: BackendFactory, checks: tuple[Check, ...]) -> list[CheckResult]:
    """The checks one after another on one backend, which is closed at the end. Raises what `capabilities` raises."""
    backend = backend_factory()
    try:
        capabilities = await backend.capabilities()
        return [await run_check(check, backend, capabilities) for check in checks]
    finally:
        await backend.close()
