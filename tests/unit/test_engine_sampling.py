"""Sampling against definitions written out in fp64."""

import math
import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from burnish.engine.local.sampling import BLOCK, Sampler, sample
from burnish.types import Sampling

VOCABULARIES = st.sampled_from([2, 7, BLOCK, BLOCK + 1, 3 * BLOCK - 5])


def logits_of(seed: int, rows: int, vocabulary: int, *, spread: float = 3.0) -> torch.Tensor:
    return torch.randn((rows, vocabulary), generator=torch.Generator().manual_seed(seed)) * spread


def sampler(*, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, seed: int | None = 0) -> Sampler:
    return Sampler(Sampling(max_new_tokens=1, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed))


def expected_token(logits: torch.Tensor, temperature: float, uniform: float) -> set[int]:
    """The inverse CDF in fp64; its neighbours too when the uniform lies within fp32 rounding of a boundary."""
    cdf = (logits.double() / temperature).softmax(dim=-1).cumsum(dim=-1)
    ends = torch.tensor([uniform - 1e-5, uniform, uniform + 1e-5], dtype=torch.float64).clamp(0, 1 - 1e-12)
    return {min(int(index), len(cdf) - 1) for index in torch.searchsorted(cdf, ends, right=True)}


@given(seed=st.integers(0, 10_000), vocabulary=VOCABULARIES, temperature=st.sampled_from([0.5, 1.0, 1.7]))
def test_a_token_is_the_inverse_cdf_of_one_uniform(seed: int, vocabulary: int, temperature: float) -> None:
    logits = logits_of(seed, 3, vocabulary)
    tokens, logprobs = sample(logits, [sampler(temperature=temperature, seed=seed + row) for row in range(3)])
    for row, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True)):
        assert token in expected_token(logits[row], temperature, random.Random(seed + row).random())
        reference = (logits[row].double() / temperature).log_softmax(dim=-1)[token]
        assert logprob == pytest.approx(float(reference), abs=1e-5)


@given(seed=st.integers(0, 10_000), vocabulary=VOCABULARIES)
def test_greedy_takes_the_best_with_the_logprob_of_temperature_one(seed: int, vocabulary: int) -> None:
    logits = logits_of(seed, 2, vocabulary)
    tokens, logprobs = sample(logits, [sampler(temperature=0), sampler(temperature=0)])
    assert tokens == logits.argmax(dim=-1).tolist()
    best = logits.double().log_softmax(dim=-1).amax(dim=-1)
    assert logprobs == pytest.approx(best.tolist(), abs=1e-5)


@given(seed=st.integers(0, 10_000), top_k=st.integers(1, 9), top_p=st.floats(0.05, 1.0))
def test_truncation_keeps_only_the_allowed_and_renormalises(seed: int, top_k: int, top_p: float) -> None:
    logits = logits_of(seed, 1, 40)
    probabilities = logits[0].double().softmax(dim=-1)
    order = probabilities.argsort(descending=True)[:top_k]
    kept = probabilities[order] / probabilities[order].sum()
    allowed = [int(token) for token, before in zip(order, kept.cumsum(0) - kept, strict=True) if before < top_p - 1e-6]
    (token,), (logprob,) = sample(logits, [sampler(top_k=top_k, top_p=top_p, seed=seed)])
    borderline = {int(t) for t, before in zip(order, kept.cumsum(0) - kept, strict=True) if abs(before - top_p) < 1e-6}
    assert token in {*allowed, *borderline, int(order[0])}
    if not borderline:
        assert logprob == pytest.approx(math.log(probabilities[token] / probabilities[allowed].sum()), abs=1e-4)


def test_the_draws_of_a_request_do_not_depend_on_its_neighbours() -> None:
    logits = logits_of(1, 4, 500)
    together, _ = sample(logits, [sampler(seed=row) for row in range(4)])
    alone = [sample(logits[row : row + 1], [sampler(seed=row)])[0][0] for row in range(4)]
    mixed, _ = sample(logits, [sampler(seed=0), sampler(temperature=0), sampler(top_k=3), sampler(seed=3)])
    assert together == alone
    assert (mixed[0], mixed[3]) == (alone[0], alone[3])


def test_every_token_of_a_request_takes_the_next_uniform() -> None:
    logits, one = logits_of(2, 1, 300), sampler(seed=5)
    drawn = [sample(logits, [one])[0][0] for _ in range(4)]
    stream = random.Random(5)
    assert all(token in expected_token(logits[0], 1.0, stream.random()) for token in drawn)
    assert len(set(drawn)) > 1


def test_frequencies_follow_the_distribution() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    one = sampler(seed=0)
    counts = Counter(sample(logits, [one])[0][0] for _ in range(4000))
    for token, probability in enumerate(logits[0].softmax(dim=-1).tolist()):
        assert counts[token] / 4000 == pytest.approx(probability, abs=5 * math.sqrt(probability / 4000))


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_a_token_of_zero_probability_is_never_drawn(uniform: float, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.full((1, BLOCK + 9), -torch.inf)
    logits[0, 3], logits[0, BLOCK + 2] = 0.0, 0.5
    one = sampler()
    monkeypatch.setattr(one, "uniform", lambda: uniform)
    (token,), _ = sample(logits, [one])
    assert token in (3, BLOCK + 2)


def test_transposed_and_half_precision_logits_are_the_same_logits() -> None:
    logits = logits_of(3, 5, 700).bfloat16()
    straight = sample(logits, [sampler(seed=row) for row in range(5)])
    turned = sample(logits.t().contiguous().t(), [sampler(seed=row) for row in range(5)])
    assert straight == turned
    reference = logits.double().log_softmax(dim=-1)
    assert straight[1] == pytest.approx(
        [float(reference[row, token]) for row, token in enumerate(straight[0])], abs=1e-5
    )
