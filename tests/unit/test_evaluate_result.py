"""Results as data: rates, comparison, tables, and files that come back as they went."""

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from burnish.errors import StoreError, UserError
from burnish.evaluate.render import render, render_comparison
from burnish.evaluate.result import EvalResult, TaskRecord, read_result, write_result
from burnish.evaluate.suite import compare
from burnish.types import Band, Sampling, Unmeasured

BROKEN = Unmeasured(boundary="sandbox", cause="create: host died", evidence="signal 9 \ud800")


def make_record(id: str, attempted: int, passed: int, broken: int = 0, band: Band = "easy") -> TaskRecord:
    return TaskRecord(
        task_id=id,
        digest=f"digest of {id}",
        family=id.split("/")[0],
        band=band,
        attempted=attempted,
        passed=passed,
        unmeasured=(BROKEN,) * broken,
    )


def make_result(*records: TaskRecord, label: str = "before", samples: int = 4) -> EvalResult:
    return EvalResult(
        suite="s",
        label=label,
        sampling=Sampling(max_new_tokens=8, stop_ids=(2,), stop_strings=("```\n",), seed=3),
        samples_per_task=samples,
        tasks=records,
        wall_s=1.5,
        max_turns=2,
    )


RESULT = make_result(
    make_record("a/0", 4, 2),
    make_record("a/1", 4, 0, broken=2, band="hard"),
    make_record("b/0", 4, 1, broken=3),
    make_record("b/1", 4, 0, broken=4, band="medium"),
)


def test_both_denominators_and_equal_weights() -> None:
    assert (RESULT.attempted, RESULT.measured, RESULT.passed, RESULT.num_unmeasured_tasks) == (16, 7, 3, 1)
    assert RESULT.pass_rate == pytest.approx((2 / 4 + 0 / 2 + 1 / 1) / 3)
    assert RESULT.pass_rate_of_attempted == pytest.approx((2 / 4 + 0 / 4 + 1 / 4 + 0 / 4) / 4)


def test_pass_at_k_takes_only_tasks_with_k_measured_attempts() -> None:
    at_two = RESULT.pass_at(2)
    assert at_two is not None
    assert at_two.num_values == 2
    assert at_two.value == pytest.approx((1 - 1 / 6 + 0) / 2)
    assert RESULT.pass_at(5) is None
    with pytest.raises(ValueError, match="k must be at least 1"):
        RESULT.pass_at(0)
    assert RESULT.summary()["pass_at"].keys() == {"1", "2", "4"}


def test_intervals_and_parts() -> None:
    assert RESULT.ci95 is not None
    assert RESULT.wilson_ci95 is not None
    assert 0 <= RESULT.ci95[0] < 0.5 < RESULT.ci95[1] <= 1
    assert RESULT.wilson_ci95[0] < 3 / 7 < RESULT.wilson_ci95[1]
    hard = RESULT.in_band("hard")
    assert hard is not None
    assert (hard.pass_rate, hard.ci95) == (0.0, None)  # one family: no interval
    family = RESULT.in_family("b")
    assert family is not None
    assert family.attempted == 8
    assert RESULT.in_family("zzz") is None


@pytest.mark.parametrize(("attempted", "passed", "broken"), [(2, 3, 0), (2, 1, 2), (2, -1, 0), (0, 0, 0), (1, 0, 2)])
def test_counts_that_cannot_be_true_are_refused(attempted: int, passed: int, broken: int) -> None:
    with pytest.raises(ValueError, match="cannot all be true"):
        make_record("a/0", attempted, passed, broken)


def test_a_result_without_tasks_is_refused() -> None:
    with pytest.raises(ValueError, match="without tasks"):
        make_result()


counts = st.integers(1, 6).flatmap(
    lambda n: st.integers(0, n).flatmap(
        lambda broken: st.tuples(st.just(n), st.integers(0, n - broken), st.just(broken))
    )
)


@given(rows=st.lists(counts, min_size=1, max_size=12), num_families=st.integers(1, 4))
def test_any_result_has_a_summary_that_is_json_and_holds_its_order(
    rows: list[tuple[int, int, int]], num_families: int
) -> None:
    records = [make_record(f"f{i % num_families}/{i}", *row) for i, row in enumerate(rows)]
    summary = make_result(*records, samples=6).summary()
    json.dumps(summary, allow_nan=False)
    if summary["pass_rate"] is None:
        assert summary["measured"] == 0
    else:
        rates = [summary["pass_at"][k] for k in summary["pass_at"]]
        assert all(0 <= rate <= 1 for rate in rates)
        assert summary["pass_rate"] == summary["pass_at"]["1"]
    if summary["ci95"] is not None:
        low, high = summary["ci95"]
        assert 0 <= low <= summary["pass_rate"] + 1e-12
        assert summary["pass_rate"] - 1e-12 <= high <= 1


