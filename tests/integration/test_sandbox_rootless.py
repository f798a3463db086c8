"""The process backend without privileges, and where the machine refuses it."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import burnish

pytestmark = pytest.mark.namespaces

UNPRIVILEGED = 54321
SOURCE = str(Path(burnish.__file__).parents[1])
SUITE = """
import asyncio, json, sys
from burnish.sandbox import make_backend
from burnish.sandbox.conformance import CHECKS, run_conformance

SLOW = {"siblings_do_not_meet", "a_fork_bomb_is_bounded", "commands_of_a_sandbox_may_overlap", "a_busy_loop_times_out"}
ONLY = set(sys.argv[1:])  # or all
checks = tuple(check for check in CHECKS if check.name in ONLY or not ONLY and check.name not in SLOW)
results = asyncio.run(run_conformance(lambda: make_backend("process"), checks=checks))
print(json.dumps([[result.name, result.status, result.reason] for result in results]))
"""
CREATE = """
import asyncio
from burnish.errors import UserError
from burnish.sandbox.process.backend import ProcessBackend

async def main():
    async with ProcessBackend() as backend:
        await backend.create()

try:
    asyncio.run(main())
except UserError as error:
    print(error)
"""

DEEP = """
import asyncio
from burnish.observe.emit import attached
from burnish.sandbox.process.backend import ProcessBackend

async def main():
    seen = []
    async with ProcessBackend(pool=0) as backend, await backend.create() as box:
        with attached(seen.append):
            for number in range(120):
                await box.commands.run(f"mkdir -p d; rm -rf d/* e; touch d/f{number}; mkdir e; touch e/{number}")
                await (await box.snapshot()).release()
        assert len(box.generation.stack) < 100
        print((await box.commands.run("ls -A d e")).stdout)
    print([event["cause"] for event in seen if event["event"] == "sandbox.squash"])

asyncio.run(main())
"""


def system_python() -> str:
    """A Python that everybody may run: the one that runs the tests may lie in root's home."""
    path = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if path is None:
        pytest.skip("no python3 outside home directories")
    version = subprocess.run([path, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True)
    if version.stdout.strip() != b"True" or not os.access(SOURCE, os.R_OK):
        pytest.skip(f"{path} is older than 3.11")
    return path


def environment() -> dict[str, str]:
    return {"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_suite_passes_without_privileges() -> None:
    if os.geteuid() != 0:
        pytest.skip("the contract test runs without privileges already")
    done = subprocess.run(
        [system_python(), "-W", "error", "-c", SUITE],
        user=UNPRIVILEGED,
        group=UNPRIVILEGED,
        extra_groups=[],
        env=environment(),
        cwd="/",
        capture_output=True,
        timeout=300,
    )
    if b"UserError" in done.stderr:
        pytest.skip(done.stderr.decode()[-300:])
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    results = json.loads(done.stdout)
    failed = {name: reason for name, status, reason in results if status == "failed"}
    assert failed == {}
    passed = {name for name, status, _ in results if status == "passed"}
    assert {"a_memory_hog_is_stopped", "the_supervisor_is_out_of_reach", "there_are_no_capabilities"} <= passed


def test_deep_stacks_are_squashed_without_privileges() -> None:
    if os.geteuid() != 0:
        pytest.skip("test_sandbox_squash.py runs without privileges already")
    done = subprocess.run(
        [system_python(), "-W", "error", "-c", DEEP],
        user=UNPRIVILEGED, group=UNPRIVILEGED, extra_groups=[], env=environment(), cwd="/", capture_output=True,
        timeout=120, text=True,
    )  # fmt: skip
    if "UserError" in done.stderr:
        pytest.skip(done.stderr[-300:])
    assert done.returncode == 0, done.stderr[-2000:]
    files, causes = done.stdout.splitlines()
    assert files == str(b"d:\nf119\n\ne:\n119\n")
    assert set(ast.literal_eval(causes)) == {""}


def test_root_without_capabilities_gives_nothing_of_root_away() -> None:
    """As in a container: the sandbox's user is then, to the machine's files, the one who owns /proc/sys."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.geteuid() != 0:
        pytest.skip("no root, or no setpriv(1), to begin with")
    kept = "-all,+chown,+dac_override,+fowner,+kill,+setgid,+setuid,+setpcap,+mknod,+setfcap"  # most of Docker's
    names = ["no_kernel_setting_can_be_written", "kernel_internals_cannot_be_read", "kernel_settings_are_closed",
             "system_directories_are_read_only", "the_user_is_nobody_special"]  # fmt: skip
    done = subprocess.run(
        [setpriv, "--inh-caps=-all", f"--bounding-set={kept}", system_python(), "-c", SUITE, *names],
        env=environment(),
        cwd="/",
        capture_output=True,
        timeout=60,
    )
    if b"UserError" in done.stderr:
        pytest.skip(done.stderr.decode()[-300:])
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    results = {name: (status, reason) for name, status, reason in json.loads(done.stdout)}
    assert results == dict.fromkeys(names, ("passed", ""))


def test_a_machine_that_refuses_says_what_to_do() -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare(1) to make such a machine with")
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
    done = subprocess.run(
        [unshare, "--user", "--map-root-user", "sh", "-c", script, system_python(), CREATE],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unshare failed" in done.stderr or "cannot create" in done.stderr:
        pytest.skip(done.stderr)
    assert "sandbox: this machine cannot run it: unshare(CLONE_NEWUSER | CLONE_NEWNS): " in done.stdout, done.stderr
    assert "fix: user namespaces are off: sysctl -w user.max_user_namespaces=10000" in done.stdout


def test_a_process_can_begin_in_a_control_group() -> None:
    """The clone that version 2 uses; in a process of its own, since this one may have threads."""
    [mount] = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if "cgroup2" in line] or [
        ""
    ]
    group = Path(mount, f"burnish-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no writable cgroup version 2: {error}")
    script = (
        "import os, sys\nfrom burnish.sandbox.process import syscalls\n"
        "pid = syscalls.clone_into_cgroup(0, os.open(sys.argv[1], os.O_RDONLY))\n"
        "if pid == 0:\n    os.write(1, open('/proc/self/cgroup', 'rb').read())\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    try:
        done = subprocess.run([sys.executable, "-c", script, str(group)], capture_output=True, text=True, check=True)
    finally:
        group.rmdir()
    assert f"0::/{group.name}\n" in done.stdout
