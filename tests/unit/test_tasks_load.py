"""`load_tasks`: the sources, the order, and what it says about a source that cannot be."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnish.errors import UserError
from burnish.tasks import builtin
from burnish.tasks.load import load_tasks
from burnish.tasks.order import interleaved
from burnish.types import Band, Task

BANDS: tuple[Band, ...] = ("easy", "medium", "hard")


def tasks_of(shape: list[tuple[str, Band]]) -> list[Task]:
    return [
        Task(id=str(index), family=family, band=band, instruction="Write f.", entry_point="f")
        for index, (family, band) in enumerate(shape)
    ]


def test_the_split_is_by_family_and_complete() -> None:
    train, heldout, everything = (load_tasks(f"builtin:{name}") for name in ("train", "heldout", "all"))
    assert not {task.family for task in train.tasks} & {task.family for task in heldout.tasks}
    assert {task.id for task in train.tasks + heldout.tasks} == {task.id for task in everything.tasks}
    assert len(train.tasks) > len(heldout.tasks) > 0


def test_the_vault_holds_what_belongs_to_the_tasks_and_no_more() -> None:
    taken = load_tasks("builtin:heldout", max_tasks=5)
    assert len(taken.tasks) == len(taken.vault) == 5
    for task in taken.tasks:
        hidden = taken.vault.open_hidden(task.id)
        assert hidden.task_id == task.id
        assert f"{task.entry_point}" in hidden.reference
        assert hidden.reference not in task.instruction


@pytest.mark.parametrize("source", ["builtin:train", "builtin:heldout"])
@pytest.mark.parametrize("num", [12, 30, 48])
def test_every_prefix_is_a_small_image_of_the_whole(source: str, num: int) -> None:
    whole = load_tasks(source).tasks
    prefix = load_tasks(source, max_tasks=num).tasks
    assert prefix == whole[:num]
    for band in BANDS:
        share = sum(task.band == band for task in whole) / len(whole)
        assert abs(sum(task.band == band for task in prefix) - share * num) <= 1
    num_families = len({task.family for task in whole})
    most = max(Counter(task.family for task in prefix).values())
    assert most <= num // num_families + 2


def test_a_short_prefix_is_not_about_one_topic() -> None:
    first = {task.family for task in load_tasks("builtin:train", max_tasks=30).tasks}
    topics = [{family.name for family in module.FAMILIES} for module in builtin.MODULES]
    assert len(first) >= 28
    assert sum(bool(topic & first) for topic in topics) >= len(topics) - 4


def test_bands_choose_tasks_before_the_number_does() -> None:
    hard = load_tasks("builtin:train", bands=["hard"], max_tasks=10)
    assert [task.band for task in hard.tasks] == ["hard"] * 10
    two = load_tasks("builtin:train", bands=("easy", "medium"))
    assert {task.band for task in two.tasks} == {"easy", "medium"}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(BANDS)), max_size=40))
def test_interleaving_keeps_every_task_and_the_shares_of_bands(shape: list[tuple[str, Band]]) -> None:
    tasks = tasks_of(shape)
    ordered = interleaved(tasks)
    assert sorted(task.id for task in ordered) == sorted(task.id for task in tasks)
    assert ordered == interleaved(tasks)
    for num in range(1, len(ordered) + 1):
        for band in BANDS:
            share = sum(task.band == band for task in tasks) / len(tasks)
            assert abs(sum(task.band == band for task in ordered[:num]) - share * num) <= 1 + 1e-9


def test_within_a_family_and_band_the_declared_order_stays() -> None:
    ordered = interleaved(tasks_of([("a", "easy"), ("b", "easy"), ("a", "easy"), ("a", "easy")]))
    assert [task.id for task in ordered if task.family == "a"] == ["0", "2", "3"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("builtin:trian", "did you mean 'builtin:train'?"),
        ("human-eval", "did you mean 'humaneval'?"),
        ("nonsense", "allowed: builtin:train, builtin:heldout, builtin:all, humaneval, or the path of a .jsonl file"),
        ("/nowhere/tasks.jsonl", "/nowhere/tasks.jsonl: cannot be read: No such file"),
    ],
)
def test_an_unknown_source_is_answered_with_what_there_is(source: str, expected: str) -> None:
    with pytest.raises(UserError, match=r"(?s).*") as caught:
        load_tasks(source)
    assert expected in str(caught.value)


def test_no_task_left_is_an_error_that_names_the_bands_there_are() -> None:
    with pytest.raises(UserError, match="no task is in the bands easy") as caught:
        load_tasks("humaneval", bands=["easy"])
    assert caught.value.fix == "this source has tasks in the bands hard"
    with pytest.raises(UserError, match="max_tasks must be at least 1, not 0"):
        load_tasks("builtin:train", max_tasks=0)
