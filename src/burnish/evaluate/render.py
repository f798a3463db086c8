"""Evaluation results as tables for a terminal.

Labels and names come from files and command lines: they are put in as `Text`, which rich never reads as markup.
"""

from rich.table import Table
from rich.text import Text

from burnish.evaluate.result import EvalResult
from burnish.evaluate.stats import Interval
from burnish.evaluate.suite import Comparison
from burnish.types import Band

BANDS: tuple[Band, ...] = ("easy", "medium", "hard")


def render(result: EvalResult, *, families: bool = False) -> Table:
    """One row per band (and per family, if asked for) and one for all: rates with intervals, both denominators."""
    table = Table(title=Text(f"{result.suite}: {result.label}"), caption=Text(_caption(result)))
    for name in ("", "tasks", "passed", "measured", "attempted", "pass rate", "95 % interval", "of attempted"):
        table.add_column(name, justify="left" if not name else "right")
    if families:
        for family in sorted({record.family for record in result.tasks}):
            _add_row(table, family, result.in_family(family))
        table.add_section()
    for band in BANDS:
        _add_row(table, band, result.in_band(band))
    table.add_section()
    _add_row(table, "all", result)
    return table


def render_comparison(comparison: Comparison) -> Table:
    """Before, after and the paired difference, with what was left out and what was not run alike."""
    before, after = comparison.before, comparison.after
    table = Table(title=Text(before.suite), caption=Text(_comparison_caption(comparison)))
    table.add_column("")
    for result in (before, after):
        table.add_column(Text(result.label), justify="right")
    table.add_column("difference", justify="right")
    table.add_column("95 % interval", justify="right")
    paired = comparison.paired
    table.add_row(
        "pass rate (paired tasks)",
        percent(paired.rate_before if paired else None),
        percent(paired.rate_after if paired else None),
        points(comparison.diff),
        points_interval(comparison.diff_ci95),
    )
    for name, old, new in (
        ("measured", before.measured, after.measured),
        ("attempted", before.attempted, after.attempted),
    ):
        table.add_row(name, str(old), str(new), "", "")
    return table


def _add_row(table: Table, name: str, part: EvalResult | None) -> None:
    if part is None:
        return
    counts = (len(part.tasks), part.passed, part.measured, part.attempted)
    table.add_row(
        Text(name),
        *map(str, counts),
        percent(part.pass_rate),
        percent_interval(part.ci95),
        percent(part.pass_rate_of_attempted),
    )


def _caption(result: EvalResult) -> str:
    num_families = len({record.family for record in result.tasks})
    parts = [f"{result.samples_per_task} attempts per task; intervals clustered by family ({num_families} families)"]
    parts += [
        f"pass@{k}: {percent(estimate.value)} {percent_interval(estimate.ci95)}"
        for k in (1 << i for i in range(1, result.samples_per_task.bit_length()))
        if (estimate := result.pass_at(k))
    ]
    if result.num_unmeasured_tasks:
        parts.append(f"tasks without a measured attempt, in no rate but the last: {result.num_unmeasured_tasks}")
    return "\n".join(parts)


def _comparison_caption(comparison: Comparison) -> str:
    num_families = comparison.paired.diff.num_clusters if comparison.paired else 0
    parts = [f"{comparison.num_pairs} tasks in {num_families} families, paired; interval clustered by family"]
    if comparison.num_excluded:
        parts.append(f"tasks left out (no measured attempt on one side or both): {comparison.num_excluded}")
    if comparison.differing_settings:
        parts.append("not run alike: " + "; ".join(comparison.differing_settings))
    return "\n".join(parts)


def percent(rate: float | None) -> str:
    """Example: percent(0.153) == "15.3 %"."""
    return "not measured" if rate is None else f"{100 * rate:.1f} %"


def percent_interval(interval: Interval | None) -> str:
    """Example: percent_interval((0.11, 0.2)) == "11.0 .. 20.0 %"."""
    return "needs 2 families" if interval is None else f"{100 * interval[0]:.1f} .. {100 * interval[1]:.1f} %"


def points(diff: float | None) -> str:
    """Percentage points. Example: points(0.44) == "+44.0 points"."""
    return "not measured" if diff is None else f"{100 * diff:+.1f} points"


def points_interval(interval: Interval | None) -> str:
    """Example: points_interval((0.31, 0.55)) == "+31.0 .. +55.0"."""
    return "needs 2 families" if interval is None else f"{100 * interval[0]:+.1f} .. {100 * interval[1]:+.1f}"
