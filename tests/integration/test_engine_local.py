"""The local engine's process: its death, its refusals, cancelling, and weights that change under running requests."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from burnish.engine.base import EngineStats
from burnish.engine.local import LocalEngine
from burnish.errors import EngineError, UserError
from burnish.types import Sampling
from burnish.watch import EngineWatch
from tests.tiny_models import byte_tokenizer, save_tiny_model

LONG = Sampling(max_new_tokens=240, seed=0)
PROMPT = tuple(range(2, 12))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("weights"))


async def start(weights: Path, tmp_path: Path, *, num_slots: int = 2, max_context_tokens: int = 256) -> LocalEngine:
    return await LocalEngine.start(
        weights,
        dtype="float32",
        device="cpu",
        num_slots=num_slots,
        num_threads=1,
        max_context_tokens=max_context_tokens,
        log_path=tmp_path / "engine.log",
        request_timeout_s=60.0,
        version=2,
    )


async def until(engine: LocalEngine, reached: Callable[[EngineStats], bool]) -> EngineStats:
    """Asks until it is so; the engine's own deadline ends a wait in vain."""
    async with asyncio.timeout(60):
        while True:
            stats = await engine.stats()
            if reached(stats):
                return stats


async def closing(engine: LocalEngine, body: Callable[[], Awaitable[None]]) -> None:
    try:
        await body()
    finally:
        await engine.close()


async def test_a_process_that_stands_still_is_found_out_and_ended(weights: Path, tmp_path: Path) -> None:
    engine = await start(weights, tmp_path)

    async def body() -> None:
        pending = asyncio.create_task(engine.generate(PROMPT, LONG))
        await until(engine, lambda stats: stats.running == 1)
        os.kill(engine.pid, signal.SIGSTOP)
        await EngineWatch(engine, stall_timeout_s=0.2).look()
        with pytest.raises(EngineError, match=r"killed, since it hung: does not answer for 0\.2 s"):
            await pending
        assert engine.death is not None

    await closing(engine, body)


async def test_a_killed_process_fails_pending_and_later_calls(weights: Path, tmp_path: Path) -> None:
    engine = await start(weights, tmp_path)

    async def body() -> None:
        pending = [asyncio.create_task(engine.generate((*PROMPT, n), LONG)) for n in range(4)]
        await until(engine, lambda stats: stats.running == 2)
        os.kill(engine.pid, signal.SIGKILL)
        for outcome in await asyncio.gather(*pending, return_exceptions=True):
            assert isinstance(outcome, EngineError)
            assert "killed by signal 9" in outcome.cause
        assert engine.death is not None
        with pytest.raises(EngineError, match="killed by signal 9"):
            await engine.generate(PROMPT, LONG)

    await closing(engine, body)


async def test_cancelling_frees_the_slots_for_those_who_wait(weights: Path, tmp_path: Path) -> None:
    engine = await start(weights, tmp_path)

    async def body() -> None:
        hogs = [asyncio.create_task(engine.generate((*PROMPT, n), LONG)) for n in range(2)]
        await until(engine, lambda stats: stats.running == 2)
        short = asyncio.create_task(engine.generate(PROMPT, Sampling(max_new_tokens=2)))
        for hog in hogs:
            hog.cancel()
        assert len((await short).token_ids) == 2
        stats = await engine.stats()
        assert (stats.running, stats.waiting) == (0, 0)
        assert stats.num_generated_tokens < 2 * LONG.max_new_tokens
        assert all(isinstance(o, asyncio.CancelledError) for o in await asyncio.gather(*hogs, return_exceptions=True))

    await closing(engine, body)


async def test_running_requests_survive_new_weights_and_show_both_versions(
    weights: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    newer = save_tiny_model("llama", tmp_path_factory.mktemp("newer"), seed=1, with_tokenizer=False)
    engine = await start(weights, tmp_path)

    async def body() -> None:
        running = [asyncio.create_task(engine.generate((*PROMPT, n), LONG)) for n in range(2)]
        await until(engine, lambda stats: stats.num_generated_tokens > 0)
        await engine.update_weights(newer, 3)
        for completion in await asyncio.gather(*running):
            assert len(completion.token_ids) == LONG.max_new_tokens
            assert set(completion.versions) == {2, 3}
            assert list(completion.versions) == sorted(completion.versions)

    await closing(engine, body)


async def test_what_does_not_fit_the_model_is_refused_by_name(
    weights: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = save_tiny_model("qwen3", tmp_path_factory.mktemp("other"), with_tokenizer=False)
    engine = await start(weights, tmp_path, max_context_tokens=32)

    async def body() -> None:
        with pytest.raises(EngineError, match="33 tokens; the context is 32"):
            await engine.generate([5] * 33, LONG)
        with pytest.raises(EngineError, match="99999 is outside the vocabulary"):
            await engine.generate([5, 99999], LONG)
        with pytest.raises(EngineError, match=r"which the model does not have|has shape"):
            await engine.update_weights(other, 3)
        with pytest.raises(EngineError, match="no weights"):
            await engine.update_weights(tmp_path / "nowhere", 3)
        assert set((await engine.generate(PROMPT, Sampling(max_new_tokens=3))).versions) == {2}
        free = (await engine.generate(PROMPT, Sampling(max_new_tokens=20, seed=1))).token_ids
        letters = [(place, byte_tokenizer().decode([token])) for place, token in enumerate(free)]
        place, letter = next((place, letter) for place, letter in letters if letter.isascii() and letter.isprintable())
        sampling = Sampling(max_new_tokens=20, seed=1, stop_strings=(letter,))
        stopped = await engine.generate(PROMPT, sampling)  # the worker loads the folder's tokenizer for this
        assert (stopped.token_ids, stopped.finish) == (free[: place + 1], "stop")

    await closing(engine, body)


@pytest.mark.parametrize(("positions", "message"), [(64, "does not load"), (4096, "only 256 positions")])
async def test_a_model_that_cannot_be_served_is_the_users_to_fix(
    positions: int, message: str, weights: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        await start(tmp_path if positions == 64 else weights, tmp_path, max_context_tokens=positions)
    assert caught.value.where
    assert caught.value.fix
