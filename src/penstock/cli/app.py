"""The list of commands, each in a module of its own.

A command is a function whose parameters are its options and whose docstring is its help; several under one name are a
`typer.Typer` called `app`. Their modules import at the top only what is quick to import, and the rest inside the
function, so that `penstock --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer
from rich.markup import escape

from penstock.cli import cluster
from penstock.cli.bench import bench
from penstock.cli.dashboard import dashboard
from penstock.cli.doctor import doctor
from penstock.cli.explain import explain
from penstock.cli.output import BAD_INPUT, complaints
from penstock.cli.place import place
from penstock.cli.plan import plan
from penstock.cli.repartition import repartition
from penstock.cli.reproduce import reproduce
from penstock.cli.run import run
from penstock.cli.simulate import simulate
from penstock.cli.state import state
from penstock.cli.whatif import whatif
from penstock.errors import UserError

app = typer.Typer(
    name="penstock",
    help="The autopilot for Spark Structured Streaming: hold latency, accuracy and cost goals while load and "
    "machines change.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def submit() -> None:
    """Run a PySpark program as it is, under control; `penstock submit --help` has the options."""
    # Only for the list of commands: programs run past typer.


def attach() -> None:
    """Control a driver of any language from beside it; `penstock attach --help` has the options."""
    # Only for the list of commands: its options are those of submit.


for command in (
    run,
    submit,
    attach,
    dashboard,
    whatif,
    simulate,
    plan,
    place,
    explain,
    doctor,
    state,
    repartition,
    reproduce,
    bench,
):
    app.command()(command)
app.add_typer(cluster.app, name="cluster")


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    if sys.argv[1:2] == ["submit"]:
        # Not through typer, which has its own ways with errors and signals: these are the program's.
        from penstock_submit import command

        command()
        sys.exit(0)
    try:
        if sys.argv[1:2] == ["attach"]:
            from penstock.cli.attach import attach as beside

            beside(sys.argv[2:])
        else:
            app()
    except BrokenPipeError:
        # Somebody's `| head` has seen enough; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except UserError as problem:
        complaints.print(f"[bold red]penstock:[/] {escape(str(problem))}", soft_wrap=True)
        sys.exit(BAD_INPUT)
    sys.exit(0)
