"""The probes of the isolation checks where nothing is walled off: each must find an open door, or it proves nothing."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from burnish.sandbox.conformance import probes

pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has the rights that the walls take away"),
]

# What this machine may lack whatever we do: a kernel without modules or kexec, a container that keeps a capability.
MAY_BE_CLOSED = {
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "bpf", "perf_event_open", "swapon",
    "swapoff", "reboot", "acct", "syslog", "settimeofday", "clock_settime", "quotactl", "open_by_handle_at", "ptrace",
    "unshare_time", "fanotify_init", "userfaultfd", "userfaultfd_user", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "process_madvise", "keyctl", "add_key", "request_key", "kcmp", "pidfd_getfd",
}  # fmt: skip
MUST_BE_OPEN = {
    "mount", "umount2", "pivot_root", "chroot", "setns", "open_tree", "fsopen", "unshare_user", "unshare_mount",
    "unshare_net", "clone_user", "clone3", "name_to_handle_at", "process_vm_readv",
}  # fmt: skip


def outside(source: str) -> dict[str, int]:
    """Runs a probe as root, in namespaces that are thrown away so that nothing is harmed."""
    unshare = shutil.which("unshare")
    assert unshare is not None
    new = ["--mount", "--pid", "--net", "--ipc", "--uts", "--mount-proc", "--fork"]
    inner = ["sh", "-c", '"$0" -I -c "$1"; exit $?', sys.executable, source]  # so that the probe is not pid 1 itself
    done = subprocess.run([unshare, *new, *inner], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-1000:]
    answers: dict[str, int] = json.loads(done.stdout)
    return answers


def test_dangerous_calls_are_let_through_outside() -> None:
    answers = outside(probes.CALLS)
    closed = {name for name, number in answers.items() if number in probes.WALLS}
    assert closed <= MAY_BE_CLOSED
    assert answers.keys() >= MUST_BE_OPEN | MAY_BE_CLOSED


def test_odd_families_exist_outside() -> None:
    answers = outside(probes.FAMILY_PROBE)
    assert answers["16"] == answers["17"] == answers["high bits"] == 0  # netlink and packet
    assert answers["pair of netlink"] not in (probes.NO_SUCH_FAMILY, *probes.WALLS)


def test_terminal_calls_reach_the_kernel_outside() -> None:
    answers = outside(probes.TERMINAL)
    assert all(number not in probes.WALLS for name, number in answers.items() if name.startswith("TIOC"))


def test_pid_1_is_in_reach_outside() -> None:
    answers = outside(probes.SUPERVISOR)
    closed = {name for name, number in answers.items() if number in probes.WALLS}
    assert closed <= {
        "write loginuid",
        "write uid_map",
        "ptrace",
        "kcmp",
        "process_vm_readv",
        "read syscall",
        "read stack",
    }


def test_settings_can_be_opened_outside() -> None:
    assert outside(probes.SETTINGS)["number of files"] > 100
