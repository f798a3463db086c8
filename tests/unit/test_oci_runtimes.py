"""Which runtime is which, and what a container is told to be."""

import ast
import importlib
import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from burnish.errors import UserError
from burnish.sandbox.base import Level
from burnish.sandbox.oci import bundle, runtimes, shipped
from burnish.sandbox.oci.backend import OciBackend
from burnish.sandbox.oci.runtimes import find_runtime, level_of

SPEC: dict[str, Any] = {"memory_bytes": 100, "num_pids": 7, "args": ["python3"], "envs": {"A": "b"}, "uid": 5}


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("runsc", "gvisor"), ("/opt/bin/runsc", "gvisor"), ("runsc-kvm", "gvisor"), ("runc", "process"),
        ("crun", "process"), ("kata-runtime", "microvm"), ("krun", "microvm"), ("unheard-of", "process"),
    ],
)  # fmt: skip
def test_the_level_of_a_name(name: str, level: Level) -> None:
    assert level_of(name) == level == OciBackend(name).level


def test_names() -> None:
    assert OciBackend().name == "gvisor"
    assert OciBackend("/usr/bin/crun").name == "crun"


def a_program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_runtime_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="'runsc' is not installed") as caught:
        find_runtime("runsc")
    assert caught.value.fix is not None and "apt-get install runsc" in caught.value.fix


def test_a_runtime_takes_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match="takes root"):
        find_runtime(str(a_program(tmp_path, "runc")))


def test_options_of_a_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    gvisor = find_runtime(str(a_program(tmp_path, "runsc")))
    assert gvisor.has_own_kernel and [options[0] for options in gvisor.options] == [
        "--platform=systrap",
        "--platform=ptrace",
    ]
    crun = find_runtime(str(a_program(tmp_path, "crun")))
    assert crun.hide_cgroups and not crun.has_own_kernel
    assert runtimes._options("kata-runtime") == ((),)


async def test_a_missing_runtime_is_a_mistake_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with OciBackend("runsc") as backend:
        with pytest.raises(UserError, match="not installed"):
            await backend.create()
        with pytest.raises(UserError, match="not installed"):
            await backend.capabilities()


def test_the_configuration_gives_nothing_away() -> None:
    config = bundle.config(SPEC, ["/usr"], "/b/etc")
    process = config["process"]
    assert process["noNewPrivileges"] is True and "inheritable" not in process["capabilities"]
    assert {limit["type"]: limit["hard"] for limit in process["rlimits"]}["RLIMIT_NPROC"] == 7
    assert "network" not in [space["type"] for space in config["linux"]["namespaces"]]
    for mount in config["mounts"]:
        assert "nosuid" in mount["options"]
        assert mount["type"] != "bind" or {"ro", "nodev"} <= set(mount["options"])


def test_what_the_agent_imports_is_shipped_before_it() -> None:
    loaded: set[str] = set()
    for name in shipped.MODULES:
        for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(name)))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("burnish"):
                assert node.module in loaded or {f"{node.module}.{alias.name}" for alias in node.names} <= loaded, name
        loaded.add(name)


def test_the_shipped_program_is_plain_python() -> None:
    ast.parse(shipped.shipped_source())
    ast.parse(shipped.BOOTSTRAP)
