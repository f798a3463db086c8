"""Who owns which folder of a store, by file locks, since the kernel lets go of the locks of the dead.

Everything that is made or removed is a folder in `drafts/` with a file `lock` in it that its owner holds. A folder
whose lock is free belongs to nobody. Folders appear and disappear only while the store's own lock is held, so nobody
ever sees one that has no lock yet, or no longer.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

LOCK_TIMEOUT_S = 60.0  # for locks that are held for moments
_POLL_S = 0.01


class Custody:
    """The folders of one store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names, self.images, self.drafts = root / "names", root / "images", root / "drafts"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the store's lock; its folders are there. Raises TimeoutError after `LOCK_TIMEOUT_S`."""
        for folder in (self.names, self.images, self.drafts):
            folder.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("wb") as lock:
            wait_for(lock.fileno(), fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """A folder of our own; at the end of the block it is removed unless it was moved away."""
        with self.locked():
            folder, lock = self._own("draft-")
        with lock:
            try:
                yield folder
            finally:
                if folder.exists():
                    self._bury(folder)

    def sweep(self, is_needed: Callable[[Path], bool]) -> None:
        """Removes the drafts of the dead, and the images that are neither needed nor held."""
        if not self.root.is_dir():
            return
        with contextlib.ExitStack() as stack:
            with self.locked():
                images = [path for path in self.images.iterdir() if not is_needed(path)]
                doomed = [path for path in [*self.drafts.iterdir(), *images] if _is_free(path)]
                if not doomed:
                    return
                grave, lock = self._own("removed-")
                stack.enter_context(lock)
                for path in doomed:
                    with claim(path) as is_ours:
                        if is_ours:
                            path.rename(grave / path.name)
            self._bury(grave)

    def _own(self, prefix: str) -> tuple[Path, IO[bytes]]:
        """A new folder and its lock, held. The caller holds the store's lock."""
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=self.drafts))
        lock = (folder / "lock").open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return folder, lock

    def _bury(self, folder: Path) -> None:
        """Removes a folder whose lock we hold. The lock file goes last, with the store's lock held."""
        for inner in folder.iterdir():
            if inner.name != "lock":
                remove_tree(inner)
        with self.locked():
            remove_tree(folder)


@contextlib.contextmanager
def claim(folder: Path) -> Iterator[bool]:
    """Whether nobody holds the folder; if so, nobody can come to hold it within the block."""
    try:
        lock = (folder / "lock").open("rb")
    except (FileNotFoundError, NotADirectoryError):
        yield True  # its maker died before the lock was there: a living one holds the store's lock until then
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def share(folder: Path) -> Iterator[None]:
    """Holds a folder together with others, so that nobody removes it. Raises FileNotFoundError when it is gone."""
    with (folder / "lock").open("rb") as lock:
        wait_for(lock.fileno(), fcntl.LOCK_SH)
        if not os.path.samestat(os.fstat(lock.fileno()), (folder / "lock").stat()):
            raise FileNotFoundError(folder)  # another took its place while we waited
        yield


def wait_for(descriptor: int, kind: int) -> None:
    """Takes a file lock. Raises TimeoutError after `LOCK_TIMEOUT_S`."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError("a lock of the image store was not given back") from None
            time.sleep(_POLL_S)
        else:
            return


def remove_tree(path: Path) -> None:
    """Removes a file or a folder with all that is in it, without following a link. Raises OSError when it cannot.

    Folders whose modes keep even their owner out are opened to him first, which root does not need.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    if os.geteuid() != 0:
        _open_folders(path)
    shutil.rmtree(path)


def _open_folders(folder: Path) -> None:
    folder.chmod(0o700)
    with os.scandir(folder) as found:
        inner = [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
    for one in inner:
        _open_folders(one)


def _is_free(folder: Path) -> bool:
    with claim(folder) as is_ours:
        return is_ours
