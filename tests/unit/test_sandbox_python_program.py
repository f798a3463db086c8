"""What `run_code` runs, held against `python3 -c` of the same interpreter."""

import array
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from burnish.sandbox.process import python_program, wire

PROGRAMS = {
    "nothing": "",
    "output": "print('ü', end='')\nimport sys; sys.stderr.write('e'); sys.stdout.write('no newline')",
    "exit code": "import sys; sys.exit(3)",
    "exit message": "raise SystemExit('why')",
    "exit none": "raise SystemExit",
    "exit odd": "import sys; sys.exit([1, 2])",
    "os._exit": "import os; print('lost'); os._exit(4)",
    "abort": "import os; os.abort()",
    "interrupt": "raise KeyboardInterrupt",
    "sigint": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "uncaught": "def f(x):\n    return 1 / x\n\ndef g():\n    f(0)\n\ng()",
    "chained": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e",
    "in a handler": "try:\n    {}['a']\nexcept KeyError:\n    1 / 0",
    "group": "raise ExceptionGroup('g', [ValueError(1), KeyError('k')])",
    "caught": "import traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()",
    "own hook": "import sys\ndef hook(k, v, t): print('hook', k, t.tb_lineno)\nsys.excepthook = hook; 1 / 0",
    "broken hook": "import sys\ndef hook(*a): raise KeyError('h')\nsys.excepthook = hook\n1 / 0",
    "syntax": "if True:\n    x = (1,\ny = 2",
    "indentation": "  x = 1",
    "bad escape": "print('\\d')",
    "future": "from __future__ import annotations\ndef f(x: nowhere): pass\nprint(f.__annotations__)",
    "annotated": "x: int = 1\nprint(__annotations__)",
    "docstring": "'''doc'''\nprint(__doc__)",
    "names": "print(sorted(name for name in globals()), __name__, __spec__, __package__, __builtins__)",
    "arguments": "import sys; print(sys.argv, sys.path[0] == '', sys.flags, len(sys.path))",
    "input": "print(input()); print(input()); input()",
    "binary input": "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])",
    "atexit": "import atexit; atexit.register(print, 'bye'); print('hi'); 1 / 0",
    "late thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()",
    "thread fails": "import threading\ndef f(): 1 / 0\nt = threading.Thread(target=f, name='t'); t.start(); t.join()",
    "fork": "import os\npid = os.fork()\nprint('child' if pid == 0 else os.waitpid(pid, 0)[1], flush=True)",
    "subprocess": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(input())'])",
    "processes": "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))",
    "unflushed file": "f = open('/dev/stderr', 'w'); f.write('kept')",
    "destructor": "class A:\n    def __del__(self): print('gone')\na = A()",
    "cycle": "class A:\n    def __del__(self): print('gone')\na = A(); a.me = a; del a; print('after')",
    "warning": "import warnings; warnings.warn('w')",
    "deprecated": "def f():\n    import warnings; warnings.warn('old', DeprecationWarning, stacklevel=2)\nf()",
    "pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(1))",
    "eval": "exec('x = 1'); print(x, eval('x + 1'))",
    "eval fails": "exec('def f(): return 1 / 0'); f()",
    "main": "import __main__; print(__main__.__dict__ is globals(), hasattr(__main__, '__file__'))",
    "async": "import asyncio\nasync def f(): await asyncio.sleep(0); return 5\nprint(asyncio.run(f()))",
    "closed stdout": "import sys, os; sys.stdout.write('x'); os.close(1)",
    "streams": "import sys; print(sys.stdout.line_buffering, sys.stdout.seekable(), sys.stdin.name)",
    "carriage returns": "if 1:\r\n    print('a')\r\nprint('''b\r\nc''')",
    "shadows": "import linecache, gc, _socket; print(linecache.NAME, _socket.NAME)",
    "long": "x = 0\n" + "x += 1\n" * 50_000 + "print(x)",
}  # fmt: skip
STDIN = b"first\nsecond\n"


def run(argv: list[str], stdin: bytes, folder: Path) -> tuple[int, bytes, bytes]:
    done = subprocess.run([sys.executable, *argv], input=stdin, cwd=folder, capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr.replace(b"<string>", b"<code>")


def through_a_socket(source: bytes, stdin: bytes, folder: Path) -> tuple[int, bytes, bytes]:
    """As the supervisor does it: the interpreter starts elsewhere, with other streams, and the job comes later."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, Path(os.devnull).open() as null:
        # posix_spawn and not subprocess, which has no way to say "descriptor 3"
        actions = [
            (os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((null.fileno(), 1, 2, theirs.fileno()))
        ]
        argv = [sys.executable, "-c", python_program.FROM_SOCKET]
        pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions)
        theirs.close()
        outputs = [wire.memfd(name, b"") for name in ("out", "err")]
        job = [wire.memfd("code", source), wire.memfd("in", stdin), *outputs]
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", job))
        ours.sendmsg([os.fsencode(folder)], [rights])
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out, err = (os.pread(descriptor, 1 << 20, 0) for descriptor in outputs)
        err = err.replace(b"<string>", b"<code>")
        for descriptor in job:
            os.close(descriptor)
    return code, out, err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("_socket", "socket", "gc", "posix", "linecache", "site"):
        (tmp_path / f"{name}.py").write_text("NAME = 'of the folder'\n")
    return tmp_path


@pytest.mark.parametrize("name", PROGRAMS)
def test_code_does_what_it_does_as_an_argument(name: str, folder: Path) -> None:
    source = PROGRAMS[name]
    argument = ["-c", source] if len(source) < 100_000 else [str(Path(folder, "long.py"))]
    if argument[0] != "-c":
        Path(folder, "long.py").write_text(source)
    expected = run(argument, STDIN, folder)
    stdin = python_program.with_source(source.encode(), STDIN)
    assert run(["-c", python_program.FROM_STDIN], stdin, folder) == expected
    if name != "streams":  # files in memory are other streams than pipes
        assert through_a_socket(source.encode(), STDIN, folder) == expected
