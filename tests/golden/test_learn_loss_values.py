"""The loss by hand: ratios are chosen, so every surrogate and every gradient is a number one can check on paper."""

import math

import pytest
import torch

from burnish.learn.loss import Clip, clipped_policy_loss, token_weights
from tests.trees import Node, pack

CLIP = Clip(low=0.2, high=0.28, cap=2.0)

# ratio, advantage -> surrogate, d surrogate / d logp, clipped
TABLE = [
    (1.0, 2.0, 2.0, 2.0, False),  # fresh data: REINFORCE
    (1.0, -2.0, -2.0, -2.0, False),
    (1.2, 1.0, 1.2, 1.2, False),
    (1.5, 1.0, 1.28, 0.0, True),  # good and already likelier than clip_high allows
    (0.5, 1.0, 0.5, 0.5, False),  # good and less likely than before: full pull
    (0.5, -1.0, -0.8, 0.0, True),  # bad and already less likely than clip_low allows
    (1.5, -1.0, -1.5, -1.5, False),  # bad and likelier: pushed down with its ratio ...
    (3.0, -1.0, -2.0, 0.0, True),  # ... up to the cap
    (3.0, 0.0, 0.0, 0.0, False),
]


@pytest.mark.parametrize(("ratio", "advantage", "surrogate", "slope", "clipped"), TABLE)
def test_one_token(ratio: float, advantage: float, surrogate: float, slope: float, clipped: bool) -> None:
    behaviour = torch.tensor([-1.5], dtype=torch.float64)
    logp = (behaviour + math.log(ratio)).requires_grad_()
    loss, removed = clipped_policy_loss(
        logp, behaviour, torch.tensor([advantage]).double(), torch.tensor([0.25]).double(), CLIP
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert logp.grad is not None
    assert loss.item() == pytest.approx(-0.25 * surrogate)
    assert logp.grad.item() == pytest.approx(-0.25 * slope)
    assert removed.tolist() == [clipped]


def test_token_weights_of_two_lengths() -> None:
    """Answers of 1 and 3 tokens: equal tokens, or equal answers."""
    row = pack(Node(ids=(1, 2), trained=False, children=(Node(ids=(3,)), Node(ids=(4, 5, 6)))))
    assert token_weights([row], "token") == [[0, 0, 0.25, 0.25, 0.25, 0.25]]
    sixth = pytest.approx(1 / 6)
    assert token_weights([row], "sequence") == [[0, 0, 0.5, sixth, sixth, sixth]]


def test_a_shared_turn_counts_once_for_each_sequence_through_it() -> None:
    """Turn (3, 4) is followed by (5,) and by (6, 7): it belongs to sequences of 3 and of 4 trained tokens."""
    row = pack(Node(ids=(1,), trained=False, children=(Node(ids=(3, 4), children=(Node(ids=(5,)), Node(ids=(6, 7)))),)))
    shared, short, long = (1 / 3 + 1 / 4) / 2, 1 / 3 / 2, 1 / 4 / 2
    assert token_weights([row], "sequence") == [pytest.approx([0, shared, shared, short, long, long])]
