"""The seccomp deny list as a classic BPF program.

A deny list and not an allow list: candidates run any program of the host, and what an allow list forgets shows up as a
broken library. Namespaces, the empty capability set and the read-only root carry the isolation; the filter takes away
the kernel's largest and least needed surfaces, and what would reach the supervisor (pid 1) under a shared uid.
"""

import errno
import struct
from collections.abc import Iterator

from burnish.sandbox.process import syscalls

# name: (x86_64, aarch64); None where the processor has no such call
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "unshare": (272, 97), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "open_tree": (428, 428), "move_mount": (429, 429), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "create_module": (174, None), "query_module": (178, None),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "lookup_dcookie": (212, 18),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "acct": (163, 89), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "nfsservctl": (180, 42), "vhangup": (153, 58),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
}  # fmt: skip
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_IOCTL = (16, 29)
_SOCKETS = ((41, 198), (53, 199))  # socket, socketpair
_FIRST_ARGUMENT_IS_PID = (
    (302, 261), (142, 118), (144, 119), (203, 122), (314, 274),
)  # fmt: skip  # prlimit64, sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr
_SETPRIORITY, _IOPRIO_SET = (141, 140), (251, 30)
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3

_NAMESPACE_FLAGS = sum(syscalls.NAMESPACES.values())
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # push characters into a terminal: the classic way out of a su session
# Second byte of an ioctl's number: whose it is. X, f and v are what file systems share and what ext4 and XFS add
# (FIFREEZE, FITRIM, FS_IOC_SETFLAGS, FIEMAP, fscrypt, verity); then btrfs with FICLONE, F2FS, CIFS, FAT, Ceph, NILFS.
# EOPNOTSUPP is what a file system without them answers, so that copying programs go on without.
_FILE_SYSTEM_IOCTLS = (0x58, 0x66, 0x76, 0x94, 0xF5, 0xCF, 0x72, 0x97, 0x6E)
_FS_IOC_GETFLAGS = 0x80086601  # lsattr; reads only
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_SUPERVISOR_PID = 1

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGUMENTS = 0, 4, 16

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant
_ALLOWED: _Instruction = (_RETURN, 0, 0, _ALLOW)


def build_program(machine: str = syscalls.MACHINE) -> bytes:
    """The filter for one processor: 8 bytes per instruction. Raises KeyError for a processor without a table.

    A foreign architecture (32-bit calls) kills the process; a denied call answers EPERM, clone3 ENOSYS so that the C
    library falls back to clone, whose flags can be read here.
    """
    column = {"x86_64": 0, "aarch64": 1}[machine]
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32_BIT), _refusal(errno.ENOSYS)]
    rules = {number: [_refusal(errno.EPERM)] for number in _denied_numbers(column)}
    rules[_CLONE3[column]] = [_refusal(errno.ENOSYS)]
    rules.update(_argument_rules(column))
    program += _search_tree(sorted(rules.items()))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _search_tree(rules: "list[tuple[int, list[_Instruction]]]") -> list[_Instruction]:
    """Finds the call's number in a sorted list; what is not found is allowed.

    A tree and not a chain, because the kernel runs the filter once for every call number when it is installed.
    """
    if not rules:
        return [_ALLOWED]
    if len(rules) == 1:
        [(number, block)] = rules
        return [(_EQUAL, 0, len(block), number), *block, _ALLOWED]
    middle = len(rules) // 2
    left, right = _search_tree(rules[:middle]), _search_tree(rules[middle:])
    return [(_AT_LEAST, len(left), 0, rules[middle][0]), *left, *right]


def _denied_numbers(column: int) -> list[int]:
    return [number for pair in _DENIED.values() if (number := pair[column]) is not None]


def _argument_rules(column: int) -> Iterator[tuple[int, list[_Instruction]]]:
    """Calls that are refused for some arguments only: the number, and a block that ends in a verdict."""
    yield _CLONE[column], [_argument(0), (_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), *_verdict(errno.EPERM)]
    yield _IOCTL[column], _ioctl_rule()
    for socket in _SOCKETS:
        yield socket[column], _refuse_unless(0, _FAMILIES, errno.EAFNOSUPPORT)
    for call in _FIRST_ARGUMENT_IS_PID:
        yield call[column], _refuse_if(0, (_SUPERVISOR_PID,))
    for call, every_process_of_user in ((_SETPRIORITY, _PRIO_USER), (_IOPRIO_SET, _IOPRIO_WHO_USER)):
        refuse_user = [_argument(0), (_EQUAL, 0, 1, every_process_of_user), _refusal(errno.EPERM)]
        yield call[column], [*refuse_user, *_refuse_if(1, (_SUPERVISOR_PID,))]


def _ioctl_rule() -> list[_Instruction]:
    lsattr: list[_Instruction] = [(_EQUAL, 0, 1, _FS_IOC_GETFLAGS), _ALLOWED]
    terminal = _refuse_equal((_TIOCSTI, _TIOCLINUX), errno.EPERM)
    owners = _refuse_equal(tuple(owner << 8 for owner in _FILE_SYSTEM_IOCTLS), errno.EOPNOTSUPP)
    return [_argument(1), *lsattr, *terminal, (_AND, 0, 0, 0xFF00), *owners, _ALLOWED]


def _argument(index: int) -> _Instruction:
    """Loads the low 32 bits, which is all that the kernel looks at in every argument tested here."""
    return (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * index)


def _refusal(number: int) -> _Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _verdict(number: int) -> list[_Instruction]:
    return [_refusal(number), _ALLOWED]


def _refuse_if(index: int, values: tuple[int, ...]) -> list[_Instruction]:
    return [_argument(index), *_refuse_equal(values, errno.EPERM), _ALLOWED]


def _refuse_equal(values: tuple[int, ...], number: int) -> list[_Instruction]:
    """For what is loaded; goes on behind when it is none of them."""
    block: list[_Instruction] = []
    for left, value in zip(range(len(values) - 1, -1, -1), values, strict=True):
        block.append((_EQUAL, left, 0 if left else 1, value))
    return [*block, _refusal(number)]


def _refuse_unless(index: int, values: tuple[int, ...], number: int) -> list[_Instruction]:
    block = [_argument(index)]
    for left, value in zip(range(len(values) - 1, -1, -1), values, strict=True):
        block.append((_EQUAL, left + 1, 0, value))
    return block + _verdict(number)
