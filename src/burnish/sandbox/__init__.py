"""Where actions run: the contract, its conformance suite, and the backends.

    async with await Sandbox.create(image="host", network=None) as box:
        await box.files.write("a.py", "print(6 * 7)")
        result = await box.commands.run("python3 a.py", timeout_s=5)

The names are looked up on first use. This package is also imported by the sandbox host, a small process that is cloned
for every sandbox and must not carry asyncio and the rest with it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burnish.sandbox.base import ExecResult, SandboxBackend, SandboxBox, SandboxFileError
    from burnish.sandbox.facade import Sandbox, SyncSandbox, make_backend

_HOME_OF = {
    "ExecResult": "base", "SandboxBackend": "base", "SandboxBox": "base", "SandboxFileError": "base",
    "Sandbox": "facade", "SyncSandbox": "facade", "make_backend": "facade",
}  # fmt: skip

__all__ = [
    "ExecResult", "Sandbox", "SandboxBackend", "SandboxBox", "SandboxFileError", "SyncSandbox", "make_backend",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
