"""What a run directory holds for its readers: report and terminal page read it here and nowhere else."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.errors import StoreError, UserError, boundary
from burnish.observe.compare import Comparison
from burnish.observe.events import EVENTS_FILE, read_events
from burnish.observe.summary import RunSummary, summarise

CONFIG_FILE, ABOUT_FILE, FINAL_FILE = "config.yaml", "run.json", "summary.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """A run directory as read. A file that is not there yet is None; a run that was cut off has fewer of them.

    Example: RunRecord(path=Path("runs/quickstart-7"), run=summary, about={"seed": 7}, final=None, config=None)
    """

    path: Path
    run: RunSummary
    about: Mapping[str, Any] | None  # run.json
    final: Mapping[str, Any] | None  # summary.json
    config: str | None  # config.yaml, as text

    @property
    def comparisons(self) -> list[Comparison]:
        return self.run.comparisons(self.final)

    def fact(self, name: str) -> Any:
        """A field of run.start, else of run.json, else None."""
        sources = (self.run.start, self.about)
        return next((source[name] for source in sources if source is not None and name in source), None)


def read_run(run_dir: Path) -> RunRecord:
    """Reads a run directory, whatever of it is there.

    Raises:
        UserError: `run_dir` is no run directory; names runs that lie inside it, if any.
        StoreError: a file of it is damaged or cannot be read.
    """
    if not is_run_directory(run_dir):
        raise _not_a_run(run_dir)
    log = run_dir / EVENTS_FILE
    return RunRecord(
        path=run_dir,
        run=summarise(read_events(log) if log.exists() else ()),
        about=_read_object(run_dir / ABOUT_FILE),
        final=_read_object(run_dir / FINAL_FILE),
        config=_read_text(run_dir / CONFIG_FILE),
    )


def is_run_directory(path: Path) -> bool:
    """A folder with the events or the description of a run."""
    return any((path / name).is_file() for name in (EVENTS_FILE, ABOUT_FILE))


def _not_a_run(path: Path) -> UserError:
    if not path.exists():
        return UserError("no such run directory", where=str(path), fix="give the folder that `burnish train` printed")
    inside = [child for child in path.iterdir() if is_run_directory(child)] if path.is_dir() else []
    if inside:
        newest = max(inside, key=lambda child: child.stat().st_mtime)
        return UserError("holds runs but is not one", where=str(path), fix=f"give one of them, for example {newest}")
    cause = f"not a run directory: it has neither {EVENTS_FILE} nor {ABOUT_FILE}"
    return UserError(cause, where=str(path), fix="give the folder that `burnish train` printed")


def _read_text(path: Path) -> str | None:
    with boundary(StoreError, during=f"read {path}"):
        return path.read_text("utf-8", "replace") if path.exists() else None


def _read_object(path: Path) -> Mapping[str, Any] | None:
    text = _read_text(path)
    if text is None:
        return None
    with boundary(StoreError, during=f"read {path}"):
        value = json.loads(text)
    if not isinstance(value, dict):
        raise StoreError(f"{path}: not a JSON object", evidence=text[:200])
    return value
