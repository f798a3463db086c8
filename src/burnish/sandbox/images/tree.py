"""Writes entries into one folder and nowhere else.

The entries come from strangers, and so does every link that is already in the tree. No system call made here follows a
link: each component of a path is opened by itself, relative to the descriptor of the folder before it. Where a folder
of an entry's path is a link, `_resolve` reads the link and goes on inside the root, as a process whose root this is
would. Nobody else writes to the tree meanwhile.

Folders stay private and writable until `seal.py` gives them what `folders` says.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from burnish.errors import UserError
from burnish.sandbox.images.entries import MAX_DEPTH, Budget, Entry, Path, kept_xattr, shown_path
from burnish.sandbox.images.streams import CHUNK_BYTES

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_LINKS = 40  # followed on the way to one entry, as in the kernel
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DRAFT_MODE = 0o700
# What a hostile name or link can make the file system answer; anything else is our machine's trouble.
_BAD_ENTRY = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ENOENT, errno.EMLINK, errno.ELOOP}


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a folder gets when the tree is complete. A folder that no entry describes has these."""

    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0


class Tree:
    """A root file system under construction."""

    def __init__(self, root: int, budget: Budget, *, keep_owner: bool) -> None:
        """`root` is the descriptor of an empty folder; the caller closes it."""
        self.root = root
        self.folders: dict[Path, Attributes] = {}  # what entries said about folders; may hold folders that are gone
        self.keep_owner = keep_owner
        self._budget = budget
        self._fresh: dict[Path, bool] = {}  # what this layer wrote -> by an entry of its own (False: on the way)
        self._skipped: set[Path] = set()  # devices, so that a hard link to one is no error
        self._last: tuple[Path, Path, int] | None = None  # the last entry's folder: as named, really, its descriptor
        self._is_stale = False  # something was removed since, and `_last` may have led through it

    def close(self) -> None:
        """Lets go of the descriptors that are this object's own."""
        self._is_stale = True
        self._forget()

    def start_layer(self) -> None:
        """From here on, whiteouts hide what was written before."""
        self._forget()
        self._fresh.clear()

    def add(self, entry: Entry) -> None:
        """Creates one entry in the place of what was there; a folder keeps what is in it.

        Raises UserError for what cannot be done, OSError when the file system fails.
        """
        self._budget.take_entry()
        with _told(entry.path):
            if entry.path:
                self._add(entry)
            elif entry.kind == "dir":
                self._describe((), entry, self.root)
            else:
                raise UserError("the root of the image is not a folder", where=f"entry {entry.label}")

    def whiteout(self, path: Path) -> None:
        """Hides what earlier layers have at `path`; what this layer wrote stays."""
        with _told(path):
            if path and (place := self._place(path[:-1], create=False)) is not None:
                self._hide(place[1], path[-1], (*place[0], path[-1]))

    def opaque(self, path: Path) -> None:
        """Hides what earlier layers have inside the folder `path`."""
        with _told(path):
            if (place := self._place(path, create=False)) is not None:
                for name in names_in(place[1]):
                    self._hide(place[1], name, (*place[0], name))

    def _add(self, entry: Entry) -> None:
        place = self._place(entry.path[:-1], create=True)
        assert place is not None
        folder, real, name = place[1], (*place[0], entry.path[-1]), entry.path[-1]
        if entry.kind == "hardlink":
            self._link(entry, folder, real, name)
        elif entry.kind == "dir":
            self._make_folder(folder, real, name)
            descriptor = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            try:
                self._describe(real, entry, descriptor)
            finally:
                os.close(descriptor)
        else:
            self._remove(folder, name)
            self._skipped.discard(real)
            if entry.kind == "file":
                self._write(entry, folder, name)
            elif entry.kind == "symlink":
                os.symlink(entry.symlink, name, dir_fd=folder)
            elif entry.kind == "fifo":
                os.mkfifo(name, 0o600, dir_fd=folder)
            else:
                self._budget.skipped["devices"] += 1
                self._skipped.add(real)
                return
            if entry.kind != "file":
                self._finish(entry, folder, name)
        self._fresh[real] = True

    def _write(self, entry: Entry, folder: int, name: bytes) -> None:
        descriptor = os.open(name, _FILE_FLAGS, 0o600, dir_fd=folder)
        try:
            left = entry.size
            while left:
                data = entry.read(min(left, CHUNK_BYTES))
                if not data:
                    raise UserError("its content is cut short", where=f"entry {entry.label}", fix="fetch it again")
                left -= len(data)
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
            self._set_xattrs(entry, descriptor)
            if self.keep_owner:
                os.fchown(descriptor, entry.uid, entry.gid)
            os.fchmod(descriptor, entry.mode)
            os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(descriptor)

    def _finish(self, entry: Entry, folder: int, name: bytes) -> None:
        if self.keep_owner:
            os.chown(name, entry.uid, entry.gid, dir_fd=folder, follow_symlinks=False)
        if entry.kind == "fifo":
            os.chmod(name, entry.mode, dir_fd=folder)  # made a moment ago, so it is no link
        os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=folder, follow_symlinks=False)

    def _link(self, entry: Entry, folder: int, real: Path, name: bytes) -> None:
        nothing = UserError("a hard link to nothing", where=f"entry {entry.label}", fix="make the image anew")
        target = self._resolve(entry.hardlink[:-1], create=False) if entry.hardlink else None
        if target is None:
            raise nothing
        above, aim = target[1], entry.hardlink[-1]
        try:
            if (*target[0], aim) in self._skipped:
                self._budget.skipped["devices"] += 1
            elif not _exists(above, aim):
                raise nothing
            elif (*target[0], aim) != real:  # a link to itself is there already
                if _is_folder(above, aim):
                    raise UserError("a hard link to a folder", where=f"entry {entry.label}", fix="make the image anew")
                self._remove(folder, name)
                os.link(aim, name, src_dir_fd=above, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(above)

    def _describe(self, real: Path, entry: Entry, descriptor: int) -> None:
        self.folders[real] = Attributes(entry.mode, entry.uid, entry.gid, entry.mtime_ns)
        self._fresh[real] = True
        _clear_xattrs(descriptor)
        self._set_xattrs(entry, descriptor)

    def _set_xattrs(self, entry: Entry, descriptor: int) -> None:
        for name, value in entry.xattrs.items():
            try:
                os.setxattr(descriptor, name, value)
            except OSError as problem:  # the store's file system has none, or not so large ones
                if problem.errno not in (errno.ENOTSUP, errno.E2BIG, errno.ERANGE):
                    raise
                self._budget.skipped["xattrs"] += 1

    def _place(self, path: Path, *, create: bool) -> tuple[Path, int] | None:
        """The real path and a descriptor of the folder `path`; good until the next call. None when it is not there."""
        if self._last is None or self._last[0] != path or self._is_stale:
            self._forget()
            found = self._resolve(path, create=create)
            if found is None:
                return None
            self._last, self._is_stale = (path, *found), False
        real = self._last[1]
        if create and real not in self._fresh:
            for depth in range(len(real) + 1):
                self._fresh.setdefault(real[:depth], False)
        return real, self._last[2]

    def _forget(self) -> None:
        if self._last is not None:
            os.close(self._last[2])
            self._last = None

    def _resolve(self, path: Path, *, create: bool) -> tuple[Path, int] | None:
        """Walks from the root; the caller closes the descriptor."""
        todo, num_links = list(reversed(path)), 0
        real: list[bytes] = []
        folder = os.dup(self.root)
        try:
            while todo:
                part = todo.pop()
                step = None if part == b".." else self._enter(folder, part, (*real, part), create=create)
                if isinstance(step, int):
                    folder = _instead(folder, step)
                    real.append(part)
                elif part == b"..":
                    real = real[:-1]
                    folder = _instead(folder, self._reopen(real))
                elif step is None:
                    os.close(folder)
                    return None
                else:
                    num_links += 1
                    if num_links > MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    if step.startswith(b"/"):
                        real = []
                        folder = _instead(folder, os.dup(self.root))
                    todo += reversed([part for part in step.split(b"/") if part not in (b"", b".")])
                if len(real) > MAX_DEPTH:
                    raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        except BaseException:
            os.close(folder)
            raise
        return tuple(real), folder

    def _enter(self, folder: int, name: bytes, real: Path, *, create: bool) -> int | bytes | None:
        """A descriptor of the folder `name`, or what it says if it is a link, or None if it is neither.

        With `create`, what is missing is made and what is no folder gives way to one, as it would under a later layer.
        """
        try:
            return os.open(name, FOLDER_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            pass
        except OSError as problem:
            if problem.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
                return os.readlink(name, dir_fd=folder)
        if not create:
            return None
        self._make_folder(folder, real, name)
        return os.open(name, FOLDER_FLAGS, dir_fd=folder)

    def _reopen(self, real: list[bytes]) -> int:
        folder = os.dup(self.root)
        try:
            for name in real:
                folder = _instead(folder, os.open(name, FOLDER_FLAGS, dir_fd=folder))
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _make_folder(self, folder: int, real: Path, name: bytes) -> None:
        """A folder at `name`, new or the one that is there."""
        if not _is_folder(folder, name):
            self._remove(folder, name)
            os.mkdir(name, _DRAFT_MODE, dir_fd=folder)
            self.folders.pop(real, None)
            self._skipped.discard(real)

    def _hide(self, folder: int, name: bytes, real: Path) -> None:
        if real not in self._fresh:
            self._remove(folder, name)
        elif _is_folder(folder, name):
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            try:
                if not self._fresh[real]:  # what described it is hidden too
                    self.folders.pop(real, None)
                    _clear_xattrs(inner)
                for child in names_in(inner):
                    self._hide(inner, child, (*real, child))
            finally:
                os.close(inner)

    def _remove(self, folder: int, name: bytes) -> None:
        """Removes whatever is there, with all that is in it."""
        try:
            os.unlink(name, dir_fd=folder)
            self._is_stale = True
            return
        except FileNotFoundError:
            return
        except OSError as problem:
            if problem.errno not in (errno.EISDIR, errno.EPERM) or not _is_folder(folder, name):
                raise
        inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
        try:
            for child in names_in(inner):
                self._remove(inner, child)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)
        self._is_stale = True


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """What a hostile name or link made the file system say is the entry's fault."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in _BAD_ENTRY:
            raise
        raise UserError(
            f"cannot be done: {problem.strerror}", where=f"entry {shown_path(path)}", fix="make the image anew"
        ) from problem


def _instead(old: int, new: int) -> int:
    os.close(old)
    return new


def names_in(folder: int) -> list[bytes]:
    """The names in an open folder, sorted."""
    return sorted(map(os.fsencode, os.listdir(folder)))


def user_xattrs(descriptor: int) -> list[str]:
    """The attributes that an import keeps, sorted; none where the file system has none."""
    try:
        return sorted(name for name in os.listxattr(descriptor) if kept_xattr(name))
    except OSError as problem:
        if problem.errno != errno.ENOTSUP:
            raise
        return []


def _clear_xattrs(descriptor: int) -> None:
    for name in user_xattrs(descriptor):
        os.removexattr(descriptor, name)


def _exists(folder: int, name: bytes) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def _is_folder(folder: int, name: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode)
    except FileNotFoundError:
        return False
