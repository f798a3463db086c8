"""Batches survive the wire exactly: the tokens trained are the tokens sampled (I4)."""

import json
import math

from burnish.learn.codec import StepMetrics, batch_from_json, batch_to_json, metrics_from_json, metrics_to_json
from tests.trees import Node, batch_of, fork, pack


def test_batches_are_equal_after_a_trip_through_json() -> None:
    """Logprobs too, to the last bit."""
    odd = pack(Node(ids=(1,), trained=False, children=(Node(ids=(2,), logprob=-math.pi, advantage=1 / 3),)))
    batch = batch_of(fork((1, 2), (3, 4), (5,)), odd, step=3, temperature=0.7)
    assert batch_from_json(json.loads(json.dumps(batch_to_json(batch)))) == batch


def test_metrics_keep_what_was_not_there() -> None:
    metrics = StepMetrics(
        version=1, loss=0.5, grad_norm=2.0, learning_rate=1e-5, entropy=0.1, logprob_gap_mean=0.01,
        logprob_gap_max=0.2, ratio_mean=1.0, ratio_max=1.0, clip_fraction=0.0, num_loss_tokens=3,
        num_newest_tokens=0, num_row_tokens=5, wall_s=0.1,
    )  # fmt: skip
    assert metrics_from_json(json.loads(json.dumps(metrics_to_json(metrics)))) == metrics
