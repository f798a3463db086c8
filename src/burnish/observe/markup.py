"""Small pieces of HTML that the report's sections are made of. All text goes through `esc`."""

import html
from collections.abc import Iterable, Mapping, Sequence

from burnish.observe.charts import Line, Values, line_chart, plain_axis
from burnish.observe.summary import RunSummary, moving_average
from burnish.observe.text import Format, inert, number


def esc(text: object) -> str:
    """Any value as HTML text or attribute: inert, and escaped."""
    return html.escape(inert(str(text)), quote=True)


def card(title: str, body: str, *, note: str = "") -> str:
    """A framed part of the page; `body` is HTML, `title` and `note` are text."""
    shown = f'<p class="note">{esc(note)}</p>' if note else ""
    return f'<div class="card"><h3>{esc(title)}</h3>{shown}{body}</div>'


def grid(*cards: str) -> str:
    """Cards side by side, as many as fit."""
    return f'<div class="grid2">{"".join(cards)}</div>'


def tile(value: str, label: str) -> str:
    """A figure and what it counts."""
    return f'<div class="card tile"><b>{esc(value)}</b><span>{esc(label)}</span></div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, none: str) -> str:
    """Cells are HTML. A heading that starts with ">" is that of a column of numbers; an empty one that of bars."""
    body = "".join(f"<tr>{_cells('td', head, row)}</tr>" for row in rows)
    if not body:
        return f'<p class="none">{esc(none)}</p>'
    heading = _cells("th", head, [esc(name.removeprefix(">")) for name in head])
    return f'<div class="scroll"><table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table></div>'


def bar(*shares: tuple[float | None, int]) -> str:
    """Bars below each other, each a share of the width (0 to 1) in a color of the palette."""
    return "".join(
        f'<span class="track"><i class="b{color}" style="width:{100 * min(1.0, max(0.0, share or 0)):.1f}%"></i></span>'
        for share, color in shares
    )


def count_table(counts: Mapping[str, int], *, heading: str, color: int, none: str) -> str:
    """Counts by name, the largest first, with bars that compare them."""
    total, top = sum(counts.values()) or 1, max(counts.values(), default=0) or 1
    rows = [
        (esc(name), f"{count:,}", f"{100 * count / total:.0f} %", bar((count / top, color)))
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return table((heading, ">count", ">share", ""), rows, none=none)


def step_chart(
    run: RunSummary,
    name: str,
    label: str,
    *,
    smooth: bool = True,
    form: Format = number,
    axis: Format = plain_axis,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """One field of step.end over the steps: dots and their moving average, or a plain line without `smooth`."""
    values = run.series(name)
    lines = averaged(label, values) if smooth else [Line(label=label, values=values, color=1)]
    title = f"{name} by step"
    return line_chart(list(run.steps), lines, title=title, form=form, axis=axis, low=low, high=high)


def averaged(label: str, values: Values) -> list[Line]:
    """The values as dots, and their moving average over a tenth of the run as a line."""
    window = max(3, len(values) // 10)
    return [
        Line(label=label, values=values, color=1, dots=True),
        Line(label=f"mean of the last {window} steps", values=moving_average(values, window), color=1),
    ]


def _cells(tag: str, head: Sequence[str], row: Sequence[str]) -> str:
    kinds = ["n" if name.startswith(">") else "" if name else "bar" for name in head]
    return "".join(
        f'<{tag} class="{kind}">{cell}</{tag}>' if kind else f"<{tag}>{cell}</{tag}>"
        for kind, cell in zip(kinds, row, strict=True)
    )
