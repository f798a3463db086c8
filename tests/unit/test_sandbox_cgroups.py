"""Whose control groups are removed, on folders that stand for a hierarchy."""

import errno
import os
import threading
from pathlib import Path

import pytest

from burnish.sandbox.process import cgroups

NAMESPACE = Path("/proc/self/ns/pid").stat().st_ino


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "candidate_parents", lambda: {"v2": [str(tmp_path)], "memory": [str(tmp_path)]})
    return tmp_path


def make(parent: Path, name: str) -> Path:
    (parent / name / "box").mkdir(parents=True)
    return parent / name


def place(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").resolve()


def dead_pid() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_the_folder_of_a_dead_host_goes(parent: Path) -> None:
    folder = make(parent, f"burnish-{NAMESPACE}-{dead_pid()}-12345")
    assert cgroups.reap_dead() == 1
    assert not folder.exists()


def test_a_living_host_keeps_its_folder(parent: Path) -> None:
    folder = make(parent, cgroups.folder_name(os.getpid()))
    assert cgroups.reap_dead() == 0
    assert folder.exists()


def test_a_pid_that_was_given_again_does_not_protect_the_dead(parent: Path) -> None:
    started = cgroups.start_time(os.getpid())
    assert started is not None
    folder = make(parent, f"burnish-{NAMESPACE}-{os.getpid()}-{started + 1}")
    assert cgroups.reap_dead() == 1
    assert not folder.exists()


@pytest.mark.parametrize("name", [f"burnish-{NAMESPACE + 1}-1-1", "burnish-x", "burnish-1-2", "other", "burnish-a-b-c"])
def test_what_cannot_be_judged_stays(parent: Path, name: str) -> None:
    folder = make(parent, name)
    assert cgroups.reap_dead() == 0
    assert folder.exists()


def test_a_folder_in_use_stays(parent: Path) -> None:
    folder = make(parent, f"burnish-{NAMESPACE}-{dead_pid()}-12345")
    (folder / "box" / "busy").touch()  # the kernel refuses to remove a group that holds a process
    assert cgroups.reap_dead() == 0
    assert (folder / "box").exists()


def test_there_is_no_start_time_without_a_living_process() -> None:
    assert cgroups.start_time(dead_pid()) is None
    zombie = os.fork()
    if zombie == 0:
        os._exit(0)
    os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
    assert cgroups.start_time(zombie) is None
    os.waitpid(zombie, 0)


def test_reaping_a_host_waits_for_its_sandboxes(parent: Path) -> None:
    pid = dead_pid()
    busy = make(parent, f"burnish-{NAMESPACE}-{pid}-12345") / "box" / "busy"
    busy.touch()
    timer = threading.Timer(0.05, busy.unlink)
    timer.start()
    cgroups.reap_host(pid, 5.0)
    timer.join()
    assert list(parent.iterdir()) == []


def test_version_two_is_left_when_it_hands_down_no_controllers(parent: Path) -> None:
    assert not cgroups._make_v2(str(parent), "burnish-x")  # there is no cgroup.subtree_control to write
    assert list(parent.iterdir()) == []


def test_limits_are_written_and_removed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    groups = cgroups.Cgroups("v1", {"pids": (str(tmp_path), "own")})
    descriptors = groups.create("box")
    assert [entry.name for entry in own.iterdir()] == ["box"]
    with pytest.raises(FileNotFoundError):  # an ordinary folder has no pids.max
        groups.limit(descriptors, 1 << 20, 5)
    for descriptor in set(descriptors.values()):
        os.close(descriptor)
    assert groups.remove("box") and list(own.iterdir()) == []
    groups.close()
    assert not own.exists()
    groups.close_descriptors()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("v2", {"memory.max": "1000", "memory.swap.max": "0", "pids.max": "5"}),
        ("v1", {"memory.limit_in_bytes": "1000", "memory.memsw.limit_in_bytes": "1000", "pids.max": "5"}),
    ],
)
def test_limits_of_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, expected: dict[str, str]
) -> None:
    """The kernel fills a new group with its settings; here a patched mkdir does."""

    real_mkdir = os.mkdir

    def mkdir(path: str, *, dir_fd: int) -> None:
        real_mkdir(path, dir_fd=dir_fd)
        folder = place(dir_fd) / path
        for name in expected:
            (folder / name).touch()

    folders = {"memory": (str(tmp_path), "own"), "pids": (str(tmp_path), "own" if kind == "v2" else "pids")}
    for _, own in folders.values():
        (tmp_path / own).mkdir(exist_ok=True)
    groups = cgroups.Cgroups(kind, folders)
    monkeypatch.setattr(os, "mkdir", mkdir)
    descriptors = groups.create("box")
    groups.limit(descriptors, 1000, 5)
    written = {}
    for controller in ("memory", "pids"):
        folder = place(descriptors[controller])
        written.update({file.name: file.read_text() for file in folder.iterdir() if file.read_text()})
    assert written == expected
    assert len(set(descriptors.values())) == (1 if kind == "v2" else 2)
    for descriptor in set(descriptors.values()):
        os.close(descriptor)
    groups.close_descriptors()


