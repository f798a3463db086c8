"""The agent's source as one Python program, to be sent into a container. What `python3 -c` is given only waits for it.

Nothing of this package lies in the container's file system, so nothing there can be replaced to change what pid 1 runs.
"""

import functools
import importlib
import inspect
import marshal

BOOTSTRAP = (
    "import os, sys\nsource = b''\n"
    "while len(source) < int(sys.argv[1]): source += os.read(0, int(sys.argv[1]) - len(source))\n"
    "exec(source)"
)
MODULES = (  # each after those it imports
    "burnish.sandbox.process.output",
    "burnish.sandbox.process.syscalls",
    "burnish.sandbox.oci.frames",
    "burnish.sandbox.oci.agent_processes",
    "burnish.sandbox.oci.agent_quirks",
    "burnish.sandbox.oci.agent_start",
    "burnish.sandbox.oci.agent_streams",
    "burnish.sandbox.oci.agent_files",
    "burnish.sandbox.oci.agent",
)
_PACKAGES = ("burnish", "burnish.sandbox", "burnish.sandbox.oci", "burnish.sandbox.process")
_HEAD = """
import marshal, sys, types

def load(name, code=None):
    module = sys.modules[name] = types.ModuleType(name)
    if code is None:
        module.__path__ = []
    else:
        exec(marshal.loads(code), module.__dict__)
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)

load("asyncio")  # output.py has a half that wants it, which is not used here; importing it takes a quarter second
"""


@functools.cache
def shipped_source() -> bytes:
    """The program, the same for every container. Its modules are compiled: the container runs this interpreter."""
    lines = [_HEAD]
    lines += [f"load({name!r})" for name in _PACKAGES]
    lines += [f"load({name!r}, {_compiled(name)!r})" for name in MODULES]
    lines.append("sys.modules['burnish.sandbox.oci.agent'].main()\n")
    return "\n".join(lines).encode()


def _compiled(name: str) -> bytes:
    source = inspect.getsource(importlib.import_module(name))
    return marshal.dumps(compile(source, name, "exec", dont_inherit=True))
