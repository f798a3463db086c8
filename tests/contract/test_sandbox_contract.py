"""Every backend against every check of the shipped conformance suite."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from burnish.errors import UserError
from burnish.sandbox import SandboxBackend, make_backend
from burnish.sandbox.audit import AuditLog, verify_audit
from burnish.sandbox.audited import AuditedBackend
from burnish.sandbox.conformance import CHECKS, Check, run_check
from burnish.sandbox.fleet.backend import Fleet
from burnish.sandbox.process.backend import ProcessBackend

# One event loop and one backend for the module: a host per check would test little more and cost much.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["memory", "audited memory", "fleet memory", "process", "fleet process"]
)
async def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SandboxBackend]:
    wrapper, _, name = request.param.rpartition(" ")
    audited = wrapper == "audited"
    # no pool: a sandbox made ahead of the next check would look like one that this check left
    backend = make_backend(name) if name != "process" else ProcessBackend(pool=0)
    if audited:
        log = tmp_path_factory.mktemp("audit") / "audit.jsonl"
        backend = AuditedBackend(backend, AuditLog(log))
    if wrapper == "fleet":
        backend = Fleet(backend, max_live=64, ttl_s=600, idle_timeout_s=300)
    try:
        await backend.capabilities()
    except UserError as error:
        await backend.close()
        pytest.skip(str(error))
    yield backend
    await backend.close()
    if audited:
        assert verify_audit(log).problem == ""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_check(backend: SandboxBackend, check: Check) -> None:
    result = await run_check(check, backend, await backend.capabilities())
    if result.status == "skipped":
        pytest.skip(result.reason)
    assert result.status == "passed", result.reason
