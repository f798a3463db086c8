"""A container saved with its memory: a folder with what the runtime wrote, the files, and what the owner knew."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from burnish.errors import UserError
from burnish.types import Limits

_FACTS = "box.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """What must be known to restore it.

    Example: Saved(limits=Limits(), uid=2105000001, next_id=17, options=("--platform=ptrace",))
    """

    limits: Limits
    uid: int  # of the candidate, whose files and processes have it
    next_id: int  # of requests; a command that goes on after the restore answers to an earlier one
    options: tuple[str, ...]  # of the runtime; another platform cannot restore it

    def store(self, folder: Path) -> None:
        """Last, so that a folder with this file is whole."""
        (folder / _FACTS).write_text(json.dumps(asdict(self)))


def make_folder(path: Path) -> Path:
    """An empty folder for a checkpoint. Raises UserError when something is there."""
    try:
        path.mkdir(parents=True)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UserError(
            f"no checkpoint can be made there: {reason}", where=str(path), fix="name a new folder"
        ) from error
    return path.resolve()


def load(path: Path) -> tuple[Path, Saved]:
    """The folder by its full path, and what is in it. Raises UserError for a folder that holds no whole checkpoint."""
    try:
        facts = json.loads((path / _FACTS).read_text())
        saved = Saved(
            limits=Limits(**facts["limits"]),
            uid=facts["uid"],
            next_id=facts["next_id"],
            options=tuple(facts["options"]),
        )
        return path.resolve(), saved
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"no checkpoint: {error}", where=str(path), fix="name a folder that `checkpoint` has made"
        ) from error
