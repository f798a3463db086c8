"""Tasks that keep breaking things are left out, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.flow.quarantine import Quarantine
from burnish.observe.emit import Event, attached
from burnish.rollout.poison import poison_of
from burnish.testing import make_attempt
from burnish.types import Completion, Unmeasured


def broken(boundary: str = "sandbox") -> Unmeasured:
    return Unmeasured(boundary=boundary, cause="died", evidence="signal 9")


def test_a_task_that_fails_often_enough_in_a_row_goes_in_with_its_evidence() -> None:
    quarantine = Quarantine(threshold=3)
    events: list[Event] = []
    with attached(events.append):
        for _ in range(5):
            quarantine.hear(make_attempt(outcome=broken()))
    assert "t/0" in quarantine
    assert quarantine.tasks["t/0"] == ("3 attempts in a row could not be measured; the last: sandbox: died\nsignal 9")
    assert [event["event"] for event in events] == ["task.quarantine"]


@given(st.lists(st.sampled_from(["measured", "sandbox", "grader", "engine", "store"]), max_size=40))
def test_only_failures_in_a_row_that_may_be_the_tasks_doing_count(history: list[str]) -> None:
    quarantine, in_a_row, worst = Quarantine(threshold=4), 0, 0
    for what in history:
        quarantine.hear(make_attempt(outcome=None if what == "measured" else broken(what)))
        in_a_row = 0 if what == "measured" else in_a_row + (what in ("sandbox", "grader"))
        worst = max(worst, in_a_row)
    assert ("t/0" in quarantine) == (worst >= 4)


def test_who_was_in_it_stays_in_it() -> None:
    assert "t/7" in Quarantine(threshold=1, tasks={"t/7": "why"})
    with pytest.raises(ValueError, match="at least 1"):
        Quarantine(threshold=0)


def completion(**changes: object) -> Completion:
    right: dict[str, object] = {"token_ids": (4, 5), "logprobs": (-0.1, 0.0), "versions": (3, 3), "finish": "stop"}
    return Completion(**{**right, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "poison"),
    [
        ({}, None),
        ({"finish": "cancelled", "token_ids": (), "logprobs": (), "versions": ()}, None),
        ({"logprobs": (-0.1, float("nan"))}, "a logprob of nan"),
        ({"logprobs": (-0.1, float("-inf"))}, "a logprob of -inf"),
        ({"logprobs": (-0.1, 0.5)}, "a logprob of 0.5"),
        ({"logprobs": (-0.1,)}, "2 tokens with 1 logprobs and 2 versions"),
        ({"versions": (3,)}, "2 tokens with 2 logprobs and 1 versions"),
        ({"versions": (-1, 3)}, "version -1"),
        ({"token_ids": (1,) * 9, "logprobs": (-1.0,) * 9, "versions": (0,) * 9}, "9 tokens, where 8 were asked for"),
        ({"token_ids": (), "logprobs": (), "versions": ()}, "no token at all"),
    ],
)
def test_poisoned_answers_are_named(changes: dict[str, object], poison: str | None) -> None:
    assert poison_of(completion(**changes), max_new_tokens=8) == poison
