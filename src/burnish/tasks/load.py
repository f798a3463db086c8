"""Where work comes from: one name for every source of tasks."""

import difflib
from collections.abc import Collection
from pathlib import Path

from burnish.errors import UserError
from burnish.tasks.build import build_families
from burnish.tasks.builtin import FAMILIES
from burnish.tasks.humaneval import load_humaneval
from burnish.tasks.jsonl import load_jsonl
from burnish.tasks.order import interleaved
from burnish.types import Band, Hidden, Task, TaskSet, Vault

SOURCES = ("builtin:train", "builtin:heldout", "builtin:all", "humaneval")


def load_tasks(source: str, *, bands: Collection[Band] | None = None, max_tasks: int | None = None) -> TaskSet:
    """The tasks of a source: one of `SOURCES`, or the path of a file that ends in `.jsonl`.

    Keeps the tasks of the given `bands` (None: all) and the first `max_tasks` of them. Built-in tasks are in an order
    whose every prefix mixes bands and families like the whole; other sources keep the order of their file.

    Raises UserError for a source that does not exist, a file with a mistake in it, or when no task is left.
    """
    pairs = _pairs(source)
    hidden = {task.id: secret for task, secret in pairs}
    tasks = [task for task, _ in pairs if bands is None or task.band in bands]
    if source.startswith("builtin:"):
        tasks = interleaved(tasks)
    if max_tasks is not None:
        if max_tasks < 1:
            raise UserError(f"max_tasks must be at least 1, not {max_tasks}", where=source)
        tasks = tasks[:max_tasks]
    if not tasks:
        there = ", ".join(sorted({task.band for task, _ in pairs}))
        cause = f"no task is in the bands {', '.join(bands or ()) or '(none given)'}"
        raise UserError(cause, where=source, fix=f"this source has tasks in the bands {there}")
    return TaskSet(name=source, tasks=tuple(tasks), vault=Vault({task.id: hidden[task.id] for task in tasks}))


def _pairs(source: str) -> list[tuple[Task, Hidden]]:
    if source == "humaneval":
        return load_humaneval()
    if source in SOURCES:
        return [
            (built.task, built.hidden)
            for built in build_families(FAMILIES)
            if source == "builtin:all" or built.heldout == (source == "builtin:heldout")
        ]
    if source.endswith(".jsonl"):
        return load_jsonl(Path(source))
    close = difflib.get_close_matches(source, SOURCES, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    allowed = f"{hint}allowed: {', '.join(SOURCES)}, or the path of a .jsonl file"
    raise UserError(f"no source of tasks is called {source!r}", where="tasks", fix=allowed)
