"""Pid 1 of a sandbox: starts commands, enforces their time, reaps, and serves files. One thread, one loop.

Out of the candidate's reach: signals of its pid namespace do not arrive at pid 1 (the kernel protects an init from all
that it neither handles nor blocks, and SIGCHLD is the only one blocked here), it cannot be traced (not dumpable,
capabilities that the candidate lacks, and no ptrace call to begin with), it shares no descriptor, and nothing of the
sandbox's file system is ever loaded into it. Commands are started by posix_spawn, which costs a vfork and not a fork of
this Python; everything that confines them has been applied to this process before (confine.py) and is inherited.

Requests of the owner, one packet each; the answer carries the same id:

    {"id", "op": "freeze" | "thaw"}    all processes but this one stop, and go on -> {"id"} | {"no"}
    {"id", "op": "run", "argv", "cwd", "envs", "timeout_s"} + stdin?, stdout, stderr  -> {"id", "code" | "signal", ...}
    {"id", "op": "code", ...as "run"} + source, stdin?, stdout, stderr         -> the same; see interpreters.py
    {"id", "op": "cancel"}                                                     -> nothing; the run's answer comes early
    {"id", "op": "read", "path", "max_bytes"}                                  -> {"id", "size"} + descriptor | {"no"}
    {"id", "op": "write", "path"} + descriptor                                 -> {"id"} | {"no"}
    {"id", "op": "exists", "path"}                                             -> {"id", "exists"}
"""

import contextlib
import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence

from burnish.sandbox.process import boxfiles, syscalls, wire
from burnish.sandbox.process.interpreters import Interpreters
from burnish.sandbox.process.limits import Meter, used_bytes
from burnish.sandbox.process.processes import parents_of_all
from burnish.sandbox.process.standstill import INSIST_MS, Standstill
from burnish.sandbox.process.wire import Message

EXIT_NOT_FOUND, EXIT_NOT_RUNNABLE = 127, 126  # as shells say it
# Ignored by Python, or by the host; ignoring would be inherited.
_SIGNALS_TO_DEFAULT = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT]
_MAX_SWEEPS = 50
_SAMPLE_MEMORY_MS = 20.0


class Command:
    """A running command of the owner."""

    def __init__(self, request: int, pid: int, started: float, timeout_s: float, cpu_before: float) -> None:
        self.request, self.pid, self.started = request, pid, started
        self.deadline = self.started + timeout_s
        self.cpu_before = cpu_before  # what all programs of the sandbox had used
        self.was_alone = True
        self.timed_out = self.over_memory = self.over_cpu = False

    @property
    def broken_limit(self) -> "str | None":
        """For which it was ended."""
        return "cpu" if self.over_cpu else "wall" if self.timed_out else "memory" if self.over_memory else None


