"""Commands: what is a result, and that nothing is lost on the way in or out."""

import asyncio
import os

from burnish.errors import SandboxError
from burnish.sandbox.conformance.suite import LIMITS, Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check

_EVERY_BYTE = bytes(range(256))
_PROMPT_S = 5.0  # "at once", on a machine that may be busy
_OWN_VARIABLES = {"PATH", "HOME", "USER", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}  # the last four are set by shells


@check()
async def a_zero_exit_is_ok(bench: Bench) -> None:
    """A command that succeeds is ok, and nothing else is said about it."""
    result = await bench.box.commands.run(["true"])
    expect(result.ok and result.signal is None and not result.timed_out and result.limit_hit is None, tail(result))


@check()
async def a_non_zero_exit_is_a_result(bench: Bench) -> None:
    """A command that fails raises nothing."""
    result = await bench.box.commands.run(["false"])
    expect(result.exit_code == 1 and not result.ok and result.signal is None, tail(result))


@check("shell")
async def every_exit_code_is_kept(bench: Bench) -> None:
    """Exit codes arrive as they are, also those that shells give a meaning."""
    for code in (0, 1, 2, 125, 126, 127, 128, 137, 255):
        result = await bench.sh(f"exit {code}")
        expect(result.exit_code == code and result.signal is None, tail(result))


@check("shell")
async def a_signal_is_told_apart(bench: Bench) -> None:
    """Death by a signal is no exit code, and a quick one is no timeout."""
    for number in (9, 11, 15):
        result = await bench.sh(f"kill -{number} $$", timeout_s=_PROMPT_S)
        expect(result.signal == number and result.exit_code is None, tail(result))
        expect(not result.timed_out and result.limit_hit is None, tail(result))


@check()
async def a_missing_program_is_127(bench: Bench) -> None:
    """A program that does not exist is a result with the reason on stderr."""
    result = await bench.box.commands.run(["no-such-program-here"])
    expect(result.exit_code == 127 and b"no-such-program-here" in result.stderr, tail(result))


@check("shell", "files")
async def a_file_that_cannot_be_run_is_126(bench: Bench) -> None:
    """A file without the right to be run, and one that is no program, are results."""
    await bench.box.files.write("data", b"\x00\x01\x02")
    result = await bench.box.commands.run(["./data"])
    expect(result.exit_code == 126 and b"Permission denied" in result.stderr, tail(result))
    await bench.sh("chmod +x data")
    result = await bench.box.commands.run(["./data"])
    expect(result.exit_code == 126, tail(result))


@check("shell")
async def stdout_and_stderr_are_apart(bench: Bench) -> None:
    """The two streams do not mix."""
    result = await bench.sh("echo out; echo err >&2")
    expect(result.stdout == b"out\n" and result.stderr == b"err\n", tail(result))


@check("shell")
async def output_can_be_reopened(bench: Bench) -> None:
    """Programs that open /dev/stdout, /dev/stderr and /dev/stdin by name can do so."""
    result = await bench.box.commands.run("cat /dev/stdin > /dev/stdout; echo e > /dev/stderr", stdin=b"in")
    expect(result.stdout == b"in" and result.stderr == b"e\n", tail(result))


@check()
async def no_stdin_is_end_of_file(bench: Bench) -> None:
    """A program that reads without having been given input sees the end at once."""
    result = await bench.box.commands.run(["cat"], timeout_s=_PROMPT_S)
    expect(result.ok and result.stdout == b"", tail(result))


@check()
async def stdin_arrives_as_it_is(bench: Bench) -> None:
    """All byte values pass through stdin and stdout unchanged."""
    data = _EVERY_BYTE * 32
    result = await bench.box.commands.run(["cat"], stdin=data)
    expect(result.stdout == data, f"{len(data)} bytes went in, {len(result.stdout)} came out, or others")


@check("shell")
async def ten_megabytes_of_stdin(bench: Bench) -> None:
    """Large input is neither cut nor a deadlock."""
    result = await bench.box.commands.run("wc -c", stdin=bytes(10 << 20))
    expect(result.stdout.split() == [b"10485760"], tail(result))


@check()
async def input_may_be_ignored(bench: Bench) -> None:
    """A program that never reads its input is no error."""
    result = await bench.box.commands.run(["true"], stdin=bytes(10 << 20))
    expect(result.ok, tail(result))


