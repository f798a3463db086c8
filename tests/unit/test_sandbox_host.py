"""The host process without running one: what it loads, and what it says when the machine refuses."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import burnish
from burnish.sandbox.process import environment, refusals

HEAVY = ("asyncio", "threading", "subprocess", "dataclasses", "inspect", "pathlib", "logging", "pydantic")


def test_the_host_stays_small() -> None:
    """It is cloned for every sandbox: each module it loads is paid for every time (threading alone doubles a fork)."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import burnish.sandbox.process.host, json; "
        "print(json.dumps(sorted(sys.modules)))"
    )
    source = str(Path(burnish.__file__).parents[1])
    output = subprocess.run([sys.executable, "-I", "-S", "-c", code, source], capture_output=True, check=True).stdout
    loaded = json.loads(output)
    assert [name for name in HEAVY if name in loaded] == []
    assert [name for name in loaded if name.startswith("burnish") and ".process" not in name] == [
        "burnish", "burnish.sandbox",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "number", "expected"),
    [
        ({"user/max_user_namespaces": "0"}, errno.ENOSPC, "user.max_user_namespaces=10000"),
        ({"kernel/unprivileged_userns_clone": "0"}, errno.EPERM, "kernel.unprivileged_userns_clone=1"),
        ({}, errno.EPERM, "seccomp=unconfined"),
        ({}, errno.ENOSPC, "max_*_namespaces"),
        ({}, errno.EINVAL, "EINVAL"),
    ],
)
def test_a_refusal_names_the_fix(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], number: int, expected: str
) -> None:
    monkeypatch.setattr(refusals, "_sysctl", settings.get)
    with pytest.raises(refusals.MissingSupportError) as caught, refusals.explained("unshare(CLONE_NEWUSER)"):
        raise OSError(number, "no")
    assert caught.value.cause == "unshare(CLONE_NEWUSER): no"
    assert expected in caught.value.fix


def test_apparmor_is_named_to_users_without_privileges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_sysctl", {"kernel/apparmor_restrict_unprivileged_userns": "1"}.get)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "apparmor_restrict_unprivileged_userns=0" in refusals.explain(OSError(errno.EACCES, "denied"), "mount")


def test_the_first_refused_namespace_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_allowed", lambda flag: flag != 0x40000000)
    assert refusals.explain_clone(OSError(errno.EPERM, "no"), rootless=False).startswith("CLONE_NEWNET is refused: no")
    assert refusals.explain_clone(OSError(errno.ENOMEM, "full"), rootless=False).startswith("clone: full")


def test_an_old_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Release:
        release = "5.4.0-190-generic"

    monkeypatch.setattr(os, "uname", Release)
    with pytest.raises(refusals.MissingSupportError, match=r"5\.4\.0-190-generic is too old"):
        refusals.check_machine()


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("/usr", []), ("/usr/local", []), ("/opt/python", ["/opt/python"]), ("/", []), ("/home/me", [])],
)
def test_no_home_is_shown_for_an_interpreter(monkeypatch: pytest.MonkeyPatch, prefix: str, expected: list[str]) -> None:
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    assert environment.interpreter_prefixes() == expected
    path = environment.base_environment()["PATH"]
    assert path == "".join(f"{folder}/bin:" for folder in expected) + "/usr/local/bin:/usr/bin:/bin"
