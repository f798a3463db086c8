"""The sandbox benchmark's arithmetic: a figure that was not measured counts as one that misses its bar."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("_sandbox_figures")


def test_the_tail_is_a_value_that_was_measured(figures: ModuleType) -> None:
    assert figures.p99(list(range(1, 101))) == 99
    assert figures.p99(list(range(200, 0, -1))) == 198
    assert figures.p99([3.0, 1.0]) == 3.0


def test_every_figure_is_a_line_of_json(figures: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    found = figures.Figures()
    found.samples("exec", [1.0, 2.0, 3.0], p50_bar=2.0, p99_bar=3.0)
    found.value("rate", 300.0, "/s", bar=250.0, want="min")
    found.value("leaked", 0, "mounts", bar=0)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["figure"] for line in lines] == ["exec_p50", "exec_p99", "exec_count", "rate", "leaked"]
    assert [line["ok"] for line in lines] == [True, True, None, True, True]
    assert found.exit_code == 0


def test_a_missed_bar_and_a_missing_figure_fail(figures: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    missed, missing = figures.Figures(), figures.Figures()
    missed.samples("exec", [1.0, 9.0], p99_bar=5.0)
    missing.missing("fork", "not built yet", bar="<= 3 ms")
    missing.print_table()
    assert (missed.exit_code, missing.exit_code) == (1, 1)
    out = capsys.readouterr()
    assert json.loads(out.out.splitlines()[-1])["ok"] is False
    assert "MISSED: not built yet" in out.err


async def test_everything_takes_its_turns(figures: ModuleType) -> None:
    order = []

    async def often() -> dict[str, float]:
        order.append("often")
        return {"often": float(len(order))}

    async def seldom() -> dict[str, float]:
        order.append("seldom")
        return {"seldom": 1.0, "seldom_too": 2.0}

    found = await figures.take_turns(
        [figures.Turn(run=often), figures.Turn(run=seldom, every=5)],
        num_rounds=10,
    )
    assert {figure: len(values) for figure, values in found.items()} == {"often": 10, "seldom": 2, "seldom_too": 2}
    assert order.count("often") == 10 and order.count("seldom") == 2
