"""The conformance suite of the sandbox contract, shipped with the package: any backend can be held against it.

    results = await run_conformance(lambda: make_backend("process"))

`burnish sandbox check` runs it and prints what it finds. Every check is a named coroutine with a one-line meaning and
the capabilities it needs; one that the backend does not declare is skipped, and the result says which.
"""

from burnish.sandbox.conformance import (
    checks_commands,
    checks_cpu,
    checks_files,
    checks_isolation,
    checks_kernel,
    checks_limits,
    checks_network,
    checks_snapshots,
)
from burnish.sandbox.conformance.suite import BackendFactory, Check, CheckFailed, CheckResult, run_check
from burnish.sandbox.conformance.suite import run_conformance as _run

CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (
        checks_commands,
        checks_limits,
        checks_cpu,
        checks_files,
        checks_snapshots,
        checks_isolation,
        checks_kernel,
        checks_network,
    )
    for check in module.CHECKS
)
"""All checks in the order in which they run."""

__all__ = ["CHECKS", "Check", "CheckFailed", "CheckResult", "run_check", "run_conformance"]


async def run_conformance(backend_factory: BackendFactory, *, checks: tuple[Check, ...] = CHECKS) -> list[CheckResult]:
    """Runs the checks one after another, each in a fresh sandbox of one backend, which is closed at the end.

    Raises UserError when the machine cannot run the backend at all.
    """
    return await _run(backend_factory, checks)
