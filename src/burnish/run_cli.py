"""`burnish run ...`: what a run's files say. Reads only."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from burnish.errors import UserError

if TYPE_CHECKING:
    from burnish.flow.verify import Accounting
    from burnish.store import RunStore

run_app = typer.Typer(no_args_is_help=True, help="Look into the files of a run.")


@run_app.command()
def verify(
    run: Annotated[str, typer.Argument(help="A run directory, or the URL its store lies at.", metavar="RUN")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the accounting as JSON.")] = False,
) -> None:
    """Check that every attempt is accounted for exactly once. Exit code 1 when it is not."""
    if not account_for(run, as_json=as_json):
        raise typer.Exit(1)


def account_for(run: str, *, as_json: bool = False) -> bool:
    """Prints the accounting of a run; whether it is clean."""
    from burnish.flow.verify import verify_run

    found = asyncio.run(verify_run(_store_of(run)))
    if as_json:
        typer.echo(json.dumps({**asdict(found), "clean": found.is_clean}, indent=2))
    else:
        for line in _lines(found):
            typer.echo(line)
    return found.is_clean


def _store_of(run: str) -> "RunStore":
    """Where journal and manifests of a run lie. Raises UserError for a place without either."""
    from burnish.config import RESOLVED_FILE
    from burnish.config_load import load_config
    from burnish.store import RunStore

    if "://" in run:
        return RunStore.at(run)
    folder = Path(run)
    if not (folder / RESOLVED_FILE).is_file():
        raise UserError("no run directory: config.yaml is missing", where=run, fix="name a folder that a run made")
    url = load_config(folder / RESOLVED_FILE, []).store
    return RunStore.at(run if url is None else f"{url.rstrip('/')}/{folder.resolve().name}")


def _lines(found: "Accounting") -> Iterator[str]:
    yield f"lives {found.num_lives}, commits {found.num_commits}, optimizer steps {found.num_steps}"
    yield f"attempts begun {found.num_attempts}, groups closed {found.num_groups}"
    for name, num in sorted(found.fates.items(), key=lambda pair: -pair[1]):
        yield f"  {name:<20} {num:>8}"
    if found.num_open:
        yield f"  {'open':<20} {found.num_open:>8}   the run goes on, or can be resumed"
    yield f"tokens trained {found.num_trained_tokens}, sampled again after a crash {found.num_regenerated_tokens}"
    if found.torn:
        yield f"torn by a crash, and not counted: {found.torn}"
    for finding in found.findings:
        yield f"WRONG  {finding}"
    yield "clean: every attempt is accounted for exactly once" if found.is_clean else f"{len(found.findings)} findings"
