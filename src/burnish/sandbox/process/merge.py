"""Makes one layer of several: what overlay shows of them, over whatever lies below.

The layers' own files are read and written, lowest layer first, with overlay's whiteouts (devices 0/0) and its mark of
an opaque directory as they are there. They are the work of candidates: see trees.py for how they are walked.
"""

import os
import stat

from burnish.sandbox.process import trees


class Merger:
    """Applies layers to a tree, each over those before."""

    def __init__(self, root: int, links: int, trash: int, opaque: str) -> None:
        """`root`, `links`, `trash`: empty directories of one file system, the last two empty again after each layer.
        `opaque`: the attribute that marks a directory which hides all below it.
        """
        self._root, self._links, self._trash, self._opaque = root, links, trash, opaque
        self._num_trashed = 0

    def apply(self, source: int) -> None:
        """One layer more, by the descriptor of its root. Raises OSError."""
        builder = trees.Builder(self._root)
        marks: list[bool] = []  # of the directories from the root to here: is opaque in what is made
        num_marks = 0
        try:
            for kind, folder, name, status in trees.walk(source):
                if kind == trees.ENTER:
                    marks.append(self._enter(builder, folder, name))
                    num_marks += marks[-1]
                elif kind == trees.LEAVE:
                    made = builder.leave() if name else os.dup(builder.here)
                    try:
                        self._finish(folder, made, status, is_opaque=marks[-1])
                    finally:
                        os.close(made)
                    num_marks -= marks.pop()
                else:
                    self._remove(builder.here, name)
                    # Where nothing lies below, overlay would list a whiteout as a file.
                    if not (_is_whiteout(status) and num_marks):
                        trees.copy_leaf(builder, folder, name, status, self._links)
        finally:
            builder.close()
        for name in os.listdir(self._links):
            os.unlink(name, dir_fd=self._links)
        self._empty_trash()

    def _enter(self, builder: trees.Builder, folder: int, name: str) -> bool:
        """Goes into what a directory becomes; whether that hides what lies below."""
        is_opaque = self._is_opaque(folder)
        if not name:
            return is_opaque
        was = _status(builder.here, name)
        if was is not None and stat.S_ISDIR(was.st_mode) and not is_opaque:
            builder.go_into(name)
            return self._is_opaque(builder.here)
        # overlay looks no further below a directory than to the first thing that is none
        is_opaque |= was is not None
        self._remove(builder.here, name)
        builder.enter(name)
        return is_opaque

    def _is_opaque(self, folder: int) -> bool:
        return self._opaque in os.listxattr(folder) and os.getxattr(folder, self._opaque) == b"y"

    def _finish(self, source: int, made: int, status: os.stat_result, *, is_opaque: bool) -> None:
        for name in os.listxattr(made):
            os.removexattr(made, name)
        trees.copy_xattrs(source, made)
        if is_opaque:
            os.setxattr(made, self._opaque, b"y")
        trees.copy_status(made, status)

    def _remove(self, folder: int, name: str) -> None:
        was = _status(folder, name)
        if was is None:
            return
        if stat.S_ISDIR(was.st_mode):
            self._throw_away(folder, name)
        else:
            os.unlink(name, dir_fd=folder)

    def _throw_away(self, folder: int, name: str) -> None:
        os.rename(name, str(self._num_trashed), src_dir_fd=folder, dst_dir_fd=self._trash)
        self._num_trashed += 1

    def _empty_trash(self) -> None:
        """Takes trees apart from above: what is below comes to the top, however deep it is."""
        while names := os.listdir(self._trash):
            for trashed in names:
                folder = os.open(trashed, trees.FOLDER, dir_fd=self._trash)
                try:
                    for name in os.listdir(folder):
                        self._remove(folder, name)
                finally:
                    os.close(folder)
                os.rmdir(trashed, dir_fd=self._trash)


def _status(folder: int, name: str) -> "os.stat_result | None":
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
