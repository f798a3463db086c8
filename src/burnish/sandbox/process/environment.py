"""What programs in a sandbox find of this machine: the interpreter, and an environment of a few variables."""

import sys
from pathlib import Path

from burnish.sandbox.process.template import HOME


def interpreter_prefixes() -> list[str]:
    """The install prefix of this Python where it lies outside the system directories, so that programs can run it.

    Never a home directory or one above it: that would show more than an interpreter.
    """
    prefix = Path(sys.base_prefix).resolve()
    if prefix.is_relative_to("/usr") or Path.home().resolve().is_relative_to(prefix):
        return []
    return [str(prefix)]


def base_environment() -> dict[str, str]:
    """All that a program in a sandbox finds in its environment, unless the caller adds to it."""
    folders = [*(f"{prefix}/bin" for prefix in interpreter_prefixes()), "/usr/local/bin", "/usr/bin", "/bin"]
    return {"PATH": ":".join(folders), "HOME": HOME, "USER": "agent", "LANG": "C.UTF-8"}
