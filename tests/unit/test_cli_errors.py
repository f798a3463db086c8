"""One place turns an error into a message and an exit code, and a user's mistake never shows a traceback."""

import errno
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burnish.cli import disk_full, main
from burnish.errors import EngineError, StoreError, UserError, boundary

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def burnish(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process: (exit code, stdout, stderr)."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["burnish", *map(str, words)])
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer replaces it
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err

    return run


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(f"name: r\nruns_dir: {json.dumps(str(tmp_path))}\n")
    return path


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., int]], None]:
    """Puts a function in the place of `burnish.train.train`."""

    def replace(train: Callable[..., int]) -> None:
        module = types.ModuleType("burnish.train")
        module.train = train  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "burnish.train", module)

    return replace


def raising(error: BaseException) -> Callable[..., int]:
    def train(*_: Any, **__: Any) -> int:
        raise error

    return train


def test_the_command_as_a_user_meets_it(tmp_path: Path) -> None:
    """Real processes: a missing recipe, a misspelt key, a wrong verb."""
    (tmp_path / "a.yaml").write_text("name: a\nlearner: {lrr: 1}\n")
    for words, cause in [
        (["train", "nope.yaml"], "error: nope.yaml: cannot read the recipe: No such file or directory"),
        (["train", "a.yaml"], "error: a.yaml:2: learner.lrr: unknown key\n  fix: did you mean learner.lr?"),
        (["trian"], "No such command 'trian'"),
    ]:
        done = subprocess.run([sys.executable, "-m", "burnish", *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2
        assert cause in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"], "a refused request leaves nothing behind"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learner.lr=-1", "override learner.lr=-1: learner.lr: given -1, allowed: a number > 0"),
        ("learner.lrr=1", "fix: did you mean learner.lr?"),
        ("flow.group_size=two", 'flow.group_size: given "two", allowed: a whole number >= 2'),
        ("agent.max_new_tokens=5000", "leaves no room for a prompt"),
    ],
)
def test_wrong_configuration_is_code_2(burnish: Run, recipe: Path, override: str, message: str) -> None:
    code, out, err = burnish("train", recipe, override)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and message in err and "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["train"],
        ["train", "a.yaml", "--nope"],
        ["eval"],
        ["eval", "--suite", "train", "--samples", "0"],
        ["tasks", "x"],
    ],
    ids=" ".join,
)
def test_usage_errors_are_code_2(burnish: Run, words: list[str]) -> None:
    code, _, err = burnish(*words)
    assert code == 2
    assert "Usage: burnish" in err and "Traceback" not in err


def test_a_failed_boundary_is_code_1_with_its_evidence(burnish: Run, recipe: Path, training: Any) -> None:
    training(raising(EngineError("worker process died: killed by signal 9", evidence="line 1\nline 2\n")))
    code, _, err = burnish("train", recipe)
    assert code == 1
    assert err == "error: engine: worker process died: killed by signal 9\n  | line 1\n  | line 2\n"


def test_a_full_disk_is_code_2(burnish: Run, recipe: Path, training: Any) -> None:
    def full(*_: Any, **__: Any) -> int:
        with boundary(StoreError, during="write journal"):
            raise OSError(errno.ENOSPC, "No space left on device")

    training(full)
    code, _, err = burnish("train", recipe)
    assert code == 2
    assert "error: store: write journal: OSError: [Errno 28] No space left on device" in err


def test_only_a_full_disk_is_the_users_to_mend() -> None:
    def store_error(number: int) -> StoreError:
        return StoreError(f"write: {OSError(number, os.strerror(number))}")

    assert disk_full(store_error(errno.ENOSPC)) and disk_full(store_error(errno.EDQUOT))
    assert not disk_full(store_error(errno.EIO))
    assert not disk_full(StoreError("damaged"))
    assert not disk_full(OSError(errno.ENOSPC, "No space left on device"))


def test_ctrl_c_is_code_130(burnish: Run, recipe: Path, training: Any) -> None:
    training(raising(KeyboardInterrupt()))
    code, _, err = burnish("train", recipe)
    assert code == 130
    assert "Traceback" not in err


def test_our_own_mistakes_are_not_hidden(monkeypatch: pytest.MonkeyPatch, recipe: Path, training: Any) -> None:
    training(raising(AssertionError("a bug")))
    monkeypatch.setattr(sys, "argv", ["burnish", "train", str(recipe)])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(AssertionError, match="a bug"):
        main()


def test_debug_shows_where(
    burnish: Run, recipe: Path, training: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    training(raising(UserError("bad", where="here", fix="that")))
    assert "Traceback" not in burnish("train", recipe)[2]
    monkeypatch.setenv("BURNISH_DEBUG", "1")
    code, _, err = burnish("train", recipe)
    assert code == 2
    assert "Traceback" in err and err.endswith("error: here: bad\n  fix: that\n")


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "burnish", "tasks", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
