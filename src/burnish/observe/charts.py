"""Plots as inline SVG. Colours come from the page's style sheet, so that one plot fits light and dark; no script.

Legend of the geometry: user units of the `viewBox`, y down; `WIDTH` is the same for every plot, so text has one size.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from burnish.observe.text import MINUS, Format, number

Values = Sequence[float | None]

WIDTH, HEIGHT = 560, 230
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 12, 30
MAX_BARS = 120  # more steps than this share a bar; thinner ones cannot be told apart
NO_STEPS = '<p class="none">No step has ended yet.</p>'
MAX_HOVERS = 400  # places with a tooltip; a long run would double the size of the page


def plain_axis(tick: float) -> str:
    """Example: plain_axis(12000.0) == "12,000"."""
    return f"{tick:,g}".replace("-", MINUS)


def percent_axis(tick: float) -> str:
    """Example: percent_axis(0.2) == "20 %"."""
    return f"{100 * tick:g} %"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One series of a plot. `color` is 1..5 of the page's palette; `dots` draws places only, without a line.

    Example: Line(label="reward", values=(0.2, None, 0.4), color=1)
    """

    label: str
    values: Values
    color: int
    dots: bool = False


@dataclass(frozen=True, slots=True)
class _Scale:
    """From data to user units: x by index into `n` places, y from `low` at the bottom to `high` at the top."""

    n: int
    low: float
    high: float
    height: int = HEIGHT

    def x(self, index: float) -> float:
        span = WIDTH - LEFT - RIGHT
        return round(LEFT + (span / 2 if self.n == 1 else span * index / (self.n - 1)), 1)

    def y(self, value: float) -> float:
        span = self.height - TOP - BOTTOM
        return round(TOP + span * (1 - (value - self.low) / (self.high - self.low)), 1)


