"""Pid 1 of a container: starts commands, enforces their time, reaps, and serves files. One thread, one loop.

Stdlib only: `shipped_source` sends this and what it imports through the container's stdin, so nothing of it lies where
the candidate could find or replace it. It keeps root's real and saved uid, so that no signal or trace of the
candidate's reaches it, and the four capabilities named below; the candidate inherits none of its descriptors.

Requests, one frame each; the answer carries the same id:

    {"op": "begin", ...settings} + system call filter                 -> {"ready": uid}
    {"id", "op": "run", "argv", "cwd", "envs", "timeout_s"} + stdin   -> {"id", "code" | "signal", ...} + output
    {"id", "op": "cancel"}                                            -> nothing; the run's answer comes early
    {"id", "op": "read", "path", "offset", "max_bytes"}               -> {"id", "size"} + bytes | {"no"}
    {"id", "op": "write", "path", "offset"} + bytes                   -> {"id"} | {"no"}
    {"id", "op": "exists", "path"}                                    -> {"id", "exists"}
"""

import contextlib
import fcntl
import os
import select
import signal
import time
from collections.abc import Iterator

from burnish.sandbox.oci import agent_files, frames
from burnish.sandbox.oci.agent_processes import descends, parents_by_pid, used_bytes
from burnish.sandbox.oci.agent_quirks import hide_pid_1, refuse_ping
from burnish.sandbox.oci.agent_start import NotStarted, start
from burnish.sandbox.oci.agent_streams import OutputPipe, open_stdin
from burnish.sandbox.oci.frames import Message
from burnish.sandbox.process import syscalls

_CAP_KILL = 5
_KEPT = (syscalls.CAP_SETUID, syscalls.CAP_SETGID, _CAP_KILL, syscalls.CAP_SYS_PTRACE)
_DEVICES = {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "tty", "ptmx", "pts"}
_ROOT_FLAGS = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_NOSUID | syscalls.MS_NODEV
_MAX_SWEEPS = 50
_SAMPLE_MEMORY_MS = 20.0
_READ_BYTES = 256 << 10


class Command:
    """A running command of the owner."""

    def __init__(self, request: int, pid: int, streams: "list[OutputPipe]", started: float, timeout_s: float) -> None:
        self.request, self.pid, self.streams = request, pid, streams
        self.started, self.deadline = started, started + timeout_s
        self.timed_out = self.over_memory = False