@check()
async def arguments_are_not_interpreted(bench: Bench) -> None:
    """An argument vector meets no shell."""
    result = await bench.box.commands.run(["echo", "$HOME;", "`ls`", "*", "a  b"])
    expect(result.stdout == b"$HOME; `ls` * a  b\n", tail(result))


@check("shell")
async def arguments_arrive_as_they_are(bench: Bench) -> None:
    """Empty arguments, newlines, quotes, Unicode and bytes that are no UTF-8."""
    words = ["", "two words", "new\nline", "'\"\\", "-n", "ünïcödé \U0001f600", os.fsdecode(b"\xff\xfe")]
    result = await bench.box.commands.run(["printf", "%s|", *words])
    expect(result.stdout == b"".join(os.fsencode(word) + b"|" for word in words), tail(result))


@check("shell")
async def a_command_that_cannot_be_passed_is_a_result(bench: Bench) -> None:
    """A NUL, an unpaired surrogate or more than the kernel takes: exit code 126, and the sandbox lives on."""
    for word in ("a\0b", "\ud800", "x" * (3 << 20)):
        result = await bench.box.commands.run(["echo", word])
        expect(result.exit_code == 126, tail(result))
    expect((await bench.box.commands.run(["true"])).ok, "the sandbox did not answer afterwards")


@check("files")
async def the_working_directory_is_per_command(bench: Bench) -> None:
    """`cwd` holds for one command; a relative one starts at the working directory."""
    home = (await bench.box.commands.run(["pwd"])).stdout.strip()
    await bench.box.files.write("sub/file", b"")
    inside = await bench.box.commands.run(["pwd"], cwd="sub")
    expect(inside.stdout.strip() == home + b"/sub", tail(inside))
    expect((await bench.box.commands.run(["pwd"], cwd="/")).stdout == b"/\n", "an absolute cwd was not taken")
    expect((await bench.box.commands.run(["pwd"])).stdout.strip() == home, "cwd stuck to the next command")


@check("shell", "files")
async def an_impossible_working_directory_is_a_result(bench: Bench) -> None:
    """A missing, unreadable or non-directory cwd does not raise, and says what is wrong."""
    await bench.box.files.write("file", b"")
    await bench.sh("mkdir closed; chmod 0 closed")
    for cwd in ("missing", "file", "/root/missing", "a\0b"):
        result = await bench.box.commands.run(["true"], cwd=cwd)
        expect(result.exit_code in (126, 127) and bool(result.stderr), tail(result))


@check()
async def variables_are_per_command(bench: Bench) -> None:
    """`envs` reaches the command and not the next one."""
    result = await bench.box.commands.run(["env"], envs={"ONLY_HERE": "1 2"})
    expect(b"ONLY_HERE=1 2\n" in result.stdout, tail(result))
    expect(b"ONLY_HERE" not in (await bench.box.commands.run(["env"])).stdout, "envs stuck to the next command")


@check()
async def variables_of_the_sandbox_reach_every_command(bench: Bench) -> None:
    """`envs` of create holds for all commands; a command's own win."""
    async with await bench.backend.create(limits=LIMITS, envs={"A": "box", "B": "box"}) as box:
        result = await box.commands.run(["env"], envs={"B": "command"})
    lines = result.stdout.splitlines()
    expect(b"A=box" in lines and b"B=command" in lines and b"B=box" not in lines, tail(result))


@check("shell")
async def the_host_environment_is_not_inherited(bench: Bench) -> None:
    """A command finds a minimal environment made for it, and nothing of ours."""
    result = await bench.sh("env")
    names = {line.split(b"=")[0].decode() for line in result.stdout.splitlines()}
    expect(names <= _OWN_VARIABLES, f"unexpected variables: {sorted(names - _OWN_VARIABLES)}")


@check("shell")
async def only_three_descriptors_are_open(bench: Bench) -> None:
    """A command inherits stdin, stdout and stderr, and nothing else."""
    result = await bench.sh("n=3; while test $n -lt 1100; do test -e /proc/$$/fd/$n && echo $n; n=$((n+1)); done")
    expect(result.stdout == b"", tail(result))


@check("shell")
async def files_outlive_commands(bench: Bench) -> None:
    """What one command wrote, the next one reads."""
    await bench.sh("mkdir -p d && echo kept > d/f && echo too > /tmp/g")
    result = await bench.sh("cat d/f /tmp/g")
    expect(result.stdout == b"kept\ntoo\n", tail(result))


