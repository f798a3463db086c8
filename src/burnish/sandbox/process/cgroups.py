"""Limits on memory, processes and CPU through control groups, version 2 or 1, whichever lets itself be written.

One folder per host process, `burnish-<pid namespace>-<pid>-<start time>`, with one folder per sandbox inside. The name
says whose it is: whoever starts next removes the folders of hosts that are dead, judged by (pid, start time) and never
by the pid alone, and leaves those of other pid namespaces, whose life cannot be judged from here.
"""

import contextlib
import errno
import os
import time

PREFIX = "burnish-"
CPU_PERIOD_US = 20_000  # a fifth of the kernel's own: what is throttled, the supervisor included, goes on that sooner
_OWN = "/proc/self"
_POLL_S = 0.005


class Limit:
    """How one controller is told its limit and asked how often it was hit."""

    def __init__(self, limit_file: str, events_file: str, events_key: str, peak_file: str = "") -> None:
        self.limit_file, self.events_file, self.events_key = limit_file, events_file, events_key
        self.peak_file = peak_file  # writing to a descriptor of it starts the measurement anew


V2 = {
    "memory": Limit("memory.max", "memory.events", "oom_kill", "memory.peak"),
    "pids": Limit("pids.max", "pids.events", "max"),
}
V1 = {
    "memory": Limit("memory.limit_in_bytes", "memory.oom_control", "oom_kill", "memory.max_usage_in_bytes"),
    "pids": Limit("pids.max", "pids.events", "max"),
}
_LATE_IN_V1 = ("cpu", "cpuacct")


class Cgroups:
    """The folders of one host. `kind` is "v2", "v1" or "none"; `controllers` says which limits can really be held.

    Folders are addressed by descriptor, because the host leaves the file system in which they have a path. Version 2
    has one folder per sandbox for all controllers. In version 1 every hierarchy that a sandbox joins costs it 0.1 ms,
    so it joins those of the CPU ("cpu" bounds, "cpuacct" counts) only when it has a limit that needs them.
    """

    def __init__(self, kind: str, folders: "dict[str, tuple[str, str]]") -> None:
        """`folders`: controller -> (parent folder, own folder's name). The folder must exist."""
        self.kind = kind
        self.limits = V2 if kind == "v2" else V1
        self.controllers = tuple(folders)
        self._places = dict(folders)
        self._parents = {place: _open_dir(place[0]) for place in set(folders.values())}
        self._own = {place: _open_dir(place[1], parent) for place, parent in self._parents.items()}

    def create(self, box: str) -> "dict[str, int]":
        """Makes the folders of one sandbox, without limits as yet; descriptors of them by controller."""
        return self._make(box, [name for name in self.controllers if self.kind == "v2" or name not in _LATE_IN_V1])

    def create_late(self, box: str, *, bounds_cpu: bool, counts_cpu: bool) -> "dict[str, int]":
        """The folders that only this sandbox needs. It enters them by itself. Version 2 has none."""
        wanted = [name for name, is_wanted in (("cpu", bounds_cpu), ("cpuacct", counts_cpu)) if is_wanted]
        return self._make(box, [name for name in wanted if name in self.controllers and self.kind == "v1"])

    def _make(self, box: str, controllers: "list[str]") -> "dict[str, int]":
        opened: dict[tuple[str, str], int] = {}
        try:
            for place in dict.fromkeys(self._places[name] for name in controllers):
                os.mkdir(box, dir_fd=self._own[place])
                opened[place] = _open_dir(box, self._own[place])
        except BaseException:
            for descriptor in opened.values():
                os.close(descriptor)
            self.remove(box)
            raise
        return {name: opened[self._places[name]] for name in controllers}

    def limit(
        self, descriptors: "dict[str, int]", memory_bytes: int, num_pids: int, num_cpus: "float | None" = None
    ) -> None:
        """Sets the limits of a sandbox whose folders `create` and `create_late` made, or sets them anew."""
        if "memory" in descriptors:
            self._set_memory(descriptors["memory"], memory_bytes)
        if "pids" in descriptors:
            write_value(descriptors["pids"], "pids.max", str(num_pids))
        if num_cpus is not None:
            self._set_cpu(descriptors["cpu"], round(num_cpus * CPU_PERIOD_US))

    def remove(self, box: str) -> bool:
        """Removes a sandbox's folders; False while the kernel still counts a process in one of them."""
        gone = True
        for own in self._own.values():
            try:
                os.rmdir(box, dir_fd=own)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                gone = False
        return gone

    def close(self) -> None:
        """Removes the host's own folder, which must be empty by now."""
        for (_, own), parent in self._parents.items():
            with contextlib.suppress(OSError):  # a sandbox's folder was busy to the end: the next start removes both
                os.rmdir(own, dir_fd=parent)

    def close_descriptors(self) -> None:
        """For a process that was forked from the host and has no business here."""
        for descriptor in (*self._parents.values(), *self._own.values()):
            os.close(descriptor)

    def _set_memory(self, directory: int, memory_bytes: int) -> None:
        try:
            write_value(directory, self.limits["memory"].limit_file, str(memory_bytes))
        except OSError as error:
            if self.kind == "v2" or error.errno != errno.EINVAL:
                raise
            write_value(directory, "memory.memsw.limit_in_bytes", "-1")  # the older, lower one of both together
            write_value(directory, self.limits["memory"].limit_file, str(memory_bytes))
        swap = ("memory.swap.max", "0") if self.kind == "v2" else ("memory.memsw.limit_in_bytes", str(memory_bytes))
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap accounting
            write_value(directory, *swap)

    def _set_cpu(self, directory: int, quota_us: int) -> None:
        if self.kind == "v2":
            write_value(directory, "cpu.max", f"{quota_us} {CPU_PERIOD_US}")
            return
        write_value(directory, "cpu.cfs_period_us", str(CPU_PERIOD_US))
        try:
            write_value(directory, "cpu.cfs_quota_us", str(quota_us))
        except OSError as error:
            if error.errno != errno.EINVAL:  # more than a group above has, which then is the bound
                raise


