"""The attention plan sees exactly the pairs of tokens that a tree allows."""

from hypothesis import given
from hypothesis import strategies as st

from burnish.learn.forest import PAD_TOKENS, Forest, micro_batches, plant
from burnish.learn.loss import token_weights
from burnish.types import PackedRow
from tests.trees import Node, fork, pack, path_to

segments = st.integers(1, 5).map(lambda n: tuple(range(3, 3 + n)))
trees = st.recursive(
    st.builds(lambda ids: Node(ids=ids), segments),
    lambda inner: st.builds(
        lambda ids, children: Node(ids=ids, children=tuple(children)), segments, st.lists(inner, max_size=4)
    ),
    max_leaves=8,
)
packed = st.lists(st.lists(trees, min_size=1, max_size=3).map(lambda roots: pack(*roots)), min_size=1, max_size=3)


def planted(rows: list[PackedRow]) -> Forest:
    return plant(rows, [[0.0] * len(row.ids) for row in rows], range(len(rows)), newest=0)


def visible_by_plan(forest: Forest, num_tokens: int) -> list[list[int]]:
    """For every token the keys that the plan lets it see, in order."""
    queries, keys = forest.query_Q.tolist(), forest.key_X.tolist()
    seen: dict[int, list[int]] = {}
    slot = key_start = 0
    for family in forest.siblings:
        for _ in range(family.num_segments):
            for t in range(family.num_tokens):
                seen[slot] = keys[key_start : key_start + family.num_prefix + t + 1]
                slot += 1
            key_start += family.num_prefix + family.num_tokens
    gather = forest.gather_L.tolist()
    assert [queries[gather[token]] for token in range(num_tokens)] == list(range(num_tokens))
    return [seen[gather[token]] for token in range(num_tokens)]


@given(packed)
def test_a_token_sees_its_path_and_nothing_else(rows: list[PackedRow]) -> None:
    expected, offset = [], 0
    for row in rows:
        expected += [[offset + i for i in path_to(row, token)] for token in range(len(row.ids))]
        offset += len(row.ids)
    forest = planted(rows)
    assert visible_by_plan(forest, offset) == expected
    assert forest.ids_L.shape[0] % PAD_TOKENS == 0


@given(packed)
def test_padding_less_than_doubles_the_work(rows: list[PackedRow]) -> None:
    assert planted(rows).query_Q.shape[0] < 2 * sum(len(row.ids) for row in rows)


def test_loss_tokens_come_with_their_predecessor_and_figures() -> None:
    rows = [fork((1, 2), (3,)), fork((1, 2, 3), (4, 5), (6,), version=4)]
    forest = plant(rows, token_weights(rows, "token"), [1], newest=4)
    assert forest.places == ((1, 3), (1, 4), (1, 5))
    assert forest.target_N.tolist() == [4, 5, 6]
    assert forest.predecessor_N.tolist() == [2, 3, 2]
    assert forest.advantage_N.tolist() == [1.0, 1.0, -0.5]
    assert forest.weight_N.tolist() == [0.25] * 3  # of the whole batch's four
    assert forest.newest_N.tolist() == [True] * 3


def test_rows_share_a_micro_batch_while_they_fit() -> None:
    rows = [pack(Node(ids=(1,) * n)) for n in (3, 4, 2, 20, 1)]
    assert micro_batches(rows, 8) == [[0, 1], [2], [3], [4]]
