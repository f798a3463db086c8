"""The deny list, judged by running the program as the kernel would."""

import errno
import struct

import pytest

from burnish.sandbox.process import seccomp

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
NUMBERS = {  # name: (x86_64, aarch64)
    "read": (0, 63), "execve": (59, 221), "mount": (165, 40), "unshare": (272, 97), "ptrace": (101, 117),
    "bpf": (321, 280), "io_uring_setup": (425, 425), "clone": (56, 220), "clone3": (435, 435), "ioctl": (16, 29),
    "socket": (41, 198), "socketpair": (53, 199), "prlimit64": (302, 261), "setpriority": (141, 140),
}  # fmt: skip


def judge(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """The verdict of a classic BPF program on one call: an interpreter of the few instructions that it uses."""
    values = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, arch, 0, *values)
    instructions = list(struct.iter_unpack("=HBBI", program))
    at, loaded = 0, 0
    while True:
        code, if_true, if_false, constant = instructions[at]
        at += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("<I", data, constant)
        elif code == 0x54:
            loaded &= constant
        elif code == 0x06:
            return int(constant)
        else:
            holds = {0x15: loaded == constant, 0x35: loaded >= constant, 0x45: bool(loaded & constant)}[code]
            at += if_true if holds else if_false


class Judge:
    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.program = seccomp.build_program(machine)

    def __call__(self, name: str, *arguments: int) -> int:
        number = NUMBERS[name][0 if self.machine == "x86_64" else 1]
        return judge(self.program, ARCH[self.machine], number, *arguments)


@pytest.fixture(params=["x86_64", "aarch64"])
def verdict(request: pytest.FixtureRequest) -> Judge:
    return Judge(request.param)


def refused(number: int) -> int:
    return 0x00050000 | number


def test_ordinary_calls_pass(verdict: Judge) -> None:
    assert all(verdict(name) == ALLOW for name in ("read", "execve"))
    assert verdict("clone", 0x01200011) == ALLOW  # fork, as the C library calls it
    assert verdict("ioctl", 0, 0x5401) == ALLOW


@pytest.mark.parametrize("name", ["mount", "ptrace", "bpf", "io_uring_setup", "unshare"])
def test_listed_calls_are_refused(verdict: Judge, name: str) -> None:
    assert verdict(name) == refused(errno.EPERM)


def test_every_listed_number_is_refused_and_its_neighbours_are_not_by_accident() -> None:
    for column, machine in enumerate(("x86_64", "aarch64")):
        program = seccomp.build_program(machine)
        listed = {pair[column] for pair in seccomp._DENIED.values() if pair[column] is not None}
        by_argument = {number for number, _ in seccomp._argument_rules(column)} | {seccomp._CLONE3[column]}
        for number in range(600):
            expected = refused(errno.EPERM) if number in listed else ALLOW
            if number not in by_argument:
                assert judge(program, ARCH[machine], number) == expected, (machine, number)


@pytest.mark.parametrize("flag", [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000])
def test_a_clone_into_any_new_namespace_is_refused(verdict: Judge, flag: int) -> None:
    assert verdict("clone", flag | 17) == refused(errno.EPERM)


def test_clone3_seems_not_to_exist(verdict: Judge) -> None:
    assert verdict("clone3") == refused(errno.ENOSYS)


def test_only_three_socket_families_exist(verdict: Judge) -> None:
    for family in range(64):
        expected = ALLOW if family in (1, 2, 10) else refused(errno.EAFNOSUPPORT)
        assert verdict("socket", family) == verdict("socketpair", family) == expected


def test_a_terminal_cannot_be_typed_into(verdict: Judge) -> None:
    assert verdict("ioctl", 0, 0x5412) == verdict("ioctl", 0, 0x541C) == refused(errno.EPERM)


@pytest.mark.parametrize(
    "number",
    [
        0xC0045877, 0xC0045878, 0xC0185879,  # FIFREEZE, FITHAW, FITRIM
        0x40086602, 0x401C5820, 0x801C581F,  # FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_FSGETXATTR
        0xC020660B, 0x40806685, 0x800C6613, 0xC0506617,  # FIEMAP, verity, fscrypt
        0xC028660F, 0x40106610, 0x6611,  # ext4: move extents, resize, swap the boot loader's inode
        0x40049409, 0x4020940D, 0xD0009411, 0x5000940F,  # FICLONE, FICLONERANGE, btrfs: search the tree, subvolumes
        0xF501, 0x82307201, 0x5800 | 1 << 30,  # F2FS, FAT, XFS
    ],
)  # fmt: skip
def test_file_system_ioctls_are_refused_as_by_one_that_has_none(verdict: Judge, number: int) -> None:
    assert verdict("ioctl", 3, number) == refused(errno.EOPNOTSUPP)


@pytest.mark.parametrize("number", [0x5401, 0x5413, 0x541B, 0x5421, 0x8912, 0x80045200, 0x80086601, 1, 2, 0xFFFF0000])
def test_other_ioctls_pass(verdict: Judge, number: int) -> None:
    """Terminals, FIONREAD, FIONBIO, sockets, the entropy count, lsattr."""
    assert verdict("ioctl", 3, number) == ALLOW


def test_calls_that_name_the_supervisor_are_refused(verdict: Judge) -> None:
    assert verdict("prlimit64", 1) == refused(errno.EPERM)
    assert verdict("prlimit64", 0) == verdict("prlimit64", 11) == ALLOW
    assert verdict("setpriority", 0, 1, 19) == refused(errno.EPERM)
    assert verdict("setpriority", 2, 0, 19) == refused(errno.EPERM)
    assert verdict("setpriority", 0, 0, 19) == ALLOW


def test_a_foreign_architecture_is_killed(verdict: Judge) -> None:
    other = ARCH["aarch64" if verdict.machine == "x86_64" else "x86_64"]
    assert judge(verdict.program, other, 0) == KILL
    assert judge(verdict.program, 0x40000003, 0) == KILL  # 32-bit calls of an x86 program


def test_the_x32_calls_do_not_exist() -> None:
    program = seccomp.build_program("x86_64")
    assert judge(program, ARCH["x86_64"], 0x40000000) == refused(errno.ENOSYS)


def test_an_unknown_processor_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        seccomp.build_program("pdp11")
