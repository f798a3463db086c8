"""The command line. Each verb turns words into one call and is documented in README.md.

Heavy parts are imported by the verb that needs them, so that `burnish --help` answers at once; nowhere else in the
package may an import stand inside a function. `main` is the one place where an error becomes a message and an exit
code: 0 done, 1 the world outside failed, 2 the request was wrong or the disk is full, 130 ctrl-C.
"""

import difflib
import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from burnish import __version__
from burnish.errors import BoundaryError, StoreError, UserError
from burnish.run_cli import run_app
from burnish.sandbox.cli import sandbox_app
from burnish.sandbox.images.cli import image_app

if TYPE_CHECKING:
    from burnish.config import EvalOptions
    from burnish.types import Task

EVIDENCE_LINES = 20  # of a boundary error that are shown; the run directory has the rest
SUITES = ("humaneval", "heldout", "train")

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Post-train a model."
)
tasks_app = typer.Typer(no_args_is_help=True, help="Look at tasks, as the policy sees them.")
app.add_typer(sandbox_app, name="sandbox")
app.add_typer(tasks_app, name="tasks")
app.add_typer(image_app, name="image")
app.add_typer(run_app, name="run")


def main() -> NoReturn:
    """Runs the command and exits. BURNISH_DEBUG=1 shows where an error came from."""
    try:
        app(prog_name="burnish")
    except (UserError, BoundaryError) as error:
        if os.environ.get("BURNISH_DEBUG") == "1":
            traceback.print_exc()
        print(f"error: {_message(error)}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) or disk_full(error) else 1)
    sys.exit(0)


def disk_full(error: BaseException) -> bool:
    """Whether the run directory's disk, or the quota on it, was full: the user can mend that, nobody else.

    By its words and not by errno, since the learner, which writes the large files, is another process.
    """
    words = [os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT)]
    return isinstance(error, StoreError) and any(word in error.cause for word in words)


def _message(error: UserError | BoundaryError) -> str:
    if isinstance(error, UserError):
        return str(error)
    evidence = error.evidence.strip().splitlines()[-EVIDENCE_LINES:]
    return "\n".join([str(error), *(f"  | {line}" for line in evidence)])


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A YAML file; see docs/configuration.md.", metavar="RECIPE")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Keys to change, e.g. learner.lr=1e-5.", metavar="[KEY=VALUE]...")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the newest run of this recipe's name, or --run-dir.")
    ] = False,
    run_dir: Annotated[Path | None, typer.Option(help="The run directory. Default: a new one in runs_dir.")] = None,
    force_config: Annotated[
        bool, typer.Option("--force-config", help="Resume although the configuration differs.")
    ] = False,
) -> None:
    """Post-train a model as RECIPE describes."""
    from burnish.config_load import load_config, newest_run

    config = load_config(recipe, overrides or [])
    if force_config and not resume:
        raise UserError("--force-config means nothing without --resume", fix="add --resume, or leave it out")
    if resume and run_dir is None:
        run_dir = newest_run(config)
    if resume and run_dir is not None and not run_dir.is_dir():
        raise UserError("no such run directory to continue", where=str(run_dir))

    from burnish.train import train as run_training

    raise typer.Exit(run_training(config, run_dir=run_dir, resume=resume, force_config=force_config))


