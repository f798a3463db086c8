"""The learner as the conductor has it: a process that steps, publishes, checkpoints, refuses and dies."""

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from burnish.config import LearnerConfig, ModelConfig
from burnish.errors import LearnerError, StoreError, UserError
from burnish.learn.client import Learner
from burnish.types import Batch
from tests.trees import batch_of, fork, tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_model(tmp_path_factory.mktemp("tiny"))
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    return folder


@asynccontextmanager
async def learner_on(folder: Path, log_path: Path, *, resume_from: Path | None = None) -> AsyncIterator[Learner]:
    learner = await Learner.start(
        folder,
        config=LearnerConfig(lr=1e-3, num_threads=1),
        model=ModelConfig(path=str(folder)),
        max_lag=0,
        log_path=log_path,
        resume_from=resume_from,
    )
    try:
        yield learner
    finally:
        await learner.close()


def batch_for(step: int) -> Batch:
    return batch_of(
        fork((1, 2, 3), (4, 5 + step), (6,), version=step), fork((7, 8), (9,), (10,), version=step), step=step
    )


async def test_a_resumed_learner_goes_on_as_if_it_had_not_stopped(folder: Path, tmp_path: Path) -> None:
    async with learner_on(folder, tmp_path / "log") as learner:
        assert learner.version == 0
        await learner.step(batch_for(0))
        await learner.save_checkpoint(tmp_path / "step-1")
        uninterrupted = await learner.step(batch_for(1))
        await learner.publish(tmp_path / "v2")
        assert learner.version == 2
        await learner.load(tmp_path / "step-1")
        assert learner.version == 1
    async with learner_on(folder, tmp_path / "log", resume_from=tmp_path / "step-1") as learner:
        assert learner.version == 1
        resumed = await learner.step(batch_for(1))
        await learner.publish(tmp_path / "again")
    assert dataclasses.replace(resumed, wall_s=0) == dataclasses.replace(uninterrupted, wall_s=0)
    expected, actual = load_file(tmp_path / "v2/model.safetensors"), load_file(tmp_path / "again/model.safetensors")
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    check_folders(folder, tmp_path / "v2", tmp_path / "step-1")


def check_folders(source: Path, published: Path, checkpoint: Path) -> None:
    """Both load as Hugging Face models, in their dtypes; the tokenizer is the source's, byte for byte."""
    for path, dtype in ((published, torch.bfloat16), (checkpoint, torch.float32)):
        model = AutoModelForCausalLM.from_pretrained(path)
        assert model.dtype == dtype
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert (path / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    start = AutoModelForCausalLM.from_pretrained(source)
    trained = AutoModelForCausalLM.from_pretrained(checkpoint)
    assert not torch.equal(start.lm_head.weight, trained.lm_head.weight)


async def test_a_refused_batch_and_a_failed_write_leave_the_learner_as_it_was(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with learner_on(folder, tmp_path / "log") as learner:
        with pytest.raises(LearnerError, match="batch for step 3, but the learner is at version 0"):
            await learner.step(batch_for(3))
        with pytest.raises(LearnerError, match=r"row 0, token 3: sampled by version 1"):
            await learner.step(dataclasses.replace(batch_for(1), step=0))
        for write in (learner.publish, learner.save_checkpoint):
            with pytest.raises(StoreError, match="file/v0"):
                await write(tmp_path / "file" / "v0")
        with pytest.raises(StoreError, match="read checkpoint"):
            await learner.load(tmp_path)
        assert learner.version == 0
        assert (await learner.step(batch_for(0))).version == learner.version == 1


async def test_death_has_a_name_and_no_call_hangs(folder: Path, tmp_path: Path) -> None:
    async with learner_on(folder, tmp_path / "log") as learner:
        stuck = asyncio.create_task(learner.step(batch_for(0)))
        os.kill(learner.pid, signal.SIGKILL)
        for call in (stuck, learner.step(batch_for(0)), learner.publish(tmp_path / "v0")):
            with pytest.raises(LearnerError, match="killed by signal 9"):
                await call


async def start_from(folder: Path, tmp_path: Path) -> None:
    async with learner_on(folder, tmp_path / "log"):
        pass


async def resume_from(folder: Path, tmp_path: Path) -> None:
    async with learner_on(folder, tmp_path / "log", resume_from=tmp_path / "nowhere"):
        pass


@pytest.mark.parametrize(("start", "where"), [(start_from, "nothing"), (resume_from, "nowhere")])
async def test_a_folder_without_a_model_is_the_users_mistake(
    folder: Path, tmp_path: Path, start: Callable[[Path, Path], Coroutine[Any, Any, None]], where: str
) -> None:
    with pytest.raises(UserError, match=rf"{where}: no model here: config.json is missing"):
        await start(folder if where == "nowhere" else tmp_path / "nothing", tmp_path)
