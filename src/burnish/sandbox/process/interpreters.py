"""The interpreter that `run_code` finds waiting: started ahead, used once. Kept by the supervisor.

It belongs to the candidate's uid and has the candidate's confinement, so the candidate could do to it what it likes, if
the two ever met. They do not: it is started when every process of the sandbox is dead, and is dead and reaped before a
command starts that is not its own. What is read while it starts is out of the candidate's reach (`_safe_folder`), so
nothing of the candidate's runs outside of a command. Limits and reports are exact for the same reason: beside a command
there is never anything of ours.

Where that cannot be had, an interpreter is started when it is asked for, with the same program: the result is the same,
and comes later.
"""

import os
import signal
import socket
import stat
from collections.abc import Callable

from burnish.sandbox.process.python_program import FROM_SOCKET
from burnish.sandbox.process.template import HOME

_QUIET_MS = 4.0  # the start shall not compete with the owner's next command
_ARGV = ["python3", "-c", FROM_SOCKET]
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/etc")  # those of them that exist
# Variables that lead a start nowhere; neither do PYTHON_VERSION and the like, which images set.
_HARMLESS = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8"}

Spawn = Callable[["list[str]", "dict[str, str]", "list[int]"], int]


class Interpreters:
    """At most one waits. After a `run` one is wanted for the next, with the same environment."""

    def __init__(self, spawn: Spawn, null: int) -> None:
        """`spawn` starts a program with descriptors as 0, 1, 2 and so on; `null` is a descriptor of /dev/null."""
        self._spawn, self._null = spawn, null
        self._wanted: dict[str, str] | None = None  # with this environment
        self._waiting: tuple[int, socket.socket] | None = None  # with that environment

    @property
    def patience_ms(self) -> "float | None":
        """After how much quiet `start_one` has something to do; None for never."""
        return None if self._wanted is None or self._waiting is not None else _QUIET_MS

    def run(self, envs: "dict[str, str]", cwd: str, fds: "list[int]") -> int:
        """The pid of an interpreter that runs code. `fds`: source, stdin, stdout, stderr. Raises OSError, ValueError.

        The caller has checked that there is such a directory, and is in it.
        """
        job = os.fsencode(cwd)
        if self._waiting is not None and envs == self._wanted and not os.path.lexists(_user_site(envs)):
            (pid, channel), self._waiting = self._waiting, None
            with channel:
                try:
                    socket.send_fds(channel, [job], fds)
                    return pid
                except OSError:  # it has died
                    _end(pid)
        self.dismiss()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            socket.send_fds(ours, [job], fds)
            pid = self._spawn(_ARGV, envs, [*fds[1:], theirs.fileno()])
        self._wanted = envs
        return pid

    def start_one(self) -> None:
        """If one is wanted; only while nothing of the candidate's runs."""
        if self._wanted is None or self._waiting is not None:
            return
        folder = _safe_folder(self._wanted)
        if folder is None:
            self._wanted = None
            return
        try:
            self._waiting = self._started_in(folder, self._wanted)
        except (OSError, ValueError):  # the next `run` meets the same, and says so
            self._wanted = None

    def _started_in(self, folder: str, envs: "dict[str, str]") -> "tuple[int, socket.socket]":
        os.chdir(folder)  # what Python finds in the directory where it starts is not the candidate's either
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            reader, writer = os.pipe()  # in place of the streams to come, since Python remembers of what kind they were
            try:
                return self._spawn(_ARGV, envs, [self._null, writer, writer, theirs.fileno()]), ours
            finally:
                os.close(reader)
                os.close(writer)

    def dismiss(self) -> None:
        """When this returns, nothing waits, nothing is wanted, and what waited is gone from every account."""
        self._wanted = None
        if self._waiting is not None:
            (pid, channel), self._waiting = self._waiting, None
            channel.close()
            _end(pid)

    def forget(self, pid: int) -> None:
        """A process was reaped that was no command."""
        if self._waiting is not None and self._waiting[0] == pid:
            self._waiting[1].close()
            self._wanted = self._waiting = None


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _safe_folder(envs: "dict[str, str]") -> "str | None":
    """Where python3 lies, if nothing that its start reads or runs can have been written by the candidate."""
    if any(name.startswith(("LD_", "PYTHON")) and not _is_harmless(name) for name in envs):
        return None
    folders = envs.get("PATH", "").split(":")
    if not all(path.startswith("/") for path in (*folders, _user_site(envs))) or os.path.lexists(_user_site(envs)):
        return None
    program = next((path for folder in folders if os.access(path := f"{folder}/python3", os.X_OK)), "/")
    read = [path for path in _SYSTEM if os.path.lexists(path)]
    for path in (program, os.path.realpath(program)):
        read += [os.path.dirname(path), os.path.dirname(os.path.dirname(path))]  # the latter may hold a pyvenv.cfg
    root, uid = os.stat("/").st_dev, os.getuid()
    return os.path.dirname(program) if all(_is_sealed(path, root, uid) for path in read) else None


def _is_harmless(name: str) -> bool:
    return name in _HARMLESS or name.startswith("PYTHON_")


def _is_sealed(path: str, root: int, uid: int) -> bool:
    """Whether it is a directory that `uid` cannot have made or replaced: a mount of the machine's, or somebody else's.

    The root directory is the candidate's, so a link in it may be too.
    """
    try:
        directory, entry = os.stat(path), os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISDIR(directory.st_mode):
        return False
    is_others = uid not in (directory.st_uid, entry.st_uid) and not directory.st_mode & stat.S_IWOTH
    return is_others or directory.st_dev != root


def _user_site(envs: "dict[str, str]") -> str:
    """Below this Python looks for packages of the user's, and runs their .pth files when it starts."""
    return f"{envs.get('HOME', HOME)}/.local/lib"
