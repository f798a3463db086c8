"""What `python3 -c` is given to run code that is no argument: text of any length, under the name `<code>`.

The code becomes the body of `__main__`, as if it had been the argument; the interpreter itself then says what an
exception, an exit code and an open thread mean. Frames of ours are taken out of tracebacks, names of ours are gone.
"""

# What it imports comes from Python and not from the working directory, whose files have any names, and leaves no trace.
_FROM_SOCKET = """\
        path, sys.path[:1] = sys.path[:1], []
        import _socket
        sys.path[:0] = path
        del sys.modules["_socket"]
        channel = _socket.socket(fileno=3)
        cwd, ancillary, _, _ = channel.recvmsg(8192, 64)
        channel.close()
        if not ancillary:
            posix._exit(0)
        descriptor, *streams = memoryview(ancillary[0][2]).cast("i").tolist()
        for number, stream in enumerate(streams):
            posix.dup2(stream, number)
            posix.close(stream)
        posix.chdir(cwd)
        source = b"".join(iter(lambda: posix.read(descriptor, 1 << 20), b""))
        posix.close(descriptor)
"""
_FROM_STDIN = """\
        def read(size):
            data = b""
            while len(data) < size:
                data += posix.read(0, size - len(data))
            return data
        source = read(int.from_bytes(read(8), "big"))
"""
_PROGRAM = """\
class _Code:
    def __enter__(self):
        return self
    def __exit__(self, kind, error, trace):
        while trace is not None and trace.tb_frame.f_code.co_filename != "<code>":
            trace = trace.tb_next
        if error is not None:
            error.__traceback__ = trace
    def __call__(self):
        import posix, sys
        for name in ("_Code", "_code"):
            del globals()[name]
{receive}
        if "linecache" in sys.modules:
            lines = source.decode("utf-8", "replace").splitlines(True)
            sys.modules["linecache"].cache["<code>"] = len(source), None, lines, "<code>"
        return compile(source, "<code>", "exec", dont_inherit=True)
with _Code() as _code:
    exec(_code())
"""

FROM_SOCKET = _PROGRAM.format(receive=_FROM_SOCKET)
"""Waits at descriptor 3 for a packet: the working directory + descriptors of the source, stdin, stdout, stderr."""

FROM_STDIN = _PROGRAM.format(receive=_FROM_STDIN)
"""Reads the source from stdin, up to its end and no further; see `with_source`."""


def with_source(source: bytes, stdin: bytes) -> bytes:
    """The stdin of `FROM_STDIN`, which leaves `stdin` to the code."""
    return len(source).to_bytes(8, "big") + source + stdin