@app.command()
def chaos(
    recipe: Annotated[Path, typer.Argument(help="A YAML file, such as recipes/chaos.yaml.", metavar="RECIPE")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Keys to change.", metavar="[KEY=VALUE]...")] = None,
    run_dir: Annotated[Path, typer.Option(help="The run directory: a new one, or one to go on in.")] = Path(
        "runs/chaos"
    ),
    kill: Annotated[
        str, typer.Option(help="What is struck: run, engine, learner, sandbox.")
    ] = "run,engine,learner,sandbox",
    strikes: Annotated[int, typer.Option(help="How many strikes; then the run is left in peace.", min=0)] = 20,
    rate: Annotated[float, typer.Option(help="Strikes a minute, at random moments.")] = 4.0,
    stop: Annotated[
        float, typer.Option(help="Share of strikes that only stop a process, for 5 s.", min=0, max=1)
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Of the strikes.")] = 0,
) -> None:
    """Run RECIPE under random deaths, resuming it, and check its books. Exit code 0 when they are clean."""
    from burnish.chaos import ChaosPlan, put_through
    from burnish.config_load import load_config
    from burnish.run_cli import account_for

    load_config(recipe, overrides or [])  # a wrong recipe is said here, once
    plan = ChaosPlan(targets=kill.split(","), num_strikes=strikes, per_minute=rate, stop_share=stop, seed=seed)
    ordeal = put_through([str(recipe), *(overrides or [])], run_dir, plan, tell=typer.echo)
    for what, num in sorted(ordeal.strikes.items()):
        typer.echo(f"  {what:<16} {num:>4}")
    typer.echo(f"  processes        {ordeal.num_processes:>4}, strikes without a target {ordeal.num_missed}")
    if ordeal.exit_code != 0:
        typer.echo(f"the run ended with code {ordeal.exit_code}")
    is_clean = account_for(str(run_dir))
    raise typer.Exit(0 if is_clean and ordeal.exit_code == 0 else ordeal.exit_code or 1)


@app.command("eval")
def evaluate(
    suite: Annotated[str, typer.Option(help="humaneval, heldout, train, or the path of a .jsonl file.")],
    model: Annotated[str | None, typer.Option(help="A model directory, or the built-in model's name.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server instead.")] = None,
    endpoint_model: Annotated[str | None, typer.Option(help="The name the server knows the model by.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable with the server's key.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Attempts per task.")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, max=2.0, help="0 is greedy.")] = 0.0,
    turns: Annotated[int, typer.Option(min=1, help="Answers an attempt may give.")] = 1,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Sampled tokens per turn.")] = 512,
    out: Annotated[Path | None, typer.Option(help="Write the result here as JSON.")] = None,
    compare: Annotated[Path | None, typer.Option(help="An earlier result to compare with, task by task.")] = None,
) -> None:
    """Measure a model on a suite: pass@k with intervals, both denominators."""
    from burnish.config import EvalOptions

    options = EvalOptions(
        suite=suite,
        model=model,
        endpoint=endpoint,
        endpoint_model=endpoint_model,
        api_key_env=api_key_env,
        samples=samples,
        temperature=temperature,
        turns=turns,
        max_new_tokens=max_new_tokens,
        out=out,
        compare=compare,
    )
    _check_eval(options)

    from burnish.evaluate.run import run_eval

    raise typer.Exit(run_eval(options))


def _check_eval(options: "EvalOptions") -> None:
    """Says what does not fit together before a model is loaded."""
    if options.suite not in SUITES and not (options.suite.endswith(".jsonl") and Path(options.suite).is_file()):
        allowed = f"{', '.join(SUITES)}, or the path of an existing .jsonl file"
        raise UserError(f"no such suite: {options.suite!r}", where="--suite", fix=f"choose {allowed}")
    if (options.model is None) == (options.endpoint is None):
        found = "neither is given" if options.model is None else "both are given"
        raise UserError(f"one of --model and --endpoint is needed, {found}", where="--model")
    for flag, value in (("--endpoint-model", options.endpoint_model), ("--api-key-env", options.api_key_env)):
        if options.endpoint is None and value is not None:
            raise UserError("means nothing without --endpoint", where=flag)
    if options.endpoint is not None and options.endpoint_model is None:
        raise UserError("needed with --endpoint", where="--endpoint-model", fix="give the name the server knows")
    if options.api_key_env is not None and options.api_key_env not in os.environ:
        raise UserError(f"the environment variable {options.api_key_env} is not set", where="--api-key-env")
    if options.compare is not None and not options.compare.is_file():
        raise UserError("no such file", where=f"--compare {options.compare}", fix="make one with burnish eval --out")


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]) -> None:
    """Show what a run did, and write its report as one HTML file."""
    if not run.is_dir():
        raise UserError("no such run directory", where=str(run))
    from rich.console import Console

    from burnish.observe.report import render_terminal, write_report

    Console().print(render_terminal(run))
    typer.echo(f"report: {write_report(run)}")


@tasks_app.command("list")
def tasks_list(
    source: Annotated[str, typer.Option(help="builtin:train, builtin:heldout, humaneval, or a .jsonl file.")] = (
        "builtin:train"
    ),
) -> None:
    """List the tasks of a source, one a line: id, band, family."""
    from burnish.tasks.load import load_tasks

    for task in load_tasks(source).tasks:
        typer.echo(f"{task.id:<40} {task.band:<7} {task.family}")


@tasks_app.command("show")
def tasks_show(
    task_id: Annotated[str, typer.Argument(help="A task's id, from `burnish tasks list`.", metavar="ID")],
    source: Annotated[str | None, typer.Option(help="Where to look. Default: the built-in tasks.")] = None,
) -> None:
    """Show the public part of a task; hidden tests and the reference stay hidden."""
    from burnish.tasks.load import load_tasks

    sources = [source] if source else ["builtin:train", "builtin:heldout"]
    tasks = {task.id: task for name in sources for task in load_tasks(name).tasks}
    if task_id not in tasks:
        raise UserError(f"no such task in {' or '.join(sources)}", where=task_id, fix=_closest(task_id, list(tasks)))
    for line in _public_lines(tasks[task_id]):
        typer.echo(line)


def _closest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else "see `burnish tasks list`"


def _public_lines(task: "Task") -> Iterator[str]:
    yield f"{task.id}  ({task.band}, family {task.family}, defines {task.entry_point})"
    yield ""
    yield task.instruction
    yield ""
    for case in task.examples:
        yield f"    {case.expr} == {case.expected}"
    for name, text in task.files.items():
        yield f"\n--- {name}\n{text}"


@app.command()
def version() -> None:
    """Print burnish's version."""
    typer.echo(f"burnish {__version__}")
