"""Every backend against every check of the shipped conformance suite."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from burnish.errors import UserError
from burnish.sandbox import SandboxBackend, make_backend
from burnish.sandbox.conformance import CHECKS, Check, run_check

# One event loop and one backend for the module: a host per check would test little more and cost much.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["memory", "process"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[SandboxBackend]:
    backend = make_backend(request.param)
    try:
        await backend.capabilities()
    except UserError as error:
        await backend.close()
        pytest.skip(str(error))
    yield backend
    await backend.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_check(backend: SandboxBackend, check: Check) -> None:
    result = await run_check(check, backend, await backend.capabilities())
    if result.status == "skipped":
        pytest.skip(result.reason)
    assert result.status == "passed", result.reason
