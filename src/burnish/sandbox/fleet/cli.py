"""The verbs of `burnish sandbox` over sandboxes of other processes."""

import base64
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from burnish.errors import UserError
from burnish.sandbox.fleet import client

EXIT_BY_SIGNAL = 128
MAX_STDIN_BYTES = 512 << 10  # of one request

_Id = Annotated[str, typer.Argument(help="A sandbox's id, from `burnish sandbox ls`.", metavar="ID")]


def list_sandboxes(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array, with limits.")] = False,
) -> None:
    """List your living sandboxes: those of training runs and of `burnish sandbox run`, whichever process owns them."""
    found = client.find_all()
    if as_json:
        typer.echo(json.dumps([{**one.sandbox, "owner": one.owner.pid, "answers": one.answers} for one in found]))
        return
    typer.echo(f"{'ID':<28} {'OWNER':>8} {'AGE':>8} {'IDLE':>8}  {'IMAGE':<20} TRAJECTORY")
    for one in found:
        age = f"{max(0.0, time.time() - one.sandbox['created']):.0f} s"
        idle = f"{one.sandbox['idle_s']:.0f} s" if isinstance(one.sandbox.get("idle_s"), int | float) else "?"
        silent = "" if one.answers else "  (its owner does not answer)"
        trajectory = one.sandbox["trajectory"] or "-"
        line = f"{one.sandbox['id']:<28} {one.owner.pid:>8} {age:>8} {idle:>8}  {one.sandbox['image']:<20} {trajectory}"
        typer.echo("".join(character if character.isprintable() else "?" for character in line + silent))


def kill(ids: Annotated[list[str], typer.Argument(help="From `burnish sandbox ls`.", metavar="ID")]) -> None:
    """End sandboxes; whoever works in them gets an error of the sandbox, never a result."""
    for id in ids:
        client.ask(id, "kill")


def fork(
    id: _Id,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The program and its arguments, after --. Default: a shell.", metavar="[COMMAND]..."),
    ] = None,
) -> None:
    """Run a command in a copy of a living sandbox, which is gone afterwards; its exit code becomes ours.

    It reads this terminal's input unless that is a keyboard; without a command the input is lines for /bin/sh.
    """
    has_input = sys.stdin is not None and not sys.stdin.isatty()
    if not command and not has_input:
        raise UserError("there is nothing to run", where="COMMAND", fix="give it after --, or shell lines as input")
    stdin = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1) if has_input else b""
    if len(stdin) > MAX_STDIN_BYTES:
        raise UserError(f"more than {MAX_STDIN_BYTES} bytes of input", fix="let the command make what it needs")
    answer = client.ask(id, "fork", argv=command or ["/bin/sh"], stdin=base64.b64encode(stdin).decode())
    sys.stdout.buffer.write(base64.b64decode(answer["stdout"]))
    sys.stdout.flush()
    sys.stderr.buffer.write(base64.b64decode(answer["stderr"]))
    sys.stderr.flush()
    if answer["limit_hit"]:
        typer.echo(f"burnish: the limit on {answer['limit_hit']} was hit", err=True)
    raise typer.Exit(EXIT_BY_SIGNAL + answer["signal"] if answer["signal"] else answer["exit_code"] or 0)


def snapshot(id: _Id, file: Annotated[Path, typer.Argument(help="Where to; not there yet.", metavar="FILE")]) -> None:
    """Save the files of a living sandbox's /home/agent as a tar. They are a program's: unpack them with care."""
    if file.exists():
        raise UserError("it is there already", where=str(file), fix="give a new name, or remove it")
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.") as part:
            size = client.download(id, part.write)
            part.flush()
            os.link(part.name, file)  # whole or not at all, and never over another
    except OSError as error:
        raise UserError(f"it cannot be written: {error.strerror}", where=str(file)) from error
    typer.echo(f"{file}: {size} bytes")
