"""How numbers and foreign text are shown to people: in the live view, in the terminal page and in the report.

Text of a model, of a sandbox or of an exception is hostile until shown otherwise: `inert` takes its power over
terminals and reading order away. Whoever puts it into rich wraps it in `Text` (no markup), and into HTML escapes it.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

Format = Callable[[float], str]

ABSENT = "\N{EN DASH}"  # shown for None, which is not 0
MINUS = "\N{MINUS SIGN}"

# C0 and C1 controls but tab and newline, bidirectional and invisible format characters, odd line ends, surrogates.
_POWERFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_BARS = "▁▂▃▄▅▆▇█"


def inert(text: str) -> str:
    """`text` with every control, format and surrogate character made visible, e.g. ESC as the four characters \\x1b.

    Example: inert("a\\x1b[31mb") == r"a\\x1b[31mb"
    """
    return _POWERFUL.sub(_visible, text.replace("\r\n", "\n")).expandtabs(4)


def one_line(text: str, num_chars: int) -> str:
    """Inert text on one line, shortened with an ellipsis to at most `num_chars` characters."""
    line = " ".join(inert(text).split())
    return line if len(line) <= num_chars else line[: max(0, num_chars - 1)] + "…"


def number(value: float | None, digits: int = 3) -> str:
    """A reading with so many significant digits and no exponent where a person would not write one.

    Example: number(0.01234) == "0.0123", number(1234.5) == "1,234", number(None) == ABSENT
    """
    if value is None:
        return ABSENT
    if value == 0 or 1e-4 <= abs(value) < 1e7:
        if abs(value) >= 10 ** (digits - 1):
            return f"{value:,.0f}"
        # "#" keeps trailing zeros, so that columns of readings line up
        return f"{value:#.{digits}g}" if value else "0"
    return f"{value:.{max(0, digits - 2)}e}"


def percent(rate: float | None) -> str:
    """Example: percent(0.153) == "15.3 %"."""
    return ABSENT if rate is None else f"{100 * rate:.1f} %"


def interval(ci95: Sequence[float] | None) -> str:
    """A 95 % interval of a rate in percent. Example: interval((0.11, 0.2)) == "11.0 to 20.0"."""
    return ABSENT if ci95 is None else f"{100 * ci95[0]:.1f} to {100 * ci95[1]:.1f}"


def points(diff: float) -> str:
    """A difference of rates in percentage points, with its sign. Example: points(0.031) == "+3.1"."""
    return f"{100 * diff:+.1f}".replace("-", MINUS)


def duration(seconds: float | None) -> str:
    """Example: duration(3725) == "1 h 02 min", duration(252) == "4 min 12 s", duration(4.2) == "4.2 s"."""
    if seconds is None:
        return ABSENT
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def moment(t: float) -> str:
    """Epoch seconds as a date and time in UTC: a report may be read anywhere."""
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d %H:%M UTC")


def sparkline(
    values: Sequence[float | None], width: int, *, low: float | None = None, high: float | None = None
) -> str:
    """The last `width` values as bars between `low` and `high` (the values' own range when not given).

    Example: sparkline([0.0, 0.5, 1.0], 10) == "▁▅█"; a missing value is a space
    """
    shown = values[-width:] if width > 0 else []
    present = [value for value in shown if value is not None]
    if not present:
        return ""
    floor = min(present) if low is None else low
    span = (max(present) if high is None else high) - floor
    return "".join(" " if value is None else _bar(value - floor, span) for value in shown)


def _bar(height: float, span: float) -> str:
    share = height / span if span > 0 else 0.5
    return _BARS[min(len(_BARS) - 1, max(0, int(share * len(_BARS))))]


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
