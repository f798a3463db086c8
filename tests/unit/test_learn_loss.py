"""Properties of the policy-gradient loss and of its normalisation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from burnish.learn.loss import Clip, clipped_policy_loss, importance_ratio, token_weights
from burnish.types import PackedRow
from tests.trees import Node, pack

CLIP = Clip(low=0.2, high=0.28, cap=2.0)
KINKS = (math.log(0.8), math.log(1.28), math.log(2.0))

leaves = st.builds(lambda n: Node(ids=(3,) * n), st.integers(1, 4))
trees = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda n, children: Node(ids=(3,) * n, children=tuple(children)),
        st.integers(1, 3),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)
rows = st.lists(trees.map(lambda tree: pack(Node(ids=(1, 2), trained=False, children=(tree,)))), min_size=1, max_size=3)


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(-2, 2)), min_size=1, max_size=8))
def test_gradient_is_the_slope_of_the_loss(tokens: list[tuple[float, float]]) -> None:
    """Central differences, away from the corners where the slope jumps."""
    tokens = [(gap, a) for gap, a in tokens if all(abs(gap - kink) > 1e-3 for kink in KINKS)] or [(0.0, 1.0)]
    gap, advantage = torch.tensor(tokens, dtype=torch.float64).T
    behaviour, weight = torch.full_like(gap, -1.0), torch.rand_like(gap)

    def loss_at(logp: torch.Tensor) -> torch.Tensor:
        return clipped_policy_loss(logp, behaviour, advantage, weight, CLIP)[0]

    assert torch.autograd.gradcheck(loss_at, ((behaviour + gap).requires_grad_(),), eps=1e-5)


def test_no_ratio_is_large_enough_to_break_the_gradient() -> None:
    logp = torch.tensor([0.0, 0.0, -500.0, -500.0], requires_grad=True)
    behaviour = torch.tensor([-500.0, -500.0, 0.0, 0.0])
    advantage = torch.tensor([-1.0, 1.0, -1.0, 1.0])
    loss, clipped = clipped_policy_loss(logp, behaviour, advantage, torch.ones(4), CLIP)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logp.grad is not None
    assert torch.isfinite(importance_ratio(logp, behaviour)).all()
    assert logp.grad.abs().max() < 1e-6
    assert clipped.tolist() == [True, True, True, False]


@given(rows, st.sampled_from(["token", "sequence"]))
def test_weights_share_out_exactly_one(packed: list[PackedRow], norm: str) -> None:
    weights = token_weights(packed, norm)  # type: ignore[arg-type]
    assert math.fsum(w for row in weights for w in row) == pytest.approx(1.0)
    for row, of_row in zip(packed, weights, strict=True):
        assert [w > 0 for w in of_row] == list(row.loss_mask)


def test_nothing_to_train_is_an_error() -> None:
    row = pack(Node(ids=(1, 2), trained=False))
    with pytest.raises(ValueError, match="no loss token"):
        token_weights([row], "token")