class Supervisor:
    """Serves one owner until either end goes away."""

    def __init__(self, owner: socket.SocketType, lifeline: int, deaths: int, meter: Meter) -> None:
        """`lifeline` ends with the host, `deaths` is readable when a child has ended (`syscalls.listen_for`)."""
        self._owner, self._lifeline, self._deaths, self._meter = owner, lifeline, deaths, meter
        self._running: dict[int, Command] = {}  # by pid
        self._standstill: Standstill | None = None
        self._null = self._proc = self._proc_device = -1
        self._interpreters: Interpreters | None = None  # from the first "code" on

    def serve(self) -> None:
        """Until the host is gone. Raises EOFError when the owner is. Leaving ends pid 1, and with it the sandbox."""
        self._null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # / may be closed to us later
        self._proc_device = os.fstat(self._proc).st_dev
        poll = select.poll()
        for descriptor in (self._owner.fileno(), self._lifeline, self._deaths):
            poll.register(descriptor, select.POLLIN)
        while True:
            events = poll.poll(self._milliseconds_to_deadline())
            if not events and self._interpreters is not None and not self._running:
                self._interpreters.start_one()
            for descriptor, _ in events:
                if descriptor == self._lifeline:
                    return
                if descriptor == self._deaths:
                    os.read(self._deaths, syscalls.SIGINFO_BYTES)
                    self._reap()
                else:
                    self._serve_one(*wire.receive(self._owner))
            self._end_overdue()
            self._end_hogs()
            self._end_spenders()

    def _milliseconds_to_deadline(self) -> "float | None":
        deadlines = [command.deadline for command in self._running.values() if not command.timed_out]
        if self._standstill is not None:
            return INSIST_MS
        if not deadlines:
            return None if self._running or self._interpreters is None else self._interpreters.patience_ms
        left = max(0.0, (min(deadlines) - time.monotonic()) * 1000 + 1)
        left = min(left, self._meter.cpu.patience_s() * 1000 + 1)
        return min(left, _SAMPLE_MEMORY_MS) if self._meter.samples_memory else left

    def _serve_one(self, message: Message, fds: "list[int]") -> None:
        try:
            operation = message["op"]
            if operation == "run":
                self._run(message, fds)
            elif operation == "code":
                self._run_code(message, fds)
            elif operation == "cancel":
                self._cancel(message["id"])
            elif operation == "freeze":
                self._freeze(message["id"])
            elif operation == "thaw":
                self._thaw(message["id"])
            else:
                self._serve_file(operation, message, fds)
        finally:
            for descriptor in fds:
                os.close(descriptor)

    def _serve_file(self, operation: str, message: Message, fds: "list[int]") -> None:
        answer: Message = {"id": message["id"]}
        opened: list[int] = []
        try:
            if operation == "read":
                descriptor, answer["size"] = boxfiles.open_to_read(
                    message["path"], message["max_bytes"], self._proc_device
                )
                opened.append(descriptor)
            elif operation == "write":
                boxfiles.write(message["path"], fds[0])
            else:
                answer["exists"] = boxfiles.exists(message["path"])
        except boxfiles.Refused as refusal:
            answer["no"] = str(refusal)
        except OSError as error:
            answer["no"] = os.strerror(error.errno or 0)
        try:
            wire.send(self._owner, answer, opened)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _run(self, message: Message, fds: "list[int]") -> None:
        if self._interpreters is not None:
            self._interpreters.dismiss()
        *stdin, stdout, stderr = fds
        streams = [*(stdin or [self._null]), stdout, stderr]
        self._start(message, stderr, lambda: self._spawn(message["argv"], message["envs"], streams))

    def _run_code(self, message: Message, fds: "list[int]") -> None:
        if self._interpreters is None:
            self._interpreters = Interpreters(self._spawn, self._null)
        run = self._interpreters.run
        source, *stdin, stdout, stderr = fds
        streams = [*(stdin or [self._null]), stdout, stderr]
        self._start(message, stderr, lambda: run(message["envs"], message["cwd"], [source, *streams]))

    def _start(self, message: Message, stderr: int, start: "Callable[[], int]") -> None:
        """Starts a command. One that cannot be started is a result like any other, with the reason on its stderr."""
        if self._interpreters is not None and not self._running:  # the waiting one had its share of the peak
            self._meter.begin()
        started, cpu_before = time.monotonic(), self._meter.cpu.begin()
        try:
            os.chdir(message["cwd"])
            pid = start()
        except (OSError, ValueError) as error:
            self._answer_not_started(message, error, stderr, time.monotonic() - started)
            return
        self._running[pid] = Command(message["id"], pid, started, message["timeout_s"], cpu_before)
        if len(self._running) > 1:
            for command in self._running.values():
                command.was_alone = False

    def _spawn(self, argv: "list[str]", envs: "dict[str, str]", streams: "list[int]") -> int:
        actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(streams)]
        program = argv[0]
        folders = [""] if "/" in program else [f"{folder or '.'}/" for folder in envs.get("PATH", "").split(":")]
        failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._meter.expose()
        try:
            for folder in folders:
                try:
                    return os.posix_spawn(
                        folder + program,
                        argv,
                        envs,
                        file_actions=actions,
                        resetids=True,
                        setsid=True,
                        setsigdef=_SIGNALS_TO_DEFAULT,
                        setsigmask=(),
                    )
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except PermissionError as error:
                    failure = error
            raise failure
        finally:
            self._meter.protect()

    def _freeze(self, request: int) -> None:
        self._standstill = Standstill(self._proc)
        stands = self._standstill.begin()
        wire.send(self._owner, {"id": request} if stands else {"id": request, "no": "its processes did not stop"})

    def _thaw(self, request: int) -> None:
        """The time that commands stood still is not theirs."""
        answer: Message = {"id": request}
        if self._standstill is not None:
            if not self._standstill.end():
                answer["no"] = "its processes did not stand still"
            stood_s = time.monotonic() - self._standstill.since
            for command in self._running.values():
                command.started += stood_s
                command.deadline += stood_s
            self._standstill = None
        wire.send(self._owner, answer)

    def rehearse(self, request: Message, streams: "Sequence[int]") -> None:
        """All that a command's run does here, with one that cannot be started, before there is a sandbox."""
        self._serve_one(request, list(streams))
        self._reap()
        self._finish(Command(request["id"], 0, time.monotonic(), request["timeout_s"], self._meter.cpu.begin()), 0, 0.0)
        self._milliseconds_to_deadline()
        self._end_overdue()
        self._end_hogs()

    def _answer_not_started(self, message: Message, error: Exception, stderr: int, wall_s: float) -> None:
        missing = isinstance(error, FileNotFoundError)
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        subject = message["argv"][0] if os.path.isdir(message["cwd"]) else f"working directory {message['cwd']}"
        with contextlib.suppress(OSError):  # whoever asked may have gone, and the reading end with it
            os.write(stderr, f"{subject[:200]}: {reason}\n".encode("utf-8", "replace"))
        limit = "pids" if isinstance(error, BlockingIOError) else None
        code = EXIT_NOT_FOUND if missing else EXIT_NOT_RUNNABLE
        answer = {"id": message["id"], "code": code, "limit": limit, "timed_out": False, "wall_s": wall_s}
        wire.send(self._owner, answer)

    def _cancel(self, request: int) -> None:
        for command in self._running.values():
            if command.request == request:
                self._kill(command)

    def _end_overdue(self) -> None:
        if self._standstill is not None:
            self._standstill.insist()
            return
        now = time.monotonic()
        for command in self._running.values():
            if now >= command.deadline and not command.timed_out:
                command.timed_out = True
                self._kill(command)

    def _end_hogs(self) -> None:
        """Where no control group bounds the sum of all processes' memory: all commands end when it is too much."""
        if (
            self._meter.samples_memory
            and self._running
            and used_bytes(self._proc, self._meter.memory_bytes) > self._meter.memory_bytes
        ):
            for command in self._running.values():
                command.over_memory = True
            os.kill(-1, signal.SIGKILL)

    def _end_spenders(self) -> None:
        """Commands that have used more CPU time than they may, with all they started. Overlapping ones count together:
        whose a process is could be told by its descent only, which it can give up."""
        for pid in self._meter.cpu.over({pid: command.cpu_before for pid, command in self._running.items()}):
            self._running[pid].over_cpu = True
            self._kill(self._running[pid])

    def _kill(self, command: Command) -> None:
        """Ends a command and all it started. Its answer goes out when it has been reaped."""
        others = {pid for pid in self._running if pid != command.pid}
        if others:
            os.kill(command.pid, signal.SIGKILL)
            self._sweep(others)
        else:
            os.kill(-1, signal.SIGKILL)  # everything in the pid namespace but us, in one step that no fork outruns

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = self._running.pop(pid, None)
            if command is not None:
                self._finish(command, status, usage.ru_utime + usage.ru_stime)
            elif self._interpreters is not None:
                self._interpreters.forget(pid)

    def _finish(self, command: Command, status: int, cpu_s: float) -> None:
        """The command's own process has ended: what it left behind ends too, then the owner hears of it."""
        wall_s = time.monotonic() - command.started
        if self._running:
            num_left = self._sweep(set(self._running))
        else:
            num_left, cpu_s_left = self._kill_all_that_is_left()
            cpu_s += cpu_s_left
            if command.was_alone and self._meter.cpu.is_exact:  # then also those are counted that nobody waited for
                cpu_s = self._meter.cpu.since(command.cpu_before)
        answer: Message = {
            "id": command.request,
            "timed_out": command.timed_out,
            "wall_s": wall_s,
            "cpu_s": cpu_s,
            "num_left": num_left,
            "peak": self._meter.peak_memory_bytes(),
        }
        if os.WIFSIGNALED(status):
            answer["signal"] = os.WTERMSIG(status)
        else:
            answer["code"] = os.WEXITSTATUS(status)
        limit = self._meter.limit_hit()
        answer["limit"] = command.broken_limit or limit
        answer["oom"] = self._meter.oom_killed
        wire.send(self._owner, answer)
        if not self._running:  # not when the next one starts, which somebody waits for
            self._meter.begin()

    def _kill_all_that_is_left(self) -> "tuple[int, float]":
        """How many they were, and their CPU time."""
        number, cpu_s, killed = 0, 0.0, False
        try:
            while True:  # ends with ChildProcessError when nobody is left
                pid, _, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    os.kill(-1, signal.SIGKILL)
                    killed = True
                    pid, _, usage = os.wait4(-1, 0)
                number += killed  # who is reaped before had ended by itself
                cpu_s += usage.ru_utime + usage.ru_stime
        except (ChildProcessError, ProcessLookupError):
            return number, cpu_s

    def _sweep(self, keep: "set[int]") -> int:
        """Kills every process that does not descend from one of `keep`, the other commands that still run; how many.

        A process that such a command orphaned on purpose (a daemon) is lost with the rest: it cannot be told apart.
        """
        killed: set[int] = set()
        for _ in range(_MAX_SWEEPS):
            parents = parents_of_all(self._proc)
            strays = [pid for pid in parents if pid != 1 and not _descends(pid, keep, parents)]
            if not strays:
                break
            killed.update(strays)
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return len(killed)


def _descends(pid: int, ancestors: "set[int]", parents: "dict[int, int]") -> bool:
    while pid in parents:
        if pid in ancestors:
            return True
        pid = parents[pid]
    return False
