"""What stands in /proc of a sandbox in place of the machine's."""

import builtins
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burnish.sandbox.process import shown


def test_memory_is_what_the_limit_says() -> None:
    lines = dict(line.split(":") for line in shown.meminfo(256 << 20).splitlines())
    assert lines["MemTotal"].split() == lines["MemAvailable"].split() == lines["MemFree"].split() == ["262144", "kB"]
    assert lines["SwapTotal"].split() == ["0", "kB"]


def test_processors_are_as_many_as_shown_and_the_machine_started_when_it_did() -> None:
    text = shown.processors(2, "cpu  9 9 9\ncpu0 9 9\nintr 5 5\nbtime 1764000000\nprocesses 3\n")
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["cpu", "cpu0", "cpu1"]
    assert "btime 1764000000" in lines and "9" not in text


def test_files_of_the_kernel_are_masked_where_its_owner_would_be_inside() -> None:
    ordinary = shown.masked_files(user_owns_proc=False)
    owner = shown.masked_files(user_owns_proc=True)
    assert set(ordinary) <= set(owner)
    assert {name for name in ("keys", "timer_list", "kmsg", "slabinfo") if Path("/proc", name).exists()} <= set(owner)
    assert not {"meminfo", "cpuinfo", "stat", "version", "self", "mounts"} & set(owner)


@pytest.mark.parametrize(
    ("paranoid", "restrict", "masked"),
    [(b"1", b"0", True), (b"-1", b"0", True), (b"2", b"0", False), (b"1", b"1", False)],
)
def test_addresses_are_masked_where_everybody_sees_them(
    monkeypatch: pytest.MonkeyPatch, paranoid: bytes, restrict: bytes, masked: bool
) -> None:
    settings = {"perf_event_paranoid": paranoid, "kptr_restrict": restrict}
    real: Callable[..., Any] = builtins.open

    def fake(path: str, *args: Any, **kwargs: Any) -> Any:
        name = str(path).rpartition("/")[2]
        return io.BytesIO(settings[name]) if name in settings else real(path, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", fake)
    assert ("kallsyms" in shown.masked_files(user_owns_proc=False)) == masked


def test_files_are_made_once_for_a_value_and_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shown, "_MADE", str(tmp_path))
    monkeypatch.setattr(shown, "_MAX_FILES", 3)
    files = shown.ShownFiles()
    assert files.need(1 << 20, None) == {"meminfo": "meminfo-1048576"}
    first = (tmp_path / "meminfo-1048576").stat().st_ino
    assert files.need(1 << 20, 2) == {"meminfo": "meminfo-1048576", "stat": "stat-2"}
    assert (tmp_path / "meminfo-1048576").stat().st_ino == first
    for megabytes in range(2, 6):
        names = files.need(megabytes << 20, 2)
        assert all((tmp_path / name).exists() for name in names.values())
    assert len(list(tmp_path.iterdir())) == 3
