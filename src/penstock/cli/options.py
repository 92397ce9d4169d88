"""Options that several commands have: each is declared here, once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import InputError

Flow = Annotated[
    str, typer.Argument(metavar="FLOW", help="A YAML file, a .py file with a 'flow', or a workload's name.")
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on standard output, nothing else there.")
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", "-p", metavar="NAME", help="Policy to run; several: repeat or separate by commas."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="POLICY.OPTION=VALUE",
        help="Change an option of a chosen policy, or of the loop (loop.OPTION).",
    ),
]
Interval = Annotated[float, typer.Option(help="Seconds between two decisions.", min=0.1)]
Seed = Annotated[int, typer.Option(help="Seed of every random draw.", min=0)]
Classes = Annotated[
    str, typer.Option(metavar="FILE|SET", help="Machine classes: a YAML file, or current, m1 or spot.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Decide and explain, do nothing.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Write plots into this folder.")]
Journal = Annotated[Path | None, typer.Option(help="Journal file; default: .penstock/runs.sqlite.")]
Ui = Annotated[
    str | None, typer.Option(metavar="PORT", help="Serve the live page on this port, or HOST:PORT.")
]


def pairs(option: str, words: Sequence[str] | None, form: str) -> dict[str, str]:
    """`KEY=VALUE` words as a mapping; `form` says in messages what the option takes."""
    found = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key.partition(".")[2]:
            raise InputError(f"{option} takes {form}, not '{word}'")
        found[key] = value
    return found


def settings(words: Sequence[str] | None) -> dict[str, str]:
    """What `--set` was given."""
    return pairs("--set", words, "POLICY.OPTION=VALUE")
