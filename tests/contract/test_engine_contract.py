"""What every engine promises, tried on the public fake and on the local engine with a tiny model in its own process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from burnish.engine.base import Engine
from burnish.engine.local import LocalEngine
from burnish.errors import EngineError
from burnish.testing import ScriptedEngine
from burnish.types import Sampling
from tests.tiny_models import save_tiny_model

PROMPT = (7, 8, 9, 10)
KINDS = ("scripted", "local")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("weights"))


async def start(kind: str, weights: Path) -> Engine:
    if kind == "scripted":
        return ScriptedEngine(lambda prompt, sampling: "an answer of more than eight tokens")
    return await LocalEngine.start(
        weights,
        dtype="float32",
        device="cpu",
        num_slots=4,
        num_threads=1,
        max_context_tokens=64,
        log_path=weights / "engine.log",
        request_timeout_s=60.0,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def engine(request: pytest.FixtureRequest, weights: Path) -> AsyncIterator[Engine]:
    """One engine of a kind for most tests: to start a process costs more than all of them."""
    made = await start(request.param, weights)
    yield made
    await made.close()


async def test_a_completion_has_a_logprob_and_a_version_for_each_token(engine: Engine) -> None:
    completion = await engine.generate(PROMPT, Sampling(max_new_tokens=8))
    assert (len(completion.token_ids), completion.finish) == (8, "length")
    assert len(completion.logprobs) == 8
    assert all(logprob < 0 for logprob in completion.logprobs)
    assert completion.versions == (0,) * 8


async def test_many_requests_at_once_are_each_answered(engine: Engine) -> None:
    limits = [1 + number % 5 for number in range(20)]
    before = await engine.stats()
    completions = await asyncio.gather(
        *(engine.generate((*PROMPT, number), Sampling(max_new_tokens=limit)) for number, limit in enumerate(limits))
    )
    assert [len(completion.token_ids) for completion in completions] == limits
    after = await engine.stats()
    assert (after.running, after.waiting) == (0, 0)
    assert after.num_generated_tokens - before.num_generated_tokens == sum(limits)


async def test_tokens_after_an_update_carry_its_version(engine: Engine, weights: Path) -> None:
    await engine.update_weights(weights, 5)
    completion = await engine.generate(PROMPT, Sampling(max_new_tokens=3))
    assert completion.versions == (5, 5, 5)


async def test_a_refused_request_hurts_nobody_else(engine: Engine) -> None:
    good = asyncio.create_task(engine.generate(PROMPT, Sampling(max_new_tokens=8)))
    with pytest.raises(EngineError, match="empty"):
        await engine.generate((), Sampling(max_new_tokens=8))
    assert len((await good).token_ids) == 8
    assert engine.death is None


async def test_a_cancelled_request_is_not_waited_for(engine: Engine) -> None:
    task = asyncio.create_task(engine.generate(PROMPT, Sampling(max_new_tokens=50)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len((await engine.generate(PROMPT, Sampling(max_new_tokens=8))).token_ids) == 8


@pytest.mark.asyncio(loop_scope="function")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_closed_engine_says_so_and_closes_again(kind: str, weights: Path) -> None:
    engine = await start(kind, weights)
    await engine.close()
    await engine.close()
    assert isinstance(engine.death, EngineError)
    with pytest.raises(EngineError):
        await engine.generate(PROMPT, Sampling(max_new_tokens=8))
    with pytest.raises(EngineError):
        await engine.stats()
