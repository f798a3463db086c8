"""`burnish sandbox`: run something confined, hold a backend against its contract, look after what is left."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from burnish.sandbox.fleet import cli as fleet
from burnish.sandbox.fleet import client
from burnish.types import Limits

if TYPE_CHECKING:
    from rich.table import Table

    from burnish.sandbox.base import ExecResult
    from burnish.sandbox.conformance import CheckResult
    from burnish.sandbox.network import NetworkPolicy

STATUS_STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
EXIT_BY_SIGNAL = 128  # plus its number, as shells say it
DEFAULTS = Limits()
SHELL_S = 7 * 24 * 3600.0

sandbox_app = typer.Typer(no_args_is_help=True, help="Run programs confined, and look after sandboxes.")
audit_app = typer.Typer(no_args_is_help=True, help="Look at audit logs.")
sandbox_app.add_typer(audit_app, name="audit")
sandbox_app.command("ls")(fleet.list_sandboxes)
for _verb in (fleet.kill, fleet.fork, fleet.snapshot):
    sandbox_app.command()(_verb)

_Backend = Annotated[Literal["process", "gvisor", "memory"], typer.Option(help="Which backend.")]


@sandbox_app.command("run")
def run_command(
    command: Annotated[
        list[str], typer.Argument(help="The program and its arguments, after --.", metavar="COMMAND...")
    ],
    backend: _Backend = "process",
    files: Annotated[
        list[Path] | None, typer.Option("--file", help="A file of this machine to copy into the working directory.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=0.001, help="Seconds.")] = DEFAULTS.wall_s,
    memory_mb: Annotated[int, typer.Option(min=1, help="Megabytes of memory.")] = DEFAULTS.memory_bytes >> 20,
    image: Annotated[str, typer.Option(help="This machine's programs, or an image of the store.")] = "host",
    allow: Annotated[
        list[str] | None, typer.Option(help="What the network may reach, such as pypi.org:443. Default: nothing.")
    ] = None,
    audit: Annotated[Path | None, typer.Option(help="Append what happens to this audit log.")] = None,
) -> None:
    """Run one command in a fresh sandbox, with this terminal's input; its exit code becomes ours."""
    from burnish.sandbox.network import NetworkPolicy

    stdin = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    content = {file.name: _read(file) for file in files or []}
    limits = replace(DEFAULTS, wall_s=timeout_s, memory_bytes=memory_mb << 20, output_bytes=16 << 20)
    network = NetworkPolicy.parse(allow, where="--allow") if allow else None
    result = asyncio.run(_run_once(backend, command, stdin, content, limits, network, image, audit))
    sys.stdout.buffer.write(result.stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(result.stderr)
    sys.stderr.flush()
    if result.limit_hit:
        typer.echo(f"burnish: the limit on {result.limit_hit} was hit", err=True)
    raise typer.Exit(EXIT_BY_SIGNAL + result.signal if result.signal else result.exit_code or 0)


async def _run_once(
    backend: str,
    command: list[str],
    stdin: bytes,
    files: dict[str, bytes],
    limits: Limits,
    network: "NetworkPolicy | None",
    image: str,
    audit: Path | None,
) -> "ExecResult":
    from burnish.sandbox import make_backend

    made = make_backend(backend, audit=audit, listed=True)
    try:
        async with await made.create(limits=limits, network=network, image=image) as box:
            for name, data in files.items():
                await box.files.write(name, data)
            return await box.commands.run(command, stdin=stdin)
    finally:
        await made.close()


def _read(file: Path) -> bytes:
    from burnish.errors import UserError

    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"it cannot be read: {error.strerror}", where=str(file)) from error


@sandbox_app.command()
def shell(
    image: Annotated[str, typer.Option(help="This machine's programs, or an image of the store.")] = "host",
    memory_mb: Annotated[int, typer.Option(min=1, help="Megabytes of memory.")] = 1024,
    allow: Annotated[
        list[str] | None, typer.Option(help="What the network may reach, such as pypi.org:443. Default: nothing.")
    ] = None,
) -> None:
    """Open a shell in a fresh sandbox, with this terminal; everything in it is gone afterwards."""
    from burnish.sandbox.network import NetworkPolicy

    limits = replace(DEFAULTS, memory_bytes=memory_mb << 20, disk_bytes=1 << 30, num_pids=256)
    network = NetworkPolicy.parse(allow, where="--allow") if allow else None
    result = asyncio.run(_shell(image, limits, network))
    raise typer.Exit(EXIT_BY_SIGNAL + result.signal if result.signal else result.exit_code or 0)


