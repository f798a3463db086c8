"""The sandbox contract. `burnish sandbox check` runs its conformance suite against a backend.

What is a result and what is an error:

* A command that exits non-zero, dies by a signal, hits a limit or outlives its time is a **result**: nothing is raised.
* A sandbox that cannot be created, has died, or whose host does not answer is a `SandboxError`.
* A path that does not exist, or a name that leaves the sandbox, is `SandboxFileError`, a result of the caller's request
  that says which.

Omitted means denied: no network, no host environment, no descriptors. Names follow the E2B SDK; results follow Inspect.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from burnish.errors import UserError
from burnish.sandbox.network import NetworkPolicy, NetworkRecord
from burnish.types import Limits

LimitName = Literal["wall", "cpu", "memory", "pids", "output", "disk"]
Level = Literal["none", "process", "gvisor", "microvm"]
Language = Literal["python"]

HOST_IMAGE = "host"

OnNetwork = Callable[[str, NetworkRecord], None]
"""Hears of what a sandbox's network did; the id says whose."""

CAPABILITIES = {
    "shell": "runs /bin/sh lines with the host's programs",
    "python": "has python3",
    "files": "reads and writes files",
    "snapshot": "snapshots, forks, and returns to a snapshot",
    "snapshot.export": "writes snapshots to an object store, and reads them from one, of this machine or another",
    "limits.wall": "a command that outlives its time is killed with all it started",
    "limits.cpu": "all processes together get no more than so many processors, and programs count no more",
    "limits.cpu_time": "a command that uses more CPU time is killed with all it started, and the result says so",
    "limits.memory": "the kernel bounds the memory of all processes together",
    "reports.usage": "the result tells CPU time and what a command left behind",
    "reports.peak_memory": "the result tells the peak of memory",
    "reports.memory": "a command that uses too much memory is stopped, and the result names the limit",
    "limits.pids": "the number of processes is bounded",
    "reports.pids": "the result names the limit on processes",
    "limits.output": "output past the limit is dropped while it is drained",
    "limits.disk": "bytes and inodes written are bounded; the result names the limit",
    "limits.open_files": "the number of descriptors of a process is bounded",
    "checkpoint": "saves a sandbox with its memory and processes, and continues from there",
    "images": "starts from images of the store (docs/images.md)",
    "shows_limits": "programs that look for the machine's memory find the sandbox's limit",
    "isolation": "nothing of the host or of another sandbox is visible, and the system directories are read-only",
    "network_none": "no packet leaves",
    "network_allowlist": "what a policy allows can be reached, through a proxy that records every verdict",
    "confinement": "no capabilities, no new privileges, a system call filter",
}
"""What a backend may declare. A check of the conformance suite names the one it needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecResult:
    """What one command did.

    Example: ExecResult(exit_code=0, signal=None, stdout=b"hi\\n", stderr=b"", timed_out=False, limit_hit=None,
        wall_s=0.004, dropped_bytes=0, cpu_s=0.002, peak_memory_bytes=1_204_224, oom_killed=False, num_left=0)
    """

    exit_code: int | None  # None when a signal ended it
    signal: int | None  # None when it exited
    stdout: bytes
    stderr: bytes
    timed_out: bool
    limit_hit: LimitName | None
    wall_s: float
    dropped_bytes: int  # output past the limit, both streams; of each stream the first and the last half are kept
    # what a backend does not measure is None
    # of all its processes, those included that it left behind; where no control group counts, of those waited for
    cpu_s: float | None = None
    peak_memory_bytes: int | None = None  # of all processes and files of the sandbox while it ran
    oom_killed: bool | None = None  # the kernel ended a process for memory
    num_left: int | None = None  # processes that it left behind, and that were ended
    network_denials: int | None = None  # connections that the network policy refused while it ran

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


class SandboxFileError(Exception):
    """A file operation that the sandbox answered with "no" (missing, a directory, outside, too large)."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


