"""When completions end."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from burnish.engine.local.stops import StopChecker
from burnish.types import FinishReason, Sampling


def decode(token_ids: Sequence[int]) -> str:
    """One token per byte, as byte-level tokenizers decode."""
    return bytes(token_ids).decode("utf-8", "replace")


def finish_of(data: bytes, sampling: Sampling, *, max_tokens: int = 10_000) -> tuple[int, FinishReason | None]:
    """How many tokens are taken, and why the last one ends it."""
    checker = StopChecker(sampling, max_tokens=max_tokens, decode=decode)
    for number, byte in enumerate(data, start=1):
        if (finish := checker.feed(byte)) is not None:
            return number, finish
    return len(data), None


def test_a_stop_id_ends_with_stop_and_the_limit_with_length() -> None:
    sampling = Sampling(max_new_tokens=5, stop_ids=(2, 3))
    assert finish_of(bytes([9, 9, 3, 9]), sampling, max_tokens=5) == (3, "stop")
    assert finish_of(bytes([9, 9, 9, 9, 9, 9]), sampling, max_tokens=5) == (5, "length")
    assert finish_of(bytes([9, 9, 9, 9, 2]), sampling, max_tokens=5) == (5, "stop")


@given(
    text=st.text(alphabet="ab`é€🎈 \n", max_size=40),
    stops=st.lists(st.text(alphabet="ab`é€🎈\n", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_a_stop_string_ends_with_the_token_that_completes_it(text: str, stops: list[str]) -> None:
    sampling = Sampling(max_new_tokens=1000, stop_strings=tuple(stops))
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    expected = (len(text[: min(ends)].encode()), "stop") if ends else (len(text.encode()), None)
    assert finish_of(text.encode(), sampling) == expected


def test_bytes_that_are_no_text_do_not_hide_a_stop_string() -> None:
    sampling = Sampling(max_new_tokens=1000, stop_strings=("END",))
    assert finish_of(b"\xff\xfe\xff" * 20 + b"END more", sampling)[1] == "stop"


def test_the_work_for_a_token_does_not_grow() -> None:
    longest = 0

    def measured(token_ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(token_ids))
        return decode(token_ids)

    checker = StopChecker(Sampling(max_new_tokens=9, stop_strings=("never",)), max_tokens=10**6, decode=measured)
    for _ in range(2000):
        assert checker.feed(ord("x")) is None
    assert longest < 20
