"""The local engine's core on tiny models of several architectures: every logprob against transformers' own forward."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish.engine.local.attention import KVCache, LayerShape, Pass, Segment
from burnish.engine.local.core import EngineCore
from burnish.engine.local.model import load_model
from burnish.errors import UserError
from burnish.types import Completion, Sampling
from tests.tiny_models import CONFIGS, MAX_POSITIONS, VOCAB_SIZE, byte_tokenizer, plain_logprobs, save_tiny_model

SERVED = sorted(CONFIGS.keys() - {"gemma2"})
LEAN = {"llama", "llama-scaled-rope", "mistral", "qwen2", "qwen3"}  # those that get the lean forward pass
NEAR = 2e-4  # of fp32 logprobs, computed in another order


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other are slow beside other tests, and these models are tiny."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Model folders by kind and seed, made once."""
    made: dict[tuple[str, int], Path] = {}

    def get(kind: str, seed: int = 0) -> Path:
        if (kind, seed) not in made:
            made[kind, seed] = save_tiny_model(kind, tmp_path_factory.mktemp(f"{kind}-{seed}"), seed=seed)
        return made[kind, seed]

    return get


def make_core(folder: Path, *, dtype: torch.dtype = torch.float32, num_slots: int = 4, **options: int) -> EngineCore:
    context = options.pop("max_context_tokens", 128)
    tokenizer = byte_tokenizer()
    return EngineCore(
        load_model(folder, dtype=dtype, device="cpu"),
        num_slots=num_slots,
        max_context_tokens=context,
        decode=lambda ids: str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)),
        **options,
    )


def tokens_of(seed: int, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, VOCAB_SIZE, (length,), generator=generator).tolist()


def finish(core: EngineCore) -> dict[int, Completion]:
    done: dict[int, Completion] = {}
    while core.busy:
        done |= {finished.request_id: finished.completion for finished in core.step()}
    return done


def assert_true_logprobs(
    folder: Path, prompt: Sequence[int], completion: Completion, *, tolerance: float = NEAR
) -> None:
    """The engine's logprobs are those of one plain forward pass over prompt and completion."""
    reference = plain_logprobs(folder, [*prompt, *completion.token_ids])
    expected = [float(reference[len(prompt) - 1 + index, token]) for index, token in enumerate(completion.token_ids)]
    assert completion.logprobs == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("kind", SERVED)
def test_requests_that_join_and_leave_get_the_logprobs_of_a_plain_forward(
    kind: str, folders: Callable[[str], Path]
) -> None:
    folder = folders(kind)
    model = load_model(folder, dtype=torch.float32, device="cpu")
    assert model.is_fast == (kind in LEAN)
    core = EngineCore(model, num_slots=3, max_context_tokens=128)
    prompts = {number: tokens_of(number, 3 + 17 * number) for number in range(5)}
    done: dict[int, Completion] = {}
    for number, prompt in prompts.items():  # two wait for a slot; each ends at another step
        core.add(number, prompt, Sampling(max_new_tokens=5 + 7 * (number % 3), seed=number))
        done |= {finished.request_id: finished.completion for finished in core.step()}
    done |= finish(core)
    assert {number: len(completion.token_ids) for number, completion in done.items()} == {
        0: 5,
        1: 12,
        2: 19,
        3: 5,
        4: 12,
    }
    for number, prompt in prompts.items():
        assert_true_logprobs(folder, prompt, done[number])


@pytest.mark.parametrize("kind", ["llama", "mistral", "gpt2"])
def test_a_group_that_shares_a_prompt_computes_it_once(kind: str, folders: Callable[[str], Path]) -> None:
    folder, prompt = folders(kind), tokens_of(1, 40)
    core = make_core(folder)
    for number in range(4):
        core.add(number, prompt, Sampling(max_new_tokens=12, seed=number))
    done = finish(core)
    assert core.num_prefilled_tokens == len(prompt)
    assert len({completion.token_ids for completion in done.values()}) == 4
    for completion in done.values():
        assert_true_logprobs(folder, prompt, completion)


def test_a_latecomer_and_a_second_turn_start_from_what_is_there(folders: Callable[[str], Path]) -> None:
    folder, prompt = folders("llama"), tokens_of(2, 40)
    core = make_core(folder)
    core.add(0, prompt, Sampling(max_new_tokens=10, seed=0))
    core.step()
    core.add(1, prompt, Sampling(max_new_tokens=10, seed=1))  # joins while the other runs
    done = finish(core)
    assert core.num_prefilled_tokens == len(prompt) + 1
    assert_true_logprobs(folder, prompt, done[1])
    second = [*prompt, *done[0].token_ids, *tokens_of(3, 5)]  # after both have left
    core.add(2, second, Sampling(max_new_tokens=10, seed=2))
    third = finish(core)[2]
    assert core.num_prefilled_tokens == len(prompt) + 1 + 1 + 5  # the last sampled token was never computed
    assert_true_logprobs(folder, second, third)