class Agent:
    """Serves one owner until its pipe ends. Leaving ends pid 1, and with it the container."""

    def __init__(self, owner: int, to_owner: int) -> None:
        self._owner, self._to_owner = owner, to_owner
        self._parser = frames.Parser(frames.MAX_BYTES)
        self._unsent = bytearray()
        self._running: dict[int, Command] = {}  # by pid
        self._outputs: dict[int, OutputPipe] = {}  # by descriptor
        self._poll = select.poll()
        self._settings: Message = {}
        self._memory_at_rest = 0

    def serve(self) -> None:
        """Until the owner is gone."""
        bell, ringer = os.pipe()
        for descriptor in (bell, ringer, self._owner, self._to_owner):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python would raise; what it starts gets the default back
        self._poll.register(self._owner, select.POLLIN)
        self._poll.register(bell, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll(self._milliseconds_to_wait()):
                if descriptor == self._owner:
                    data = os.read(self._owner, _READ_BYTES)
                    if not data:
                        return
                    self._receive(data)
                elif descriptor == bell:
                    os.read(bell, 4096)
                    self._reap()
                elif descriptor == self._to_owner:
                    self._flush()
                elif (output := self._outputs.get(descriptor)) is not None and not output.readable():
                    self._forget(output)
            self._end_overdue()
            self._end_hogs()

    def _milliseconds_to_wait(self) -> "float | None":
        deadlines = [command.deadline for command in self._running.values() if not command.timed_out]
        if not deadlines:
            return None
        left = max(0.0, (min(deadlines) - time.monotonic()) * 1000 + 1)
        return min(left, _SAMPLE_MEMORY_MS) if self._settings["sample"] else left

    def _receive(self, data: bytes) -> None:
        self._parser.feed(data)
        while (frame := self._parser.next_frame()) is not None:
            message, payload = frame
            operation = message["op"]
            if operation == "begin":
                self._begin(message, payload)
            elif operation == "run":
                self._run(message, payload)
            elif operation == "cancel":
                for command in tuple(self._running.values()):
                    if command.request == message["id"]:
                        self._kill(command)
            else:
                self._send(*self._serve_file(operation, message, payload))

    def _send(self, answer: Message, payload: bytes = b"") -> None:
        """Never waits: an owner that reads slowly must not keep a deadline from firing."""
        if not self._unsent:
            self._poll.register(self._to_owner, select.POLLOUT)
        self._unsent += frames.pack(answer, payload)
        self._flush()

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: os.write(self._to_owner, self._unsent[:_READ_BYTES])]
            self._poll.unregister(self._to_owner)

    # -- the way down ------------------------------------------------------------------------------------------------

    def _begin(self, settings: Message, program: bytes) -> None:
        """Tidies the container, then gives up all rights but the few that are needed to serve."""
        self._settings = settings
        _tidy_devices()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(settings["placeholder"])
        if settings["sample"]:
            self._memory_at_rest = used_bytes(settings["sample"])
        if settings["own_kernel"]:
            hide_pid_1()
        else:
            syscalls.mount("none", "/", flags=_ROOT_FLAGS)  # crun drops them
        uid = settings["uid"]
        syscalls.empty_bounding_set()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        syscalls.keep_only_capabilities(_KEPT)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if settings["own_kernel"]:
            refuse_ping()
        syscalls.install_seccomp(program)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        os.umask(0o022)
        self._send({"ready": uid})

    @contextlib.contextmanager
    def _as_candidate(self) -> Iterator[None]:
        """Files are opened and made with the candidate's rights; real and saved uid stay root's, out of its reach."""
        os.seteuid(self._settings["uid"])
        try:
            yield
        finally:
            os.seteuid(0)

    # -- commands ----------------------------------------------------------------------------------------------------

    def _run(self, message: Message, stdin: bytes) -> None:
        """Starts a command. One that cannot be started is a result like any other, with the reason on its stderr."""
        started = time.monotonic()
        opened: list[int] = []
        streams: list[OutputPipe] = []
        try:
            with self._as_candidate():  # so that programs may open /dev/stdin, /dev/stdout and /dev/stderr
                opened.append(open_stdin(stdin))
                for _ in range(2):
                    streams.append(OutputPipe(self._settings["output_bytes"]))
                    opened.append(streams[-1].writer)
            envs = {**self._settings["envs"], **message["envs"]}
            pid = start(message["argv"], envs, message["cwd"], opened, self._settings["uid"])
        except NotStarted as error:
            for stream in streams:
                stream.finish()
            self._answer_not_started(message["id"], error, time.monotonic() - started)
            return
        finally:
            for descriptor in opened:
                os.close(descriptor)
        for stream in streams:
            self._outputs[stream.descriptor] = stream
            self._poll.register(stream.descriptor, select.POLLIN)
        self._running[pid] = Command(message["id"], pid, streams, started, message["timeout_s"])

    def _answer_not_started(self, request: int, error: NotStarted, wall_s: float) -> None:
        answer = {
            "id": request,
            "code": error.code,
            "limit": "pids" if error.too_many else None,
            "timed_out": False,
            "wall_s": wall_s,
            "stdout_bytes": 0,
            "num_dropped": 0,
        }
        self._send(answer, f"{error}\n".encode("utf-8", "replace"))

    def _forget(self, output: OutputPipe) -> None:
        if self._outputs.pop(output.descriptor, None) is not None:
            self._poll.unregister(output.descriptor)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for command in tuple(self._running.values()):
            if now >= command.deadline and not command.timed_out:
                command.timed_out = True
                self._kill(command)

    def _end_hogs(self) -> None:
        """Where no control group bounds the sum of all processes' memory: all commands end when it is too much."""
        how = self._settings.get("sample")
        if how and self._running and used_bytes(how) - self._memory_at_rest > self._settings["memory_bytes"]:
            for command in self._running.values():
                command.over_memory = True
            _kill_everybody()

    def _kill(self, command: Command) -> None:
        """Ends a command and all it started. Its answer goes out when it has been reaped."""
        others = {pid for pid in self._running if pid != command.pid}
        if others:
            os.kill(command.pid, signal.SIGKILL)
            self._sweep(others)
        else:
            _kill_everybody()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, usage = found
                if (command := self._running.pop(pid, None)) is not None:
                    self._finish(command, status, usage.ru_utime + usage.ru_stime)

    def _finish(self, command: Command, status: int, cpu_s: float) -> None:
        """The command's own process has ended: what it left behind ends too, then the owner hears of it."""
        wall_s = time.monotonic() - command.started
        if self._running:
            self._sweep(set(self._running))
        else:
            self._kill_all_that_is_left()
        for stream in command.streams:
            self._forget(stream)
        (stdout, num_dropped), (stderr, num_dropped_too) = (stream.finish() for stream in command.streams)
        answer: Message = {
            "id": command.request,
            "timed_out": command.timed_out,
            "limit": "wall" if command.timed_out else "memory" if command.over_memory else None,
            "wall_s": wall_s,
            "cpu_s": cpu_s,
            "stdout_bytes": len(stdout),
            "num_dropped": num_dropped + num_dropped_too,
        }
        answer |= {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"code": os.WEXITSTATUS(status)}
        self._send(answer, stdout + stderr)

    def _kill_all_that_is_left(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:  # ends with ChildProcessError when nobody is left
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    _kill_everybody()
                    os.waitpid(-1, 0)

    def _sweep(self, keep: "set[int]") -> None:
        """Kills every process that does not descend from one of `keep`, the other commands that still run.

        A process that such a command orphaned on purpose (a daemon) is lost with the rest: it cannot be told apart.
        """
        for _ in range(_MAX_SWEEPS):
            parents = parents_by_pid()
            strays = [pid for pid in parents if not descends(pid, keep, parents)]
            if not strays:
                return
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # -- files -------------------------------------------------------------------------------------------------------

    def _serve_file(self, operation: str, message: Message, payload: bytes) -> "tuple[Message, bytes]":
        answer: Message = {"id": message["id"]}
        found = b""
        home, path = self._settings["home"], message["path"]
        try:
            with self._as_candidate():
                if operation == "read":
                    answer["size"], found = agent_files.read(home, path, message["offset"], message["max_bytes"])
                elif operation == "write":
                    agent_files.write(home, path, message["offset"], payload)
                else:
                    answer["exists"] = agent_files.exists(home, path)
        except agent_files.Refused as refusal:
            answer["no"] = str(refusal)
        except OSError as error:
            answer["no"] = os.strerror(error.errno or 0)
        except ValueError:
            answer["no"] = "cannot be a file name"
        return answer, found


def _kill_everybody() -> None:
    """Every process of the container but this one, in one step that no fork outruns."""
    with contextlib.suppress(ProcessLookupError):  # all of them are dead already
        os.kill(-1, signal.SIGKILL)


def _tidy_devices() -> None:
    """Leaves the harmless few, and puts shared memory where it counts against the disk limit."""
    for name in os.listdir("/dev"):
        if name not in _DEVICES:
            path = f"/dev/{name}"
            if os.path.isdir(path) and not os.path.islink(path):
                for inner in os.listdir(path):
                    os.unlink(f"{path}/{inner}")
                os.rmdir(path)
            else:
                os.unlink(path)
    os.symlink("/run/shm", "/dev/shm")


def main() -> None:
    """The life of pid 1, once its source has arrived."""
    owner, to_owner = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in (0, 1))
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number, inheritable=False)
    os.chdir("/")
    Agent(owner, to_owner).serve()
