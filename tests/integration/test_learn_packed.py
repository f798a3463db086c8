"""A packed tree computes what its sequences compute one by one: logprobs, gradients, and a whole optimizer step."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig, MistralForCausalLM

from burnish.config import LearnerConfig
from burnish.learn import step as step_module
from burnish.learn.forest import plant
from burnish.learn.head import token_logprobs
from burnish.learn.policy import load_policy
from burnish.learn.step import Trainer
from burnish.types import PackedRow
from tests.trees import VOCAB, Node, batch_of, fork, pack, path_to, tiny_model, told

CONFIG = LearnerConfig(lr=1e-3, warmup_steps=0)
TURN = Node(ids=(7, 8, 9), children=(Node(ids=(10,), advantage=-1.0), Node(ids=(11, 12, 13, 14, 15))))
DEEP = pack(Node(ids=(1, 2, 3, 4), trained=False, children=(TURN, Node(ids=(20, 21), advantage=-0.5))))
ROWS = [
    DEEP,
    pack(Node(ids=(5, 6), trained=False, children=(Node(ids=(30, 31)),)), Node(ids=(40,))),
    fork((9, 8, 7), (6,), (5, 4)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def trainer_on(folder: Path, *, config: LearnerConfig = CONFIG, dtype: torch.dtype = torch.float32) -> Trainer:
    return Trainer(load_policy(folder), config, dtype=dtype, max_lag=0)


def separate_logprobs(
    folder: Path, rows: list[PackedRow], *, temperature: float = 1.0
) -> tuple[torch.nn.Module, torch.Tensor]:
    """Every loss token from a forward pass over its own path alone, with the model's own attention."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    logps = []
    for row in rows:
        for token in (i for i, trained in enumerate(row.loss_mask) if trained):
            ids = torch.tensor([[row.ids[i] for i in path_to(row, token)]])
            logits = model(input_ids=ids[:, :-1]).logits[0, -1] / temperature
            logps.append(logits.log_softmax(-1)[row.ids[token]])
    return model, torch.stack(logps)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_and_gradients_of_a_forest(folder: Path, temperature: float) -> None:
    policy = load_policy(folder)
    forest = plant(ROWS, [[0.0] * len(row.ids) for row in ROWS], [0, 1, 2], newest=0)
    hidden = policy.hidden(forest)[forest.predecessor_N]
    logp, _ = token_logprobs(hidden, policy.head_VE, forest.target_N, temperature=temperature)
    model, expected = separate_logprobs(folder, ROWS, temperature=temperature)
    torch.testing.assert_close(logp, expected, atol=2e-6, rtol=1e-5)
    incoming = torch.linspace(-1, 1, len(logp))
    logp.backward(incoming)  # type: ignore[no-untyped-call]
    expected.backward(incoming)  # type: ignore[no-untyped-call]
    theirs = dict(model.named_parameters())
    for name, parameter in policy.parameters().items():
        torch.testing.assert_close(parameter.grad, theirs[name].grad, atol=2e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("norm", ["token", "sequence"])
def test_micro_batches_do_not_change_a_step(folder: Path, monkeypatch: pytest.MonkeyPatch, norm: str) -> None:
    """The normaliser is the whole batch's, however it is cut; the head's chunks do not show either."""
    config = CONFIG.model_copy(update={"loss_norm": norm})
    whole, cut = trainer_on(folder, config=config), trainer_on(folder, config=config)
    metrics = whole.step(batch_of(*ROWS))
    monkeypatch.setattr(step_module, "MICRO_BATCH_TOKENS", 1)
    monkeypatch.setattr(step_module, "HEAD_CHUNK", 3)
    cut_metrics = cut.step(batch_of(*ROWS))
    assert cut_metrics.loss == pytest.approx(metrics.loss, abs=1e-6)
    assert cut_metrics.grad_norm == pytest.approx(metrics.grad_norm, rel=1e-5)
    assert cut_metrics.entropy == pytest.approx(metrics.entropy, rel=1e-5)
    assert (metrics.version, metrics.num_loss_tokens, metrics.num_row_tokens) == (1, 16, 26)


def test_metrics_measure_the_gap_to_the_engine(folder: Path) -> None:
    """I4: logprobs that the engine would have returned give gap 0; a shift of them is seen as it is."""
    _, expected = separate_logprobs(folder, [DEEP])
    shift = 0.05
    metrics = trainer_on(folder).step(batch_of(told(DEEP, (expected - shift).tolist())))
    assert metrics.logprob_gap_mean == pytest.approx(shift, abs=1e-5)
    assert metrics.logprob_gap_max == pytest.approx(shift, abs=1e-5)
    assert metrics.ratio_mean == pytest.approx(math.exp(shift), abs=1e-5)
    assert metrics.clip_fraction == 0.0


def test_the_gap_is_over_the_freshest_tokens_there_are(folder: Path) -> None:
    """I4 on every batch: also where all of it is a step old."""
    trainer = Trainer(load_policy(folder), CONFIG, dtype=torch.float32, max_lag=2, version=1)
    rows = [fork((1, 2), (3, 4)), fork((1, 2), (3, 4), version=1)]
    assert trainer.step(batch_of(rows[0], step=1)).num_newest_tokens == 2
    assert trainer.step(batch_of(*rows, step=2)).num_newest_tokens == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_raise_what_was_good_and_lower_what_was_bad(folder: Path, dtype: torch.dtype) -> None:
    trainer = trainer_on(folder, dtype=dtype)
    row = fork((1, 2, 3), (10, 11), (20, 21))  # the first answer has advantage 1, the second -0.5
    before = separate_logprobs(folder, [row])[1].tolist()
    for step in range(3):
        trainer.step(batch_of(told(fork((1, 2, 3), (10, 11), (20, 21), version=step), before), step=step))
    trainer.policy.model.set_attn_implementation("sdpa")
    trainer.policy.model.float().save_pretrained(folder / f"after-{dtype}")
    after = separate_logprobs(folder / f"after-{dtype}", [row])[1].tolist()
    assert after[0] + after[1] > before[0] + before[1] + 0.02
    assert after[2] + after[3] < before[2] + before[3] - 0.02


def test_a_poisoned_weight_stops_before_the_step(folder: Path) -> None:
    trainer = trainer_on(folder)
    with torch.no_grad():
        trainer.policy.model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    before = {name: p.detach().clone() for name, p in trainer.policy.parameters().items()}
    with pytest.raises(FloatingPointError, match="logprob is nan at row 0, token 3"):
        trainer.step(batch_of(fork((1, 2, 3), (4,), (5,))))
    assert trainer.version == 0
    for name, parameter in trainer.policy.parameters().items():
        torch.testing.assert_close(parameter.detach(), before[name], rtol=0, atol=0, equal_nan=True)


def test_a_window_that_would_cut_is_refused(tmp_path: Path) -> None:
    """Mistral's sliding window: fine while sequences fit it, refused when they do not."""
    config = MistralConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=6,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(tmp_path)
    trainer = trainer_on(tmp_path)
    trainer.step(batch_of(fork((1, 2, 3), (4, 5, 6), (7,))))
    with pytest.raises(ValueError, match="sliding window of 6"):
        trainer.step(batch_of(fork((1, 2, 3), (4, 5, 6, 7), version=1), step=1))