class Commands(Protocol):
    """Running programs in a sandbox."""

    async def run(
        self,
        cmd: str | Sequence[str],
        /,
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Runs a shell line (str, by /bin/sh -c) or an argument vector. No stdin means EOF at once.

        Returns when the command's own process has ended, also if children it left behind still hold its output; those
        children are killed. `timeout_s` None takes the sandbox's `limits.wall_s`. A relative `cwd` starts at the
        working directory. Commands of one sandbox may overlap.

        One that cannot be started is a result too: exit code 127 when there is no such program or directory, 126 for
        every other reason, which stands on stderr.
        """
        ...

    async def run_code(
        self,
        language: Language,
        source: str | bytes,
        /,
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        envs: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Runs a program of any length, as `run(["python3", "-c", source])` would; tracebacks call it `<code>`.

        Each call has an interpreter of its own: nothing is kept from one to the next. A backend may have started it
        before. Bytes are what a file would hold; text is encoded as UTF-8. Raises UserError for another language.
        """
        ...


def code_bytes(language: str, source: str | bytes) -> bytes:
    """The source as a file would hold it. Raises UserError for a language that `run_code` does not know."""
    if language != "python":
        raise UserError(f"no interpreter for {language!r}", where="commands.run_code", fix="use 'python'")
    # a surrogate is a syntax error of the program, which its interpreter reports
    return source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source


class Files(Protocol):
    """Relative paths start at the working directory. Nothing follows a symlink out of the sandbox."""

    async def write(self, path: str, data: str | bytes, /) -> None:
        """Creates parent directories; replaces an existing file."""
        ...

    async def read(self, path: str, /, *, max_bytes: int = 16 << 20) -> bytes:
        """Regular files only; larger than `max_bytes` is a SandboxFileError."""
        ...

    async def exists(self, path: str, /) -> bool: ...


class Snapshot(Protocol):
    """The files of a sandbox at one moment, held until `release` or the end of `async with`.

    Forks and sandboxes that were restored keep what they need of it beyond that.
    """

    @property
    def id(self) -> str: ...
    @property
    def was_live(self) -> bool:
        """Processes were running: they were stopped while their files were copied, and are not part of it."""
        ...

    async def release(self) -> None:
        """Idempotent."""
        ...

    async def __aenter__(self) -> "Snapshot": ...
    async def __aexit__(self, *exc: object) -> None: ...


OnBytes = Callable[[int], None]
"""Hears how many uncompressed bytes more have been exported or imported."""


class SnapshotStore(Protocol):
    """Where exported snapshots lie: named objects that never change. How they are compressed is its own matter.
    `burnish.sandbox.objects` has the usual ones.

    Everything raises SandboxError when the store fails.
    """

    async def has(self, key: str) -> bool:
        """Whether there is such an object."""
        ...

    def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """An object in pieces, of a few megabytes at most. Raises UserError for one that is missing or damaged."""
        ...

    async def write(self, key: str, pieces: AsyncIterator[bytes]) -> None:
        """An object from pieces: there as a whole, or not at all when one of them raises."""
        ...


class SandboxBox(Protocol):
    """A live sandbox. Close it with `async with` or `kill()`."""

    @property
    def id(self) -> str: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def commands(self) -> Commands: ...
    @property
    def files(self) -> Files: ...

    async def kill(self) -> None:
        """Ends every process and reclaims mounts, cgroups and folders. Idempotent."""
        ...

    async def snapshot(self) -> Snapshot:
        """The files as they are now, in a time that does not depend on how many or how large they are.

        While commands run, their processes are stopped and the files copied instead, which takes as long as that takes;
        `Snapshot.was_live` says so. Files count against the disk limit of every sandbox made from the snapshot.

        Raises UserError where the backend does not declare "snapshot", SandboxError when it failed.
        """
        ...

    async def fork(self, n: int = 1) -> Sequence["SandboxBox"]:
        """`n` new sandboxes with this one's files, limits and environment; all of them or an error.

        What a copy has of its own: its id, its processes, the machine's clock and randomness, its network, what it
        writes from now on. Neither the original nor a sibling sees that.
        """
        ...

    def set_network(self, policy: NetworkPolicy) -> None:
        """Replaces the whole policy, for a new phase of the work; open connections that it denies are cut.

        Raises UserError for a sandbox that was made without a network.
        """
        ...

    async def restore(self, snapshot: Snapshot, /) -> None:
        """Takes the files back to a snapshot, of this sandbox or another. Processes that still run are ended."""
        ...

    async def __aenter__(self) -> "SandboxBox": ...
    async def __aexit__(self, *exc: object) -> None: ...


class SandboxBackend(Protocol):
    """Makes sandboxes. One per run; owns the host process; `close` leaves nothing behind (I7).

    Belongs to the event loop of its first use.
    """

    @property
    def name(self) -> str: ...
    @property
    def level(self) -> Level: ...
    async def create(
        self,
        *,
        limits: Limits = Limits(),
        envs: Mapping[str, str] | None = None,
        snapshot: Snapshot | None = None,
        network: NetworkPolicy | None = None,
        on_network: OnNetwork | None = None,
        image: str = HOST_IMAGE,
    ) -> SandboxBox:
        """A fresh sandbox, or one with the files of a snapshot. `envs` are added to the environment of every command.

        `network`: None is no network at all. With a policy, programs find a proxy in `http_proxy`, `https_proxy` and
        `all_proxy`, which is the only way out, and which `SandboxBox.set_network` tells what to allow from then on.
        `image` is "host", this machine's programs read-only, or an image of the store; a snapshot brings its own.
        `on_network` hears of every verdict and every connection's end, with the id of the sandbox, which may be a fork
        of this one; when it raises, all connections are cut.

        Raises SandboxError when the host died or refuses, UserError when the machine lacks what the backend needs, or
        for a limit that the backend does not declare.
        A creation that is cancelled leaves nothing behind.
        """
        ...

    async def export_snapshot(
        self, snapshot: Snapshot, store: SnapshotStore, *, timeout_s: float = 600.0, on_bytes: OnBytes | None = None
    ) -> str:
        """Writes a snapshot to a store; the name to import it by, a digest of all it holds ("sha256:...").

        What the store has already is not written again. Sockets, access control lists, set-user-id and set-group-id are
        left out. Nothing that was begun is visible in the store when it fails.

        Raises UserError where the backend does not declare "snapshot.export" and for a snapshot that was released,
        SandboxError when the store fails, the files cannot be packed, or the time is over.
        """
        ...

    async def import_snapshot(
        self,
        name: str,
        store: SnapshotStore,
        *,
        disk_bytes: int = Limits().disk_bytes,
        timeout_s: float = 600.0,
        on_bytes: OnBytes | None = None,
    ) -> Snapshot:
        """A snapshot of this backend with the files of one that was exported. It is trusted with nothing: what comes
        from the store is compared with its digests, and is never more than `disk_bytes`, as the files of one sandbox.

        Raises UserError for what is not there, damaged, hostile, too large or made from an image that this machine does
        not have, SandboxError as `export_snapshot` does. Nothing is left of an import that failed.
        """
        ...

    async def capabilities(self) -> frozenset[str]:
        """Which of `CAPABILITIES` this backend really has on this machine."""
        ...

    async def close(self) -> None: ...