def _open_dir(path: str, dir_fd: "int | None" = None) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)


def write_value(directory: int, name: str, value: str) -> None:
    """Writes a kernel setting: the file `name` in an open directory. Raises OSError when the kernel refuses it."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)


def enter(directory: int) -> None:
    """Moves this process, which has one thread, into a control group. Raises OSError."""
    try:
        # Version 1. To move a thread of its own the kernel takes no lock that the whole machine's forks share; for a
        # process it does, and waits for a grace period of up to 20 ms, one caller after the other.
        write_value(directory, "tasks", "0")
    except FileNotFoundError:
        write_value(directory, "cgroup.procs", "0")


def start_time(pid: int) -> "int | None":
    """Clock ticks after boot at which the process started, which with the pid is a unique name; None for the dead.

    A zombie is dead: whoever should reap it may take forever.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def folder_name(pid: int) -> str:
    """The name of the folder that the host with this pid makes for itself."""
    return f"{PREFIX}{os.stat(_OWN + '/ns/pid').st_ino}-{pid}-{start_time(pid)}"


def _is_dead(name: str) -> bool:
    parts = name.removeprefix(PREFIX).split("-")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return False
    namespace, pid, started = map(int, parts)
    return namespace == os.stat(_OWN + "/ns/pid").st_ino and start_time(pid) != started


def reap_dead() -> int:
    """Removes the folders of dead hosts wherever we would make ours; how many.

    Only folders without processes go; nothing is ever killed here.
    """
    num_removed = 0
    for parent in {path for paths in candidate_parents().values() for path in paths}:
        for name in os.listdir(parent):
            if name.startswith(PREFIX) and _is_dead(name):
                folder = f"{parent}/{name}"
                with contextlib.suppress(
                    OSError
                ):  # somebody else reaps it at this moment, or its last process is dying
                    for box in [entry.name for entry in os.scandir(folder) if entry.is_dir()]:
                        os.rmdir(f"{folder}/{box}")
                    os.rmdir(folder)
                    num_removed += 1
    return num_removed


