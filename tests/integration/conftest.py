"""What integration tests share."""

from collections.abc import AsyncIterator

import pytest

from burnish.errors import UserError
from burnish.sandbox.process.backend import ProcessBackend


@pytest.fixture
async def backend() -> AsyncIterator[ProcessBackend]:
    """The process backend without a pool; skips where this machine cannot run it."""
    async with ProcessBackend(pool=0) as backend:
        try:
            await backend.capabilities()
        except UserError as error:
            pytest.skip(str(error))
        yield backend
