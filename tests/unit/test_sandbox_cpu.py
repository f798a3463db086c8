"""The CPU time of a sandbox, on files that stand for a control group's, and which processors it is shown."""

import os
import time
from pathlib import Path

import pytest

from burnish.errors import UserError
from burnish.sandbox.asked import LEAST_NUM_CPUS, require_limits
from burnish.sandbox.process import cpu
from burnish.types import Limits


class Clock(cpu.GroupClock):
    """Tells what the test says."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.num_looks = 0

    def read_s(self) -> float:
        self.num_looks += 1
        return self.now_s


@pytest.mark.parametrize(
    ("version_2", "name", "content"),
    [
        (True, "cpu.stat", "usage_usec 7500000\nuser_usec 1\nsystem_usec 1\nnr_periods 0\n"),
        (False, "cpuacct.usage", "7500000000\n"),
    ],
)
def test_a_group_is_read_and_our_own_part_taken_off(tmp_path: Path, version_2: bool, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    directory = os.open(tmp_path, os.O_RDONLY)
    before = time.process_time()
    read = cpu.GroupClock(directory, version_2=version_2).read_s()
    assert 7.5 - time.process_time() <= read <= 7.5 - before
    os.close(directory)


def test_a_group_that_does_not_tell_is_an_error(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(FileNotFoundError):
        cpu.GroupClock(directory, version_2=True)
    os.close(directory)


def test_sampling_counts_children_that_were_waited_for() -> None:
    clock = cpu.SampledClock()
    before = clock.read_s()
    pid = os.fork()
    if pid == 0:
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
    assert clock.read_s() - before >= 0.05


def test_without_a_clock_nothing_is_known_or_bounded() -> None:
    time_used = cpu.CpuTime(None, None)
    assert not time_used.is_exact
    assert time_used.since(time_used.begin()) == 0.0
    assert time_used.over({1: 0.0}) == [] and time_used.patience_s() == float("inf")


def test_without_a_limit_the_clock_is_not_asked() -> None:
    clock = Clock()
    assert cpu.CpuTime(clock, None).over({1: 0.0}) == [] and clock.num_looks == 0


def test_commands_over_the_limit_are_named() -> None:
    clock = Clock()
    used = cpu.CpuTime(clock, 2.0)
    old = used.begin()
    clock.now_s += 1.5
    young = used.begin()
    assert used.over({7: old, 8: young}) == []
    clock.now_s += 0.5
    used.begin()  # a new command makes it look at once
    assert used.over({7: old, 8: young}) == [7]
    assert used.since(young) == 0.5


def test_nobody_looks_before_the_limit_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    clock = Clock()
    used = cpu.CpuTime(clock, 400.0)
    before = used.begin()
    assert used.over({7: before}) == []
    assert 90.0 < used.patience_s() <= 100.0  # four processors use up 400 s no sooner
    num_looks = clock.num_looks
    assert used.over({7: before}) == [] and clock.num_looks == num_looks


@pytest.mark.parametrize(("num_cpus", "shown"), [(None, None), (0.5, 1), (1.0, 1), (2.5, 3), (3.5, None), (64.0, None)])
def test_as_many_processors_are_shown_as_the_limit_needs(
    monkeypatch: pytest.MonkeyPatch, num_cpus: float | None, shown: int | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert cpu.num_shown(num_cpus) == shown


def test_neighbours_get_the_next_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 6, 7})
    assert [cpu.pick_processors(number, 1.5) for number in range(3)] == [{2, 3}, {6, 7}, {2, 3}]
    assert [cpu.pick_processors(number, 0.5) for number in range(4)] == [{2}, {3}, {6}, {7}]
    assert cpu.pick_processors(1, 2.5) == {7, 2, 3}
    assert cpu.pick_processors(9, 100.0) == {2, 3, 6, 7}


def test_a_limit_is_taken_where_it_is_declared_and_makes_sense() -> None:
    declared = {"limits.cpu", "limits.cpu_time"}
    require_limits(Limits(), (), "memory")
    require_limits(Limits(num_cpus=LEAST_NUM_CPUS, cpu_s=0.5), declared, "process")
    for limits in (Limits(num_cpus=1.0), Limits(cpu_s=1.0)):
        with pytest.raises(UserError, match="the memory backend cannot hold it"):
            require_limits(limits, (), "memory")
    for value in (0.0, -1.0, float("nan"), float("inf")):
        for limits, name in ((Limits(num_cpus=value), "num_cpus"), (Limits(cpu_s=value), "cpu_s")):
            with pytest.raises(UserError, match=f"limits.{name}"):
                require_limits(limits, declared, "process")
