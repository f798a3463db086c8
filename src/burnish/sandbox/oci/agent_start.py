"""Starting a command under the candidate's uid. Stdlib only: this source is sent into the container.

A fork and not posix_spawn, which would take a moment in which pid 1 itself has the candidate's uid. gVisor, other than
Linux, lets an init be killed from inside, and the container with it.
"""

import contextlib
import errno
import os
import select
import signal
import struct
from typing import NoReturn

EXIT_NOT_FOUND, EXIT_NOT_RUNNABLE = 127, 126  # as shells say it
_SIGNALS_TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)  # ignored here; ignoring would be inherited
_STATUS = struct.Struct("=Bi")  # which step failed, and its errno
_IN_CWD, _IN_PROGRAM = 0, 1
_STATUS_FD = 3
_MOST_OPEN_FILES = 1024  # at least RLIMIT_NOFILE of pid 1
_START_S = 3.0
_FIRST_TO_DIE = b"1000"  # for the out-of-memory killer


class NotStarted(Exception):
    """The reason in words, the exit code that stands for it, and whether it was the limit on processes."""

    def __init__(self, subject: str, number: int, said: "str | None" = None) -> None:
        self.code = EXIT_NOT_FOUND if number == errno.ENOENT else EXIT_NOT_RUNNABLE
        self.too_many = number == errno.EAGAIN
        super().__init__(f"{subject[:200]}: {said or os.strerror(number)}")


def start(argv: "list[str]", envs: "dict[str, str]", cwd: str, streams: "list[int]", uid: int) -> int:
    """The pid of a new program in a session of its own, with three descriptors. Raises NotStarted."""
    try:
        words = [os.fsencode(word) for word in argv]
        variables = {os.fsencode(name): os.fsencode(value) for name, value in envs.items()}
        if b"\0" in b"".join((*words, *variables, *variables.values(), os.fsencode(cwd))):
            raise ValueError("a NUL character")  # noqa: TRY301 (one answer for what cannot be passed)
    except ValueError as error:
        raise NotStarted(argv[0], errno.EINVAL, str(error)) from error
    reader, writer = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            _become(words, variables, cwd, [*streams, writer], uid)
    except OSError as error:
        os.close(reader)
        raise NotStarted(argv[0], error.errno or 0) from error
    finally:
        os.close(writer)
    with open(reader, "rb", buffering=0) as status:
        if not select.select([status], [], [], _START_S)[0]:  # the candidate may stop it before exec
            os.kill(pid, signal.SIGKILL)
        failure = status.read(_STATUS.size)  # empty when exec, or its death, closed it
    if not failure:
        return pid
    os.waitpid(pid, 0)
    step, number = _STATUS.unpack(failure)
    raise NotStarted(argv[0] if step == _IN_PROGRAM else f"working directory {cwd}", number)


def _become(argv: "list[bytes]", envs: "dict[bytes, bytes]", cwd: str, descriptors: "list[int]", uid: int) -> NoReturn:
    """The child. What is ours is closed before it becomes the candidate's, who may look into its own processes."""
    step = _IN_CWD
    try:
        signal.set_wakeup_fd(-1)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as score:
            score.write(_FIRST_TO_DIE)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number, inheritable=number != _STATUS_FD)
        os.closerange(_STATUS_FD + 1, _MOST_OPEN_FILES)
        for name in _SIGNALS_TO_DEFAULT:
            signal.signal(name, signal.SIG_DFL)
        os.setsid()
        os.setresuid(uid, uid, uid)
        os.chdir(cwd)
        step = _IN_PROGRAM
        _execute(argv, envs)
    except OSError as error:
        os.write(_STATUS_FD, _STATUS.pack(step, error.errno or 0))
    finally:
        os._exit(EXIT_NOT_RUNNABLE)


def _execute(argv: "list[bytes]", envs: "dict[bytes, bytes]") -> None:
    """Like execvpe, but an empty PATH finds nothing, and the reason is that of a program that is there."""
    folders = [b""] if b"/" in argv[0] else [(part or b".") + b"/" for part in envs.get(b"PATH", b"").split(b":")]
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in folders:
        try:
            os.execve(folder + argv[0], argv, envs)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            failure = error
    raise failure
