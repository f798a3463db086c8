"""What each verb hands to the part that does the work."""

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from burnish import __version__
from burnish.cli import app
from burnish.config import EvalOptions, RunConfig
from burnish.errors import UserError
from burnish.sandbox.conformance import CheckResult
from burnish.tasks.load import load_tasks

HEAVY = ("torch", "transformers", "numpy", "matplotlib", "pydantic", "burnish.train", "burnish.config")


def invoke(*words: object) -> Result:
    """Errors come out as they are raised; what `main` makes of them is test_cli_errors' subject."""
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], list[Any]]:
    """Replaces a function of a lazily imported module; the list receives its arguments."""

    def record(module_name: str, function: str) -> list[Any]:
        seen: list[Any] = []
        module = types.ModuleType(module_name)

        def stand_in(*args: Any, **kwargs: Any) -> int:
            seen.append((args, kwargs))
            return 7

        setattr(module, function, stand_in)
        monkeypatch.setitem(sys.modules, module_name, module)
        return seen

    return record


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(f"name: r\nruns_dir: '{tmp_path / 'runs'}'\n")
    return path


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from burnish.cli import main; sys.argv = ['burnish', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        f"print('LOADED', [name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("LOADED []\n")
    assert "train" in done.stdout


def test_version() -> None:
    assert invoke("version").output == f"burnish {__version__}\n"


def test_train_hands_over_the_resolved_config(recipe: Path, calls: Any, tmp_path: Path) -> None:
    seen = calls("burnish.train", "train")
    assert invoke("train", recipe, "learner.lr=1e-5", "seed=3").exit_code == 7
    assert invoke("train", recipe, "--run-dir", tmp_path / "x").exit_code == 7
    config = RunConfig(name="r", seed=3, runs_dir=tmp_path / "runs")
    config = config.model_copy(update={"learner": config.learner.model_copy(update={"lr": 1e-5})})
    assert seen[0] == ((config,), {"run_dir": None, "resume": False, "force_config": False})
    assert seen[1][1] == {"run_dir": tmp_path / "x", "resume": False, "force_config": False}


def test_train_resumes_the_newest_run_or_the_named_one(recipe: Path, calls: Any, tmp_path: Path) -> None:
    seen = calls("burnish.train", "train")
    with pytest.raises(UserError, match="no run of 'r' to continue"):
        invoke("train", recipe, "--resume")
    run = tmp_path / "runs" / "r-1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("name: r\n")
    invoke("train", recipe, "--resume")
    invoke("train", recipe, "--resume", "--run-dir", tmp_path, "--force-config")
    assert [kwargs for _, kwargs in seen] == [
        {"run_dir": run, "resume": True, "force_config": False},
        {"run_dir": tmp_path, "resume": True, "force_config": True},
    ]


def test_train_refuses_what_means_nothing(recipe: Path, calls: Any, tmp_path: Path) -> None:
    seen = calls("burnish.train", "train")
    with pytest.raises(UserError, match="without --resume"):
        invoke("train", recipe, "--force-config")
    with pytest.raises(UserError, match="no such run directory"):
        invoke("train", recipe, "--resume", "--run-dir", tmp_path / "nope")
    assert seen == []


def test_eval_hands_over_all_options(calls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls("burnish.evaluate.run", "run_eval")
    monkeypatch.setenv("MY_KEY", "secret")
    suite, earlier = tmp_path / "t.jsonl", tmp_path / "earlier.json"
    suite.touch()
    earlier.touch()
    words = ["--endpoint", "http://h/v1", "--endpoint-model", "m", "--api-key-env", "MY_KEY", "--samples", "4"]
    words += ["--temperature", "0.5", "--turns", "3", "--max-new-tokens", "9", "--out", "o.json"]
    assert invoke("eval", "--suite", suite, *words, "--compare", earlier).exit_code == 7
    assert seen[0][0] == (
        EvalOptions(
            suite=str(suite),
            endpoint="http://h/v1",
            endpoint_model="m",
            api_key_env="MY_KEY",
            samples=4,
            temperature=0.5,
            turns=3,
            max_new_tokens=9,
            out=Path("o.json"),
            compare=earlier,
        ),
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--suite humanevil --model m", "no such suite: 'humanevil'"),
        ("--suite missing.jsonl --model m", "no such suite"),
        ("--suite train", "neither is given"),
        ("--suite train --model m --endpoint http://h", "both are given"),
        ("--suite train --model m --endpoint-model m", "--endpoint-model: means nothing without --endpoint"),
        ("--suite train --endpoint http://h", "--endpoint-model: needed with --endpoint"),
        ("--suite train --endpoint http://h --endpoint-model m --api-key-env NO_SUCH_KEY", "NO_SUCH_KEY is not set"),
        ("--suite train --model m --compare nope.json", "no such file"),
    ],
)
def test_eval_refuses_before_anything_is_loaded(calls: Any, words: str, message: str) -> None:
    seen = calls("burnish.evaluate.run", "run_eval")
    with pytest.raises(UserError, match=message):
        invoke("eval", *words.split())
    assert seen == []


def test_report_needs_a_run_directory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such run directory"):
        invoke("report", tmp_path / "nope")


def test_sandbox_check_says_what_failed_and_why_something_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = CheckResult(name="one", meaning="It works.", status="passed", reason="", wall_s=0.1)
    skipped = CheckResult(name="two", meaning="-", status="skipped", reason="not declared: [shell]", wall_s=0.0)
    failed = CheckResult(name="three", meaning="-", status="failed", reason="it leaked", wall_s=0.1)
    found: list[CheckResult] = []

    async def run_conformance(_: Any) -> list[CheckResult]:
        return found

    monkeypatch.setattr("burnish.sandbox.conformance.run_conformance", run_conformance)
    found += [passed, skipped]
    result = invoke("sandbox", "check")
    assert result.exit_code == 0
    rows = [line.strip().split(maxsplit=2) for line in result.output.splitlines()]
    assert ["one", "passed", "It works."] in rows
    assert ["two", "skipped", "not declared: [shell]"] in rows
    assert result.output.endswith("backend process: 1 passed, 0 failed, 1 skipped\n")
    found.append(failed)
    result = invoke("sandbox", "check")
    assert result.exit_code == 1
    assert "it leaked" in result.output


def test_tasks_list_has_a_line_for_each_task() -> None:
    lines = invoke("tasks", "list", "--source", "builtin:heldout").output.splitlines()
    assert [line.split() for line in lines] == [[t.id, t.band, t.family] for t in load_tasks("builtin:heldout").tasks]


def test_tasks_show_keeps_hidden_material_hidden() -> None:
    """I5, at the command line: what scores a task is not in what is shown of it."""
    tasks = load_tasks("builtin:train")
    task = tasks.tasks[0]
    hidden = tasks.vault.open_hidden(task.id)
    output = invoke("tasks", "show", task.id).output
    assert task.instruction in output
    assert all(f"{case.expr} == {case.expected}" in output for case in task.examples)
    assert hidden.reference not in output
    visible = {case.expr for case in task.examples}
    assert [case.expr for case in hidden.cases if case.expr not in visible and case.expr in output] == []


def test_tasks_show_names_the_closest_id() -> None:
    task_id = load_tasks("builtin:train").tasks[0].id
    with pytest.raises(UserError, match=f"did you mean {task_id}"):
        invoke("tasks", "show", f"{task_id}x")
