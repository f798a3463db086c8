"""The conformance suite of the sandbox contract, shipped with the package: any backend can be held against it.

    results = await run_conformance(lambda: make_backend("process"))

`burnish sandbox check` runs it and prints what it finds. Every check is a named coroutine with a one-line meaning and
the capabilities it needs; one that the backend does not declare is skipped, and the result says which.
"""

from burnish.sandbox.conformance import (
    checks_code,
    checks_commands,
    checks_cpu,
    checks_export,
    checks_files,
    checks_hostile,
    checks_isolation,
    checks_kernel,
    checks_languages,
    checks_limits,
    checks_network,
    checks_paths,
    checks_siblings,
    checks_snapshots,
    checks_together,
    checks_trees,
    checks_walls,
)
from burnish.sandbox.conformance.suite import BackendFactory, Check, CheckFailed, CheckResult, run_check
from burnish.sandbox.conformance.suite import run_conformance as _run

_MODULES = (
    checks_commands, checks_code, checks_limits, checks_cpu, checks_files, checks_paths, checks_snapshots,
    checks_export, checks_trees, checks_isolation, checks_walls, checks_kernel, checks_siblings, checks_network,
    checks_hostile, checks_together, checks_languages,
)  # fmt: skip
CHECKS: tuple[Check, ...] = tuple(check for module in _MODULES for check in module.CHECKS)
"""All checks in the order in which they run."""

__all__ = ["CHECKS", "Check", "CheckFailed", "CheckResult", "run_check", "run_conformance"]


async def run_conformance(backend_factory: BackendFactory, *, checks: tuple[Check, ...] = CHECKS) -> list[CheckResult]:
    """Runs the checks one after another, each in a fresh sandbox of one backend, which is closed at the end.

    Raises UserError when the machine cannot run the backend at all.
    """
    return await _run(backend_factory, checks)
