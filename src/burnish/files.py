"""Writing a file as a whole: readers see the old content or the new one, also after a crash."""

import os
import tempfile
from pathlib import Path

from burnish.errors import StoreError, boundary


def write_whole(path: Path, text: str) -> None:
    """Replaces `path`, creating its folder. Flushed to the disk before the name changes hands.

    Raises StoreError when it cannot be written; an older file of that name is then unchanged.
    """
    with boundary(StoreError, during=f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.chmod(0o644)  # mkstemp makes private files
            draft.replace(path)
        except BaseException:  # cancellation too; the disk that was full gets its space back
            draft.unlink(missing_ok=True)
            raise