@check("shell")
async def a_background_child_does_not_hold_us(bench: Bench) -> None:
    """The command ends when its own process ends, though a child still holds stdout; the child is killed."""
    result = await bench.sh("sleep 1000 & echo hi")
    expect(result.stdout == b"hi\n" and result.ok and result.wall_s < _PROMPT_S, tail(result))
    await bench.expect_nobody_left()


@check("shell")
async def children_that_hide_are_killed_too(bench: Bench) -> None:
    """setsid, nohup, a double fork and an ignored SIGTERM do not outlive the command."""
    result = await bench.sh("(setsid nohup sh -c 'trap \"\" TERM HUP; sleep 1000' &) & sleep 0.2; echo hi")
    expect(result.stdout == b"hi\n" and not result.timed_out, tail(result))
    await bench.expect_nobody_left()


@check("shell")
async def commands_of_a_sandbox_may_overlap(bench: Bench) -> None:
    """Two commands at once get their own results, and the end of one does not end the other."""
    long = asyncio.create_task(bench.sh("sleep 0.6; echo long"))
    await asyncio.sleep(0.1)
    short = await bench.sh("sleep 1000 & echo short")
    expect(short.stdout == b"short\n" and not long.done(), tail(short))
    result = await long
    expect(result.ok and result.stdout == b"long\n", tail(result))


@check("shell")
async def many_commands_at_once(bench: Bench) -> None:
    """Answers find the call they belong to."""
    results = await asyncio.gather(*(bench.sh(f"echo {number}; exit {number}") for number in range(8)))
    for number, result in enumerate(results):
        expect(result.exit_code == number and result.stdout == b"%d\n" % number, tail(result))


@check()
async def many_sandboxes_at_once(bench: Bench) -> None:
    """Concurrent creations all succeed and have names of their own."""
    boxes = await asyncio.gather(*(bench.backend.create(limits=LIMITS) for _ in range(10)))
    results = await asyncio.gather(*(box.commands.run(["echo", box.id]) for box in boxes))
    await asyncio.gather(*(box.kill() for box in boxes))
    expect(len({box.id for box in boxes}) == len(boxes), "two sandboxes have one name")
    for box, result in zip(boxes, results, strict=True):
        expect(result.stdout.decode() == f"{box.id}\n", tail(result))


@check("shell")
async def a_cancelled_command_is_killed(bench: Bench) -> None:
    """Cancelling the call ends the command; the next one is answered as if nothing had been."""
    call = asyncio.create_task(bench.sh("sleep 1000"))
    await asyncio.sleep(0.2)
    call.cancel()
    await asyncio.wait([call])
    expect(call.cancelled(), "the call swallowed its cancellation")
    expect((await bench.sh("echo next")).stdout == b"next\n", "the next command got another answer")
    await bench.expect_nobody_left()


@check()
async def a_killed_sandbox_says_so(bench: Bench) -> None:
    """Calls after `kill` raise SandboxError; `kill` may be repeated."""
    box = await bench.backend.create(limits=LIMITS)
    await box.kill()
    await box.kill()
    for call in (box.commands.run(["true"]), box.files.write("a", b""), box.files.read("a")):
        try:
            await call
        except SandboxError:
            continue
        expect(False, "a call on a killed sandbox did not raise SandboxError")


@check("shell")
async def killing_a_sandbox_ends_its_calls(bench: Bench) -> None:
    """A command that runs when its sandbox is killed raises SandboxError: it has no result."""
    box = await bench.backend.create(limits=LIMITS)
    call = asyncio.create_task(box.commands.run("sleep 1000"))
    await asyncio.sleep(0.1)
    await box.kill()
    try:
        result = await call
    except SandboxError:
        return
    expect(False, f"a killed sandbox gave a result: {tail(result)}")


@check("shell")
async def no_signal_is_ignored_or_blocked_at_the_start(bench: Bench) -> None:
    """What the harness does with its own signals is not handed on."""
    result = await bench.sh("grep -E '^Sig(Ign|Blk)' /proc/self/status")
    masks = [int(line.split()[1], 16) for line in result.stdout.decode().splitlines()]
    named = (1 << 31) - 1  # the C library has a use of its own for the first of the nameless ones
    expect(not any(mask & named for mask in masks), f"masks: {result.stdout.decode()}")  # some kernels do not tell


CHECKS = _registry.all()