def test_kept_prefixes_are_bounded_and_the_oldest_goes_first(folders: Callable[[str], Path]) -> None:
    core = make_core(folders("llama"), num_slots=1, num_kept=2)
    prompts = [tokens_of(seed, 30) for seed in (10, 11, 12)]
    for number, prompt in enumerate([*prompts, prompts[2], prompts[1], prompts[0]]):
        core.add(number, prompt, Sampling(max_new_tokens=2, seed=0))
        finish(core)
    assert core.num_prefilled_tokens == 3 * 30 + 1 + 1 + 30


def test_a_request_samples_the_same_whoever_shares_its_batch(folders: Callable[[str], Path]) -> None:
    folder, prompt, sampling = folders("qwen3"), tokens_of(4, 20), Sampling(max_new_tokens=16, seed=7)
    alone = make_core(folder)
    alone.add(0, prompt, sampling)
    crowded = make_core(folder)
    for number in range(1, 6):
        crowded.add(number, tokens_of(number, 10 * number), Sampling(max_new_tokens=4 * number, seed=number))
    crowded.add(0, prompt, sampling)
    first, second = finish(alone)[0], finish(crowded)[0]
    assert first.token_ids == second.token_ids
    assert first.logprobs == pytest.approx(second.logprobs, abs=NEAR)


def test_new_weights_take_over_between_two_tokens(folders: Callable[[str, int], Path]) -> None:
    old, new, prompt = folders("llama", 0), folders("llama", 1), tokens_of(5, 30)
    core = make_core(old)
    core.add(0, prompt, Sampling(max_new_tokens=12, seed=0))
    for _ in range(5):
        core.step()
    core.update_weights(new, 3)
    core.add(1, prompt, Sampling(max_new_tokens=12, seed=0))
    done = finish(core)
    assert done[0].versions == (0,) * 5 + (3,) * 7
    assert done[1].versions == (3,) * 12
    assert core.num_prefilled_tokens == 60  # nothing computed by the old weights is shared
    assert_true_logprobs(new, prompt, done[1])
    before = Completion(
        token_ids=done[0].token_ids[:5], logprobs=done[0].logprobs[:5], versions=(0,) * 5, finish="length"
    )
    assert_true_logprobs(old, prompt, before)
    core.add(2, prompt, Sampling(max_new_tokens=4, seed=0))  # of the two that are kept, only the second may serve
    assert_true_logprobs(new, prompt, finish(core)[2])
    assert core.num_prefilled_tokens == 61


@pytest.mark.parametrize("harm", ["missing", "shape", "unknown", "none"])
def test_weights_that_do_not_fit_change_nothing(harm: str, folders: Callable[[str, int], Path], tmp_path: Path) -> None:
    old, prompt = folders("llama", 0), tokens_of(6, 20)
    if harm != "none":
        weights = load_file(folders("llama", 1) / "model.safetensors")
        name = "model.layers.1.self_attn.k_proj.weight"
        taken = weights.pop(name)
        if harm == "shape":
            weights[name] = taken[:-1].clone()
        if harm == "unknown":
            weights |= {name: taken, "model.extra.weight": taken.clone()}
        save_file(weights, tmp_path / "model.safetensors")
    core = make_core(old)
    with pytest.raises(ValueError, match=r"k_proj|model\.extra|no weights"):
        core.update_weights(tmp_path, 1)
    core.add(0, prompt, Sampling(max_new_tokens=4, seed=0))
    completion = finish(core)[0]
    assert completion.versions == (0,) * 4
    assert_true_logprobs(old, prompt, completion)


def test_cancelling_frees_the_slot_and_leaves_the_others_alone(folders: Callable[[str], Path]) -> None:
    folder = folders("llama")
    core = make_core(folder, num_slots=3)
    prompts = [tokens_of(seed, 20 + seed) for seed in range(4)]
    for number, prompt in enumerate(prompts):
        core.add(number, prompt, Sampling(max_new_tokens=9, seed=number))
    core.step()
    cancelled = core.cancel(0)  # the last row moves into its place
    assert cancelled is not None
    assert (cancelled.finish, len(cancelled.token_ids)) == ("cancelled", 1)
    assert (core.num_running, core.num_waiting) == (2, 1)
    assert core.cancel(0) is None
    done = finish(core)
    for number in (1, 2, 3):
        assert_true_logprobs(folder, prompts[number], done[number])


