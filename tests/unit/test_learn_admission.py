"""What the learner refuses (I3 and malformed rows), and that packed groups pass."""

import dataclasses
import math
from typing import Any

import pytest

from burnish.learn.admission import check_batch
from burnish.types import Batch, PackedRow
from tests.trees import Node, batch_of, fork, pack

ROW = fork((1, 2, 3), (4, 5), (6,), version=7)


def check(row: PackedRow, *, step: int = 7, max_lag: int = 0, version: int = 7) -> None:
    check_batch(batch_of(row, step=step), version=version, max_lag=max_lag, vocab_size=61)


def altered(**columns: Any) -> PackedRow:
    return dataclasses.replace(ROW, **columns)


def with_version(token: int, version: int) -> PackedRow:
    return altered(versions=tuple(version if i == token else v for i, v in enumerate(ROW.versions)))


def test_a_packed_group_passes() -> None:
    check(ROW)


def test_deep_trees_and_several_roots_pass() -> None:
    turn = Node(ids=(3, 4), version=7, children=(Node(ids=(5,), version=7), Node(ids=(6, 7), version=7)))
    check(pack(Node(ids=(1, 2), trained=False, children=(turn,)), Node(ids=(9,), trained=False, children=(turn,))))


def test_an_attempt_without_tokens_passes_beside_others() -> None:
    check(altered(segments=(0, 0, 0, 1, 1, 3), segment_parents=(-1, 0, 0, 0)))


@pytest.mark.parametrize(("max_lag", "oldest"), [(0, 7), (2, 5)])
def test_the_lag_bound_holds_for_each_token(max_lag: int, oldest: int) -> None:
    """One token of many beyond the bound is enough (I3)."""
    check(with_version(4, oldest), max_lag=max_lag)
    with pytest.raises(ValueError, match=rf"row 0, token 4: sampled by version {oldest - 1}"):
        check(with_version(4, oldest - 1), max_lag=max_lag)


def test_a_token_from_the_future_is_refused() -> None:
    with pytest.raises(ValueError, match="sampled by version 8"):
        check(with_version(4, 8), max_lag=3)


def test_a_batch_for_another_step_is_refused() -> None:
    with pytest.raises(ValueError, match="batch for step 6, but the learner is at version 7"):
        check(ROW, step=6)


@pytest.mark.parametrize(
    ("columns", "cause"),
    [
        ({"loss_mask": (False,) * 6}, "no loss token"),
        ({"ids": (1, 2, 3, 4, 61, 6)}, "token 4: id 61 is outside the vocabulary"),
        ({"logprobs": (0.0, 0.0, 0.0, -1.0, math.nan, -1.0)}, "token 4: behaviour logprob is nan"),
        ({"advantages": (0.0, 0.0, 0.0, 1.0, math.inf, 1.0)}, "token 4: advantage is inf"),
        ({"positions": (0, 1, 2, 3, 4, 5)}, "token 5: position 5, expected 3"),
        ({"predecessors": (-1, 0, 1, 2, 3, 4)}, "token 5: predecessor 4, expected 2"),
        ({"segment_parents": (-1, 2, 0)}, "before its parent"),
        ({"segments": (0, 0, 0, 1, 0, 2)}, "token 4: segment 0 after 1"),
        ({"segments": (0, 0, 0, 1, 1, 3)}, "token 5: segment 3 after 1, of 3"),
        ({"versions": (-1,) * 5}, "columns differ in length"),
        ({"loss_mask": (True,) * 6}, "token 0: the first token of a sequence cannot be trained"),
    ],
)
def test_malformed_rows_are_refused(columns: dict[str, Any], cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        check(altered(**columns))


def test_temperature_must_be_positive() -> None:
    batch: Batch = batch_of(ROW, step=7, temperature=0.0)
    with pytest.raises(ValueError, match="temperature"):
        check_batch(batch, version=7, max_lag=0, vocab_size=61)