async def _shell(image: str, limits: Limits, network: "NetworkPolicy | None") -> "ExecResult":
    from burnish.sandbox.process.backend import ProcessBackend
    from burnish.sandbox.terminal import attach

    async with (
        ProcessBackend(pool=0) as backend,
        await backend.create(image=image, limits=limits, network=network) as box,
    ):
        has_bash = await box.files.exists("/bin/bash")
        return await attach(box, ["/bin/bash", "-i"] if has_bash else ["/bin/sh", "-i"], timeout_s=SHELL_S)


@sandbox_app.command("gc")
def collect_garbage() -> None:
    """Remove what the hosts of killed owners left: control groups without processes, records, unnamed images.

    The next run would do it too. Processes, mounts and files of sandboxes end with their owner, whatever ends it; a
    host that somebody had stopped, and that so could not, is ended here.
    """
    from burnish.sandbox.images import ImageStore
    from burnish.sandbox.process import cgroups, orphans

    if num_ended := orphans.end_orphans():
        typer.echo(f"stopped hosts of dead owners ended: {num_ended}")
    typer.echo(f"control groups removed: {cgroups.reap_dead()}")
    typer.echo(f"records removed: {client.reap()}")
    ImageStore().sweep()


@sandbox_app.command()
def bench(
    backend: _Backend = "process",
    rounds: Annotated[int, typer.Option(min=2, help="How often.")] = 50,
) -> None:
    """Measure what sandboxes cost here: create, exec, fork, restore; milliseconds."""
    from burnish.sandbox.fleet.bench import p50_p99

    times = asyncio.run(_bench(backend, rounds))
    typer.echo(f"{'':<10} {'p50 ms':>8} {'p99 ms':>8}   ({backend}, {rounds} rounds)")
    for name, seconds in times.items():
        p50, p99 = p50_p99(seconds)
        typer.echo(f"{name:<10} {p50 * 1e3:>8.2f} {p99 * 1e3:>8.2f}")


async def _bench(backend: str, rounds: int) -> dict[str, list[float]]:
    from burnish.sandbox import make_backend
    from burnish.sandbox.fleet.bench import measure

    made = make_backend(backend)
    try:
        return await measure(made, num_rounds=rounds)
    finally:
        await made.close()


@audit_app.command("verify")
def audit_verify(log: Annotated[Path, typer.Argument(help="An audit log.")]) -> None:
    """Follow a log's chain from its beginning; exit 1 at the first line that was changed."""
    from burnish.sandbox.audit import verify_audit

    report = verify_audit(log)
    if report.problem:
        typer.echo(f"{log}: {report.problem}; {report.num_lines} lines before it hold", err=True)
        raise typer.Exit(1)
    typer.echo(f"{log}: {report.num_lines} lines hold; head {report.head}")


@sandbox_app.command("check")
def sandbox_check(
    backend: _Backend = "process",
) -> None:
    """Run the sandbox contract's conformance suite here; exit 1 when a check fails."""
    from rich.console import Console

    from burnish.sandbox import make_backend
    from burnish.sandbox.conformance import run_conformance

    results = asyncio.run(run_conformance(lambda: make_backend(backend)))
    console, count = Console(), Counter[str](result.status for result in results)
    console.print(_conformance_table(results))
    summary = ", ".join(f"{count[status]} {status}" for status in STATUS_STYLES)
    console.print(f"backend {backend}: {summary}", highlight=False)
    raise typer.Exit(1 if count["failed"] else 0)


def _conformance_table(results: Sequence["CheckResult"]) -> "Table":
    """One row per check; what failed or was skipped says why."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    table.add_column("check", overflow="fold")
    table.add_column("result", no_wrap=True)
    table.add_column("what it promises, or why not", overflow="fold")
    for result in results:
        verdict = Text(result.status, style=STATUS_STYLES[result.status])
        table.add_row(Text(result.name), verdict, Text(result.reason or result.meaning))  # Text: no markup inside
    return table