@pytest.mark.parametrize(
    ("prompt", "sampling", "message"),
    [
        ([], Sampling(max_new_tokens=1), "empty"),
        ([5] * 64, Sampling(max_new_tokens=1), "64 tokens; the context is 64"),
        ([5, VOCAB_SIZE], Sampling(max_new_tokens=1), f"{VOCAB_SIZE} is outside"),
        ([5, -1], Sampling(max_new_tokens=1), "-1 is outside"),
        ([5], Sampling(max_new_tokens=0), "max_new_tokens is 0"),
        ([5], Sampling(max_new_tokens=1, temperature=-1.0), "temperature"),
        ([5], Sampling(max_new_tokens=1, top_p=0.0), "top_p"),
        ([5], Sampling(max_new_tokens=1, top_k=-1), "top_k"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_alone(
    prompt: list[int], sampling: Sampling, message: str, folders: Callable[[str], Path]
) -> None:
    core = make_core(folders("llama"), max_context_tokens=64)
    core.add(0, tokens_of(0, 9), Sampling(max_new_tokens=3))
    with pytest.raises(ValueError, match=message):
        core.add(1, prompt, sampling)
    assert len(finish(core)[0].token_ids) == 3


def test_the_cache_takes_memory_only_for_what_is_stored() -> None:
    shape = LayerShape(num_kv_heads=4, key_size=64, value_size=64)
    before = psutil.Process().memory_info().rss
    cache = KVCache(shape, num_layers=8, rows=64, capacity=1024, dtype=torch.bfloat16, device="cpu")  # 512 MiB
    cache.current = Pass([], [Segment(row=3, start=0, length=100)], capacity=1024, device="cpu")
    cache.store(0, torch.ones((100, shape.width), dtype=torch.bfloat16))
    cache.copy(3, 5, 100)
    assert psutil.Process().memory_info().rss - before < 64 << 20


def test_a_full_context_ends_with_length(folders: Callable[[str], Path]) -> None:
    core = make_core(folders("llama"), max_context_tokens=24)
    prompt = tokens_of(0, 20)
    core.add(0, prompt, Sampling(max_new_tokens=99, seed=1))
    completion = finish(core)[0]
    assert (completion.finish, len(completion.token_ids)) == ("length", 4)
    assert_true_logprobs(folders("llama"), prompt, completion)


def test_stop_ids_and_stop_strings_end_a_completion(folders: Callable[[str], Path]) -> None:
    core, prompt = make_core(folders("llama")), tokens_of(8, 12)
    core.add(0, prompt, Sampling(max_new_tokens=12, seed=3))
    free = finish(core)[0].token_ids
    text = byte_tokenizer().decode(list(free[4:6]))
    core.add(1, prompt, Sampling(max_new_tokens=12, seed=3, stop_ids=(free[2],)))
    core.add(2, prompt, Sampling(max_new_tokens=12, seed=3, stop_strings=(text,)))
    done = finish(core)
    by_id, by_string = done[1], done[2]
    assert (by_id.token_ids, by_id.finish) == (free[: free.index(free[2]) + 1], "stop")
    assert by_string.finish == "stop"
    assert by_string.token_ids == free[: len(by_string.token_ids)]
    assert text in byte_tokenizer().decode(list(by_string.token_ids))


def test_bfloat16_stays_near_the_plain_forward(folders: Callable[[str], Path]) -> None:
    folder, prompt = folders("qwen2"), tokens_of(9, 40)
    core = make_core(folder, dtype=torch.bfloat16, num_slots=8)
    for number in range(8):
        core.add(number, prompt, Sampling(max_new_tokens=20, seed=number))
    for completion in finish(core).values():
        ids = [*prompt, *completion.token_ids]
        exact, rounded = (plain_logprobs(folder, ids, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
        index = torch.arange(len(prompt) - 1, len(ids) - 1), torch.tensor(completion.token_ids)
        ours = torch.tensor(completion.logprobs)
        noise = (rounded[index] - exact[index]).abs().mean()  # what bf16 does to transformers' own pass
        assert (ours - exact[index]).abs().mean() < 2 * noise + 0.02


def test_an_architecture_that_is_not_reproduced_is_refused(folders: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match=r"Gemma2ForCausalLM.*softcap"):
        load_model(folders("gemma2"), dtype=torch.float32, device="cpu")


def test_a_context_beyond_the_models_positions_is_refused(folders: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match=f"only {MAX_POSITIONS} positions"):
        make_core(folders("llama"), max_context_tokens=MAX_POSITIONS + 1)


def test_damaged_weights_are_named(folders: Callable[[str], Path], tmp_path: Path) -> None:
    broken = tmp_path / "model"
    shutil.copytree(folders("llama"), broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match="does not load"):
        load_model(broken, dtype=torch.float32, device="cpu")


@pytest.mark.model
def test_the_built_in_model_in_bfloat16(model_dir: Path) -> None:
    core = EngineCore(load_model(model_dir, dtype=torch.bfloat16, device="cpu"), num_slots=3, max_context_tokens=96)
    prompts = [tokens_of(seed, 30 + seed) for seed in (0, 0, 1)]
    for number, prompt in enumerate(prompts):
        core.add(number, prompt, Sampling(max_new_tokens=12, seed=number))
    done = finish(core)
    assert core.num_prefilled_tokens == 61
    for number, prompt in enumerate(prompts):
        ids = [*prompt, *done[number].token_ids]
        reference = plain_logprobs(model_dir, ids, dtype=torch.bfloat16)
        expected = reference[torch.arange(len(prompt) - 1, len(ids) - 1), torch.tensor(done[number].token_ids)]
        gap = (torch.tensor(done[number].logprobs) - expected).abs()
        assert float(gap.mean()) < 0.15  # random tokens: the flattest, noisiest distributions there are
