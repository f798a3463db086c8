"""`run_code`: what a command of the same program would give, whether or not an interpreter had been waiting for it."""

import asyncio

from burnish.errors import UserError
from burnish.sandbox.base import ExecResult
from burnish.sandbox.conformance.suite import Bench, Registry, expect, tail

_registry = Registry()
check = _registry.check

_WHILE_ONE_STARTS_S = 0.15
_PLANT = """
import os, site, sys
os.makedirs(site.getusersitepackages(), exist_ok=True)
with open(os.path.join(site.getusersitepackages(), "usercustomize.py"), "w") as file:
    file.write("open('/tmp/started', 'a').write('x'); NAME = 'planted'\\n")
"""


async def _code(bench: Bench, source: str | bytes, *, stdin: bytes = b"") -> ExecResult:
    return await bench.box.commands.run_code("python", source, stdin=stdin)


async def _warmed_up(bench: Bench) -> None:
    """From now on one may be waiting."""
    await _code(bench, "pass")
    await asyncio.sleep(_WHILE_ONE_STARTS_S)


@check("python")
async def code_is_run_as_a_command(bench: Bench) -> None:
    """Output, exit codes, signals and uncaught exceptions of code arrive as those of a command, twice in a row."""
    for _ in range(2):
        result = await _code(bench, "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(7)")
        expect(result.exit_code == 7 and result.stdout == b"out\n" and result.stderr == b"err\n", tail(result))
        result = await _code(bench, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
        expect(result.signal == 9 and result.exit_code is None, tail(result))
        result = await _code(bench, "def f():\n    return 1 / 0\n\nf()")
        where = b'  File "<code>", line 4, in <module>'
        expect(result.exit_code == 1 and result.stderr.splitlines()[1].startswith(where), tail(result))
        expect(b'File "<string>"' not in result.stderr and b"ZeroDivisionError" in result.stderr, tail(result))
        await asyncio.sleep(_WHILE_ONE_STARTS_S)


@check("python")
async def code_that_is_no_python_is_a_result(bench: Bench) -> None:
    """A syntax error, a NUL, a surrogate and bytes that are no UTF-8 are reported by the interpreter."""
    for source in ("x = (", "x = 1\0", "x = '\ud800'", b"x = '\xff'"):
        result = await _code(bench, source)
        expect(result.exit_code == 1 and b"Error" in result.stderr and not result.stdout, tail(result))


@check("python")
async def code_may_be_long(bench: Bench) -> None:
    """Megabytes of source and of stdin pass unchanged."""
    source = f"import sys\ntext = '{'ü' * (2 << 20)}'\nprint(len(text), len(sys.stdin.buffer.read()))"
    for _ in range(2):
        result = await _code(bench, source, stdin=bytes(2 << 20))
        expect(result.stdout.split() == [b"2097152", b"2097152"], tail(result))
        await asyncio.sleep(_WHILE_ONE_STARTS_S)


@check("python", "files")
async def code_has_its_own_directory_environment_and_input(bench: Bench) -> None:
    """`cwd`, `envs` and `stdin` of a call hold for it alone; imports begin in its directory."""
    await bench.box.files.write("sub/helper.py", "NAME = 'helper'")
    source = (
        "import os, sys, helper\nprint(os.getcwd(), os.environ.get('A'), input(), helper.NAME, *sys.argv, sys.path[0])"
    )
    for envs in ({"A": "1"}, {"A": "1"}, {}, {}, {"A": "2", "PYTHONHASHSEED": "3"}):
        result = await bench.box.commands.run_code("python", source, stdin=b"line\n", cwd="sub", envs=envs)
        expected = f"/home/agent/sub {envs.get('A')} line helper -c \n"
        expect(result.stdout.decode() == expected, tail(result))
        await asyncio.sleep(_WHILE_ONE_STARTS_S)
    result = await bench.box.commands.run_code("python", "pass", cwd="nowhere")
    expect(result.exit_code == 127 and b"nowhere" in result.stderr, tail(result))


@check("python")
async def code_leaves_nothing_for_the_next(bench: Bench) -> None:
    """Every call has an interpreter of its own, with no descriptors but the three."""
    source = "import os, builtins; print(hasattr(builtins, 'kept'), os.listdir('/proc/self/fd')); builtins.kept = 1"
    for _ in range(3):
        result = await _code(bench, source)
        expect(result.stdout == b"False ['0', '1', '2', '3']\n", tail(result))  # 3 is the listing itself
        await asyncio.sleep(_WHILE_ONE_STARTS_S)


@check("python", "limits.wall")
async def code_is_limited_like_a_command(bench: Bench) -> None:
    """Its time ends it and its children; what it leaves behind is ended."""
    await _warmed_up(bench)
    source = "import subprocess, time\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
    result = await bench.box.commands.run_code("python", source + "time.sleep(1000)", timeout_s=0.5)
    expect(result.timed_out and result.limit_hit == "wall" and result.signal == 9, tail(result))
    await _warmed_up(bench)
    result = await _code(bench, source + "print('hi', flush=True)")
    expect(result.ok and result.stdout == b"hi\n", tail(result))
    await bench.expect_nobody_left()


@check("python", "shell", "reports.usage")
async def what_waits_for_code_is_not_counted(bench: Bench) -> None:
    """A command that runs after code finds nobody beside it, and is told of nobody that it left."""
    for _ in range(3):
        await _warmed_up(bench)
        result = await bench.sh("true")
        expect(result.num_left == 0, f"{result.num_left} processes are said to be left")
        await _warmed_up(bench)
        await bench.expect_nobody_left()


@check("python", "files", "shell")
async def nothing_planted_runs_between_commands(bench: Bench) -> None:
    """What starts with every interpreter, because a program put it there, starts with those that were asked for."""
    expect((await _code(bench, _PLANT)).ok, "could not plant it")
    for number in (1, 2, 3):
        await asyncio.sleep(_WHILE_ONE_STARTS_S)
        result = await _code(bench, "import usercustomize; print(usercustomize.NAME)")
        expect(result.stdout == b"planted\n", tail(result))
        started = await bench.box.files.read("/tmp/started")
        expect(started == b"x" * number, f"{len(started)} interpreters started for {number} calls")


@check("python", "shell")
async def code_may_overlap_with_commands(bench: Bench) -> None:
    """Code and commands at once get their own results."""
    await _warmed_up(bench)
    calls = [_code(bench, f"import time; time.sleep(0.2); print({number})") for number in range(4)]
    results = await asyncio.gather(*calls, bench.sh("sleep 0.1; echo 4"))
    for number, result in enumerate(results):
        expect(result.ok and result.stdout == b"%d\n" % number, tail(result))


@check("python")
async def other_languages_are_refused(bench: Bench) -> None:
    """A language that is not known is the caller's mistake."""
    language: str = "cobol"
    try:
        await bench.box.commands.run_code(language, "x")  # type: ignore[arg-type]
    except UserError:
        return
    expect(False, "it was accepted")


CHECKS = _registry.all()