def reap_host(pid: int, patience_s: float) -> None:
    """`reap_dead`, until nothing of this host is left: its sandboxes end a moment after it does."""
    deadline = time.monotonic() + patience_s
    while True:
        reap_dead()
        parents = {path for paths in candidate_parents().values() for path in paths}
        left = [name for parent in parents for name in os.listdir(parent) if name.split("-")[2:3] == [str(pid)]]
        if not any(name.startswith(PREFIX) for name in left) or time.monotonic() > deadline:
            return
        time.sleep(_POLL_S)


def _mounts() -> "dict[str, str]":
    """Mount points by what is there: "v2", or the name of a version 1 controller."""
    found: dict[str, str] = {}
    with open(_OWN + "/mountinfo", encoding="utf-8", errors="surrogateescape") as mountinfo:
        for line in mountinfo:
            left, _, right = line.partition(" - ")
            kind, _, options = right.split(" ", 2)
            point = left.split(" ")[4]
            if kind == "cgroup2":
                found.setdefault("v2", point)
            elif kind == "cgroup":
                for controller in set(options.strip().split(",")) & {"memory", "pids", *_LATE_IN_V1}:
                    found.setdefault(controller, point)
    return found


def _memberships() -> "dict[str, str]":
    """This process's path in every hierarchy, by the same keys as `_mounts`."""
    found = {}
    with open(_OWN + "/cgroup", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            number, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in ["v2"] if number == "0" else controllers.split(","):
                found[controller] = path
    return found


def candidate_parents() -> "dict[str, list[str]]":
    """Folders under which a host may try to make its own, best first, by "v2" and version 1 controller.

    Version 2 forbids controllers below a group that holds processes, so a group beside ours is as good as one below.
    """
    memberships = _memberships()
    found: dict[str, list[str]] = {}
    for key, point in _mounts().items():
        here = (point + memberships.get(key, "/")).rstrip("/")
        # inside a container the membership may name a path that is not visible here; then the mount point is ours
        options = [here, os.path.dirname(here)] if key == "v2" else [here]
        found[key] = [path for path in [*options, point] if path.startswith(point) and os.path.isdir(path)]
    return found


def detect(pid: int) -> "Cgroups | None":
    """Makes the host's folders where the machine lets us, version 2 first; None where it does not."""
    parents = candidate_parents()
    name = folder_name(pid)
    for parent in parents.get("v2", []):
        if controllers := _make_v2(parent, name):
            return Cgroups("v2", dict.fromkeys(controllers, (parent, name)))
    folders: dict[str, tuple[str, str]] = {}
    for controller in ("memory", "pids", *_LATE_IN_V1):
        for parent in parents.get(controller, []):
            # cpu and cpuacct are one hierarchy on most machines
            if (parent, name) in folders.values() or _make_folder(f"{parent}/{name}"):
                folders[controller] = (parent, name)
                break
    return Cgroups("v1", folders) if folders else None


def _make_folder(path: str) -> bool:
    try:
        os.mkdir(path)
    except OSError:  # read-only, not ours, or no such hierarchy: try the next
        return False
    return True


def _make_v2(parent: str, name: str) -> "tuple[str, ...]":
    """A folder under `parent`, and the controllers that its children get; none, and no folder, unless memory and pids
    are among them. With the cpu controller every sandbox has the same weight, however many processes it runs."""
    folder = f"{parent}/{name}"
    if not _make_folder(folder):
        return ()
    here = _open_dir(folder)
    try:
        write_value(here, "cgroup.subtree_control", "+memory +pids")
        try:
            write_value(here, "cgroup.subtree_control", "+cpu")
        except OSError:  # many systems hand down the other two only
            return "memory", "pids"
        return "memory", "pids", "cpu"
    except OSError:  # the parent does not hand the controllers down
        os.rmdir(folder)
        return ()
    finally:
        os.close(here)
