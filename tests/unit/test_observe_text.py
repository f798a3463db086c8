"""How numbers and foreign text are shown, and the geometry of the plots."""

import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.observe.charts import Line, interval_chart, line_chart, nice_ticks, stacked_bars
from burnish.observe.text import ABSENT, duration, inert, number, one_line, percent, points, sparkline


@given(st.text(st.characters(codec=None)))
def test_inert_text_holds_nothing_but_what_is_seen(text: str) -> None:
    shown = inert(text)
    assert all(char == "\n" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp") for char in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u200b\ufeff")
    shown.encode("utf-8")


def test_inert_keeps_code_readable() -> None:
    assert inert("def f():\r\n\treturn 'ä→é'\n") == "def f():\n    return 'ä→é'\n"
    assert inert("\x1b[31m\u202e\x9b\x00") == r"\x1b[31m\u202e\x9b\x00"


@given(st.text(), st.integers(0, 30))
def test_one_line_is_one_line_of_the_length_asked_for(text: str, num_chars: int) -> None:
    shown = one_line(text, num_chars)
    assert len(shown) <= max(1, num_chars)
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"), (None, ABSENT), (0.01234, "0.0123"), (1234.5, "1,234"), (0.5, "0.500"), (2e-5, "2.0e-05"),
        (-3.14159, "-3.14"), (99.96, "100."), (123456789.0, "1.2e+08"),
    ],
)  # fmt: skip
def test_numbers(value: float | None, shown: str) -> None:
    assert number(value).rstrip(".") == shown.rstrip(".")


def test_rates_and_durations() -> None:
    assert percent(0.153) == "15.3 %"
    assert percent(None) == ABSENT
    assert points(0.031) == "+3.1"
    assert points(-0.5)[1:] == "50.0"
    assert [duration(s) for s in (0.04, 9.96, 59.7, 252, 3725)] == [
        "0.0 s",
        "10 s",
        "1 min 00 s",
        "4 min 12 s",
        "1 h 02 min",
    ]


def test_sparkline() -> None:
    assert sparkline([0.0, 0.5, 1.0], 10) == "▁▅█"
    assert sparkline([0.0, None, 1.0], 2) == " ▅"
    assert sparkline([0.5], 9, low=0.0, high=1.0) == "▅"
    assert sparkline([], 5) == sparkline([None], 5) == sparkline([1.0], 0) == ""


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_cover_the_range_in_even_steps(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    steps = [b - a for a, b in pairwise(ticks)]
    assert ticks[0] <= low + 1e-6 * span
    assert ticks[-1] >= low + span - 1e-6 * span
    assert 2 <= len(ticks) <= 8
    assert max(steps) == pytest.approx(min(steps), rel=1e-3)


def test_ticks_of_a_constant() -> None:
    assert nice_ticks(0.03, 0.87) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert nice_ticks(2.0, 2.0)[0] < 2.0 < nice_ticks(2.0, 2.0)[-1]


def test_a_line_has_gaps_where_values_are_missing() -> None:
    svg = line_chart([1, 2, 3, 4, 5], [Line(label="a", values=(1.0, 2.0, None, 3.0, None), color=1)], title="t")
    assert svg.count("<polyline") == 1
    assert len(re.findall(r'<circle class="f1"', svg)) == 1  # the place between two gaps
    assert "step 3" in svg


def test_every_mark_lies_inside_the_plot() -> None:
    values = (-5.0, 100.0, 3.0)
    svg = line_chart([1, 2, 3], [Line(label="a", values=values, color=1)], title="t")
    ys = [float(y) for pair in re.findall(r'points="([^"]+)"', svg) for y in re.findall(r",([\d.-]+)", pair)]
    assert len(ys) == 3
    assert all(0 <= y <= 230 for y in ys)
    assert ys[1] < ys[2] < ys[0]  # y points down


def test_plots_without_data_say_so_and_with_one_step_draw_it() -> None:
    line = Line(label="a", values=(None,), color=1)
    assert "No step" in line_chart([1], [line], title="t")
    assert "No step" in stacked_bars([], [line], title="t", form=duration)
    assert "<circle" in line_chart([1], [Line(label="a", values=(1.0,), color=1)], title="t")


def test_long_runs_share_bars() -> None:
    steps = list(range(1, 1001))
    svg = stacked_bars(steps, [Line(label="a", values=[2.0] * 1000, color=1)], title="t", form=duration)
    assert svg.count("<g>") <= 120
    assert "mean of steps 1 to 9\na 2.0 s" in svg


def test_labels_are_escaped_and_intervals_drawn() -> None:
    svg = interval_chart([("<b>", 0.5, (0.4, 0.6), 1), ("x", 0.2, None, 2)], title='"t"')
    assert "<b>" not in svg
    assert svg.count('class="span') == 1
    assert 'aria-label="&quot;t&quot;"' in svg
