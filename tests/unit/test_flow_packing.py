"""Rows hold exactly the sampled tokens of every path, and a shared prompt once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.flow.buffer import Judged
from burnish.flow.packing import make_batch, pack_row
from burnish.testing import make_attempt, make_group
from burnish.types import PackedRow, Trajectory

TOKENS = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple)
ATTEMPTS = st.lists(
    st.builds(
        lambda prompt, answers: make_attempt(prompt=prompt, answers=answers).trajectory,
        st.sampled_from([(1, 2, 3), (7,)]),
        st.lists(TOKENS, min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
)


def path_to(row: PackedRow, token: int) -> list[int]:
    """Indices from the root to a token, by predecessors."""
    path = [token]
    while row.predecessors[path[-1]] >= 0:
        path.append(row.predecessors[path[-1]])
    return path[::-1]


def flat(trajectory: Trajectory) -> tuple[list[int], list[bool], list[float]]:
    ids, sampled, logprobs = [], [], []
    for step in trajectory.steps:
        ids += [*step.prompt_ids, *step.output_ids]
        sampled += [False] * len(step.prompt_ids) + [True] * len(step.output_ids)
        logprobs += [0.0] * len(step.prompt_ids) + list(step.logprobs)
    return ids, sampled, logprobs


@given(ATTEMPTS)
def test_every_path_reads_like_its_trajectory(trajectories: list[Trajectory]) -> None:
    """I4: the tokens trained are the tokens sampled, with their logprobs, in their places."""
    advantages = [float(i + 1) for i in range(len(trajectories))]
    row = pack_row(trajectories, advantages)
    ends = [i for i in range(len(row.ids)) if row.loss_mask[i] and i not in row.predecessors]
    assert len(ends) == len(trajectories)
    for end, trajectory, advantage in zip(ends, trajectories, advantages, strict=True):
        path = path_to(row, end)
        ids, sampled, logprobs = flat(trajectory)
        assert [row.ids[i] for i in path] == ids
        assert [row.loss_mask[i] for i in path] == sampled
        assert [row.logprobs[i] for i in path] == logprobs
        assert [row.positions[i] for i in path] == list(range(len(ids)))
        assert {row.advantages[i] for i in path if row.loss_mask[i]} == {advantage}
        assert {row.advantages[i] for i in path if not row.loss_mask[i]} <= {0.0}
        assert {row.versions[i] for i in path if row.loss_mask[i]} == {0}


@given(ATTEMPTS)
def test_attention_reaches_exactly_the_path(trajectories: list[Trajectory]) -> None:
    row = pack_row(trajectories, [1.0] * len(trajectories))
    ancestors: dict[int, set[int]] = {-1: set()}
    for segment, parent in enumerate(row.segment_parents):
        ancestors[segment] = ancestors[parent] | {segment}
    for token in range(len(row.ids)):
        seen = [j for j in range(token + 1) if row.segments[j] in ancestors[row.segments[token]]]
        assert seen == path_to(row, token)


def test_a_shared_prompt_is_computed_once() -> None:
    trajectories = [make_attempt(answers=((4, n),)).trajectory for n in range(8)]
    row = pack_row(trajectories, [1.0] * 8)
    assert len(row.ids) == 3 + 8 * 2
    assert row.segment_parents == (-1, *([0] * 8))


def test_a_batch_names_what_it_consumes() -> None:
    group = make_group([0, 1], id="g000003")
    judged = Judged(group=group, trajectories=tuple(a.trajectory for a in group.attempts), advantages=(-1.0, 1.0))
    batch = make_batch([judged], step=4, temperature=0.7)
    assert (batch.step, batch.temperature, batch.num_loss_tokens) == (4, 0.7, 4)
    assert batch.trajectory_ids == ("g000003.0", "g000003.1")
    assert batch.group_ids == ("g000003",)


def test_an_empty_row_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one trajectory"):
        pack_row([], [])