def test_write_and_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "eval.json"
    write_result(RESULT, path)
    assert read_result(path) == RESULT
    assert json.loads(path.read_text())["summary"]["measured"] == 7
    assert os.listdir(path.parent) == ["eval.json"]  # noqa: PTH208


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "eval.json"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        write_result(RESULT, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: data.pop("suite"), "suite"),
        (lambda data: data.update(format=2), "format"),
        (lambda data: data["tasks"][0].update(passed=9), "cannot all be true"),
        (lambda data: data["tasks"][0].update(band="trivial"), "trivial"),
        (lambda data: data.update(tasks=[]), "without tasks"),
    ],
)
def test_a_file_that_is_no_result_says_why(tmp_path: Path, edit: object, message: str) -> None:
    path = tmp_path / "eval.json"
    write_result(RESULT, path)
    data = json.loads(path.read_text())
    assert callable(edit)
    edit(data)
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=message) as caught:
        read_result(path)
    assert caught.value.where == str(path)


def test_a_missing_or_torn_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_result(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text('{"suite": ')
    with pytest.raises(UserError, match="is not an evaluation result"):
        read_result(tmp_path / "torn.json")


AFTER = make_result(
    make_record("b/1", 2, 1),  # another order, and measured here only
    make_record("a/0", 2, 2),
    make_record("a/1", 2, 1, band="hard"),
    make_record("b/0", 2, 2),
    label="after",
    samples=2,
)


def test_comparison_pairs_by_task_id() -> None:
    comparison = compare(RESULT, AFTER)
    assert (comparison.num_pairs, comparison.num_excluded) == (3, 1)
    assert comparison.diff == pytest.approx(((1 - 0.5) + (0.5 - 0) + (1 - 1)) / 3)
    assert comparison.diff_ci95 is not None
    summary = comparison.summary()
    assert summary["pass_rate_before"] == pytest.approx(0.5)
    assert summary["pass_rate_after"] == pytest.approx(2.5 / 3)
    assert (summary["attempted"], summary["measured"]) == (24, 15)
    assert json.loads(json.dumps(summary))["diff_ci95"] == list(comparison.diff_ci95)


def test_comparison_with_nothing_in_common_has_no_difference() -> None:
    broken = make_result(make_record("a/0", 1, 0, broken=1))
    comparison = compare(broken, make_result(make_record("a/0", 1, 1)))
    assert (comparison.diff, comparison.diff_ci95, comparison.num_pairs, comparison.num_excluded) == (None, None, 0, 1)


def test_comparison_names_settings_that_differ() -> None:
    other = replace(AFTER, sampling=replace(AFTER.sampling, temperature=0.0, seed=9), max_turns=3)
    assert compare(RESULT, AFTER).differing_settings == ()
    assert compare(RESULT, other).differing_settings == ("temperature: 1.0 and 0.0", "max_turns: 2 and 3")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(AFTER, suite="humaneval"), "'before' is of 's', 'after' of 'humaneval'"),
        (replace(AFTER, tasks=AFTER.tasks[:3]), "'b/0' is in only one .*: 1"),
        (replace(AFTER, tasks=(*AFTER.tasks[:3], replace(AFTER.tasks[3], digest="x"))), "'b/0' changed .*: 1"),
        (replace(AFTER, tasks=(*AFTER.tasks[:3], replace(AFTER.tasks[3], family="x"))), "'b/0' changed .*: 1"),
    ],
)
def test_unlike_results_are_not_compared(other: EvalResult, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compare(RESULT, other)


def shown(table: Table) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_tables_show_rates_denominators_and_what_is_missing() -> None:
    text = shown(render(replace(RESULT, label="[red]x"), families=True))
    assert "[red]x" in text  # a label is text, not markup
    for row in ("easy", "medium", "hard", "all", " a ", " b "):
        assert row in text
    assert "not measured" in text
    assert "needs 2 families" in text
    assert "pass@2" in text
    assert "in no rate but the last: 1" in text
    all_row = next(line for line in text.splitlines() if "all " in line)
    assert [cell.strip() for cell in all_row.split("│")[2:7]] == ["4", "3", "7", "16", "50.0 %"]


def test_comparison_table() -> None:
    text = shown(render_comparison(compare(RESULT, replace(AFTER, max_turns=3))))
    assert "+33.3 points" in text
    assert "on one side or both): 1" in text
    assert "not run alike: max_turns: 2 and 3" in text
    assert "not measured" in shown(render_comparison(compare(*[make_result(make_record("a/0", 1, 0, broken=1))] * 2)))