def kernel_files(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Every new folder gets these files, as the kernel would give it."""
    real_mkdir = os.mkdir

    def mkdir(path: str, *, dir_fd: int) -> None:
        real_mkdir(path, dir_fd=dir_fd)
        for name in names:
            (place(dir_fd) / path / name).touch()

    monkeypatch.setattr(os, "mkdir", mkdir)


def test_a_share_of_the_cpu_in_version_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    groups = cgroups.Cgroups("v2", dict.fromkeys(("memory", "pids", "cpu"), (str(tmp_path), "own")))
    kernel_files(monkeypatch, "memory.max", "memory.swap.max", "pids.max", "cpu.max")
    descriptors = groups.create("box")
    assert groups.create_late("box", bounds_cpu=True, counts_cpu=True) == {}
    groups.limit(descriptors, 1000, 5)
    assert (tmp_path / "own/box/cpu.max").read_text() == ""
    groups.limit(descriptors, 1000, 5, 1.5)
    assert (tmp_path / "own/box/cpu.max").read_text() == f"30000 {cgroups.CPU_PERIOD_US}"
    assert len(set(descriptors.values())) == 1
    os.close(descriptors["cpu"])
    groups.close_descriptors()


@pytest.mark.parametrize("own", [("cpu", "cpuacct"), ("both", "both")])
def test_version_one_joins_the_cpu_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: tuple[str, str]
) -> None:
    for name in {"memory", *own}:
        (tmp_path / name / "host").mkdir(parents=True)
    folders = {
        name: (f"{tmp_path}/{at}", "host") for name, at in (("memory", "memory"), ("cpu", own[0]), ("cpuacct", own[1]))
    }
    groups = cgroups.Cgroups("v1", folders)
    kernel_files(monkeypatch, "cpu.cfs_period_us", "cpu.cfs_quota_us")
    descriptors = groups.create("box")
    assert list(descriptors) == ["memory"]
    late = groups.create_late("box", bounds_cpu=True, counts_cpu=False)
    assert list(late) == ["cpu"]
    monkeypatch.setattr(groups, "_set_memory", lambda *_: None)
    groups.limit({**descriptors, **late}, 1000, 5, 0.05)
    box = tmp_path / own[0] / "host/box"
    assert (box / "cpu.cfs_quota_us").read_text() == "1000"
    assert (box / "cpu.cfs_period_us").read_text() == str(cgroups.CPU_PERIOD_US)
    both = groups.create_late("other", bounds_cpu=True, counts_cpu=True)
    assert list(both) == ["cpu", "cpuacct"] and (len(set(both.values())) == 1) == (own[0] == own[1])
    for descriptor in {*descriptors.values(), *late.values(), *both.values()}:
        os.close(descriptor)
    groups.close_descriptors()


def test_more_cpu_than_a_group_above_has_is_bounded_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    groups = cgroups.Cgroups("v1", {"cpu": (str(tmp_path), "own")})
    kernel_files(monkeypatch, "cpu.cfs_period_us", "cpu.cfs_quota_us")
    descriptors = groups.create_late("box", bounds_cpu=True, counts_cpu=False)

    def refuse(number: int) -> None:
        def write(directory: int, name: str, value: str) -> None:
            if name == "cpu.cfs_quota_us":
                raise OSError(number, "no")

        monkeypatch.setattr(cgroups, "write_value", write)

    refuse(errno.EINVAL)
    groups.limit(descriptors, 1000, 5, 64.0)
    refuse(errno.EACCES)
    with pytest.raises(OSError, match="no"):
        groups.limit(descriptors, 1000, 5, 64.0)
    os.close(descriptors["cpu"])
    groups.close_descriptors()


@pytest.mark.parametrize(("refused", "expected"), [((), ("memory", "pids", "cpu")), (("+cpu",), ("memory", "pids"))])
def test_the_cpu_controller_is_welcome_and_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    def write(directory: int, name: str, value: str) -> None:
        assert name == "cgroup.subtree_control"
        if value in refused:
            raise OSError(errno.ENOENT, "no such controller")

    monkeypatch.setattr(cgroups, "write_value", write)
    assert cgroups._make_v2(str(tmp_path), "burnish-x") == expected


def test_one_hierarchy_for_two_controllers_is_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("memory", "both"):
        (tmp_path / name).mkdir()
    both = [f"{tmp_path}/both"]
    parents = {"memory": [f"{tmp_path}/memory"], "cpu": both, "cpuacct": both}
    monkeypatch.setattr(cgroups, "candidate_parents", lambda: parents)
    groups = cgroups.detect(os.getpid())
    assert groups is not None and groups.controllers == ("memory", "cpu", "cpuacct")
    groups.close()
    assert not any(entry for folder in tmp_path.iterdir() for entry in folder.iterdir())
    groups.close_descriptors()


def test_the_place_beside_ours_is_tried_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "user.slice" / "app.scope").mkdir(parents=True)
    monkeypatch.setattr(cgroups, "_mounts", lambda: {"v2": str(tmp_path)})
    monkeypatch.setattr(cgroups, "_memberships", lambda: {"v2": "/user.slice/app.scope"})
    here = f"{tmp_path}/user.slice/app.scope"
    assert cgroups.candidate_parents() == {"v2": [here, f"{tmp_path}/user.slice", str(tmp_path)]}
    monkeypatch.setattr(cgroups, "_memberships", lambda: {"v2": "/not/visible/here"})
    assert cgroups.candidate_parents() == {"v2": [str(tmp_path)]}