def line_chart(
    steps: Sequence[int],
    lines: Sequence[Line],
    *,
    title: str,
    form: Format = number,
    axis: Format = plain_axis,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """A plot over steps. `low` and `high` fix an end of the y axis; otherwise the data's range with round ends."""
    present = [value for line in lines for value in line.values if value is not None]
    if not steps or not present:
        return NO_STEPS
    ticks = nice_ticks(min(present) if low is None else low, max(present) if high is None else high)
    scale = _Scale(len(steps), ticks[0] if low is None else low, ticks[-1] if high is None else high)
    body = _grid(scale, ticks, axis) + _step_axis(scale, steps)
    for line in lines:
        body += _dots(scale, line) if line.dots else _path(scale, line)
    return _legend(lines) + _svg(title, body + _hovers(scale, steps, lines, form))


def stacked_bars(steps: Sequence[int], parts: Sequence[Line], *, title: str, form: Format) -> str:
    """One bar per step, made of parts; a missing part counts as nothing. Long runs: bars of the mean of a few steps."""
    if not steps:
        return NO_STEPS
    size = math.ceil(len(steps) / MAX_BARS)
    starts = range(0, len(steps), size)
    bars = [[_mean(part.values[start : start + size]) for part in parts] for start in starts]
    top = max(sum(bar) for bar in bars)
    ticks = nice_ticks(0.0, top or 1.0)
    scale = _Scale(len(bars), 0.0, ticks[-1])
    slot = (WIDTH - LEFT - RIGHT) / len(bars)
    width = min(28.0, slot * 0.8)
    body = _grid(scale, ticks, plain_axis)
    for index, (start, bar) in enumerate(zip(starts, bars, strict=True)):
        x = LEFT + slot * (index + 0.5) - width / 2
        covered = steps[start : start + size]
        where = f"step {covered[0]}" if len(covered) == 1 else f"mean of steps {covered[0]} to {covered[-1]}"
        tip = "\n".join([where, *(f"{part.label} {form(value)}" for part, value in zip(parts, bar, strict=True))])
        body += f"<g><title>{html.escape(tip)}</title>{_stack(scale, parts, bar, x, width)}</g>"
        if index in _label_places(len(bars)):
            body += _text(x + width / 2, HEIGHT - 10, str(covered[0]), "middle")
    return _legend(parts, "box") + _svg(title, body)


def interval_chart(rows: Sequence[tuple[str, float, tuple[float, float] | None, int]], *, title: str) -> str:
    """Rates (0 to 1) with their 95 % intervals, one row each: (label, rate, interval, color)."""
    height = TOP + BOTTOM + 34 * len(rows)
    left, right = 130, 20
    ends = [end for _, rate, span, _ in rows for end in (span or (rate, rate))]
    ticks = [tick for tick in nice_ticks(0.0, max(ends)) if tick <= 1.0]
    high = ticks[-1] if ticks[-1] >= max(ends) else 1.0

    def at(rate: float) -> float:
        return round(left + (WIDTH - left - right) * rate / high, 1)

    body = ""
    for tick in ticks:
        body += f'<line class="grid" x1="{at(tick)}" x2="{at(tick)}" y1="{TOP}" y2="{height - BOTTOM}"/>'
        body += _text(at(tick), height - 10, percent_axis(tick), "middle")
    for index, (label, rate, span, color) in enumerate(rows):
        y = TOP + 34 * index + 17
        body += f'<text class="row" x="{left - 12}" y="{y + 4}" text-anchor="end">{html.escape(label)}</text>'
        if span is not None:
            body += f'<line class="span c{color}" x1="{at(span[0])}" x2="{at(span[1])}" y1="{y}" y2="{y}"/>'
        tip = f"{label}: {100 * rate:.1f} %" + (f", {100 * span[0]:.1f} to {100 * span[1]:.1f}" if span else "")
        body += f'<circle class="f{color}" cx="{at(rate)}" cy="{y}" r="6"><title>{html.escape(tip)}</title></circle>'
    return _svg(title, body, height)


def nice_ticks(low: float, high: float, num: int = 4) -> list[float]:
    """Round places that cover `low` to `high` in about `num` steps of 1, 2, 2.5 or 5 times a power of ten.

    Example: nice_ticks(0.03, 0.87) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if high <= low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    raw = (high - low) / num
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, 1 - math.floor(math.log10(step)))  # 2.5 needs one more
    return [round(place * step, digits) + 0.0 for place in range(first, last + 1)]


def _svg(title: str, body: str, height: int = HEIGHT) -> str:
    label = html.escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{body}</svg>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _grid(scale: _Scale, ticks: Sequence[float], axis: Format) -> str:
    lines = ""
    for tick in ticks:
        if scale.low <= tick <= scale.high:
            y = scale.y(tick)
            lines += f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            lines += _text(LEFT - 8, y + 4, axis(tick), "end")
    return lines


def _step_axis(scale: _Scale, steps: Sequence[int]) -> str:
    return "".join(
        _text(scale.x(index), scale.height - 10, str(steps[index]), "middle") for index in _label_places(len(steps))
    )


def _label_places(n: int) -> list[int]:
    """Indices that get a label: first, last and a few between."""
    return sorted({round(place * (n - 1) / min(5, max(1, n - 1))) for place in range(min(5, max(1, n - 1)) + 1)})


def _path(scale: _Scale, line: Line) -> str:
    """A line with gaps where values are missing; a place between two gaps is a dot."""
    pieces: list[list[str]] = [[]]
    for index, value in enumerate(line.values):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{scale.x(index)},{scale.y(value)}")
    drawn = ""
    for piece in pieces:
        if len(piece) == 1:
            x, y = piece[0].split(",")
            drawn += f'<circle class="f{line.color}" cx="{x}" cy="{y}" r="3"/>'
        elif piece:
            drawn += f'<polyline class="line c{line.color}" points="{" ".join(piece)}"/>'
    return drawn


def _dots(scale: _Scale, line: Line) -> str:
    return "".join(
        f'<circle class="dot f{line.color}" cx="{scale.x(index)}" cy="{scale.y(value)}" r="2.4"/>'
        for index, value in enumerate(line.values)
        if value is not None
    )


def _hovers(scale: _Scale, steps: Sequence[int], lines: Sequence[Line], form: Format) -> str:
    """A strip over every step that lights up and tells the values."""
    if len(steps) > MAX_HOVERS:
        return ""
    width = max(2.0, (WIDTH - LEFT - RIGHT) / max(1, len(steps) - 1))
    strips = ""
    for index, step in enumerate(steps):
        values = [(line.label, line.values[index]) for line in lines]
        told = [f"{label} {form(value)}" for label, value in values if value is not None]
        tip = html.escape("\n".join([f"step {step}", *told]))
        strips += (
            f'<rect class="hover" x="{scale.x(index) - width / 2:.1f}" y="{TOP}" width="{width:.1f}"'
            f' height="{HEIGHT - TOP - BOTTOM}"><title>{tip}</title></rect>'
        )
    return strips


def _stack(scale: _Scale, parts: Sequence[Line], bar: Sequence[float], x: float, width: float) -> str:
    drawn, below = "", 0.0
    for part, value in zip(parts, bar, strict=True):
        top, bottom = scale.y(below + value), scale.y(below)
        drawn += f'<rect class="f{part.color}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{bottom - top:.1f}"/>'
        below += value
    return drawn


def _legend(lines: Sequence[Line], shape: str = "") -> str:
    keys = "".join(
        f'<span><i class="b{line.color} {shape or ("dots" if line.dots else "")}"></i>{html.escape(line.label)}</span>'
        for line in lines
    )
    return f'<div class="legend">{keys}</div>'


def _mean(values: Values) -> float:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else 0.0
