"""`burnish eval`: one policy, one suite, and a comparison with an earlier result where one is given."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from rich.console import Console

from burnish.attempts import AttemptRunner
from burnish.config import EvalOptions, ModelConfig, RunConfig
from burnish.engine.base import GenerateFn
from burnish.engine.chat import ChatCodec
from burnish.engine.local.tokenizer import load_tokenizer
from burnish.engine.openai import OpenAIEngine
from burnish.evaluate.measure import measure
from burnish.evaluate.render import render, render_comparison
from burnish.evaluate.result import EvalResult, read_result, write_result
from burnish.evaluate.suite import compare
from burnish.observe.emit import attached
from burnish.observe.live import LiveView
from burnish.parts import require_network, start_local_engine
from burnish.reward.grade import HiddenTests
from burnish.rollout.agent import CodeAgent
from burnish.rollout.loop import RolloutSetup
from burnish.rollout.render import ChatRenderer, Renderer
from burnish.sandbox import make_backend
from burnish.tasks.load import load_tasks
from burnish.types import Sampling
from burnish.weights.model_files import resolve_model

SOURCES = {"heldout": "builtin:heldout", "train": "builtin:train", "humaneval": "humaneval"}
PROMPT_TOKENS = 1024  # room for a prompt and the observations of each turn
ENDPOINT_CONTEXT = 1_000_000  # ChatCodec has one token per character
DEFAULTS = RunConfig(name="eval")


def run_eval(options: EvalOptions) -> int:
    """Evaluates, prints, writes. Raises UserError or BoundaryError; answers exit code 0."""
    earlier = read_result(options.compare) if options.compare else None
    console = Console()
    with LiveView(console) as view, attached(view):
        result = asyncio.run(_evaluate(options))
    if options.out is not None:
        write_result(result, options.out)
    console.print(render(result))
    if earlier is not None:
        console.print(render_comparison(compare(earlier, result)))
    return 0


async def _evaluate(options: EvalOptions) -> EvalResult:
    tasks = load_tasks(SOURCES.get(options.suite, options.suite))
    backend = make_backend(DEFAULTS.sandbox.backend)
    try:
        await require_network(backend, tasks)
        async with _policy(options) as (generate, renderer):
            sampling = Sampling(
                max_new_tokens=options.max_new_tokens,
                temperature=options.temperature,
                stop_ids=renderer.stop_ids,
                stop_strings=CodeAgent.stop_strings,
            )
            setup = RolloutSetup(
                generate=generate,
                backend=backend,
                renderer=renderer,
                agent=CodeAgent(),
                sampling=sampling,
                max_turns=options.turns,
                max_context_tokens=_context_tokens(options),
            )
            runner = AttemptRunner(
                setup=setup,
                grader=HiddenTests(vault=tasks.vault, backend=backend),
                max_retries=DEFAULTS.flow.max_attempt_retries,
                timeout_s=DEFAULTS.flow.attempt_timeout_s,
                label="eval",
            )
            return await measure(
                tasks,
                runner,
                label=options.model or options.endpoint_model or "",
                samples_per_task=options.samples,
                max_concurrent=DEFAULTS.engine.num_slots,
                seed=DEFAULTS.seed,
            )
    finally:
        await backend.close()


@contextlib.asynccontextmanager
async def _policy(options: EvalOptions) -> AsyncIterator[tuple[GenerateFn, Renderer]]:
    """The engine under test and the renderer that speaks its tokens."""
    if options.endpoint is not None:
        assert options.endpoint_model is not None
        async with OpenAIEngine(
            options.endpoint, model=options.endpoint_model, api_key_env=options.api_key_env
        ) as endpoint:
            await endpoint.check()
            yield endpoint.generate, ChatCodec()
        return
    assert options.model is not None
    model_dir = resolve_model(options.model)
    config = DEFAULTS.model_copy(update={"model": ModelConfig(max_context_tokens=_context_tokens(options))})
    with tempfile.TemporaryDirectory(prefix="burnish-eval-") as logs:
        engine = await start_local_engine(model_dir, 0, config=config, log_path=Path(logs) / "engine.log")
        try:
            yield engine.generate, ChatRenderer(load_tokenizer(model_dir))
        finally:
            await engine.close()


def _context_tokens(options: EvalOptions) -> int:
    if options.endpoint is not None:
        return ENDPOINT_CONTEXT  # its own limit is the endpoint's to enforce
    return PROMPT_TOKENS + options.turns * options.max_new_tokens
