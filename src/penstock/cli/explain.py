"""`penstock explain`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.output import print_json, results
from penstock.errors import InputError


def explain(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="A run's id, or 'last'.")] = "last",
    journal: options.Journal = None,
    json: options.Json = False,
) -> None:
    """Tell what was decided in a run, why, and what it changed."""
    from penstock.api.journals import DEFAULT_JOURNAL
    from penstock.control import SqliteJournal, as_text
    from penstock.control import explain as explain_run

    path = journal or DEFAULT_JOURNAL
    if not path.exists():
        raise InputError(f"there is no journal '{path}'; 'penstock run' and 'simulate --journal' write one")
    with SqliteJournal(path) as opened:
        known = [r.id for r in opened.runs()]
        if not known:
            raise InputError(f"journal '{path}' holds no run yet")
        chosen = known[-1] if run == "last" else run
        if chosen not in known:
            raise InputError(f"journal '{path}' has no run '{run}'; it has {', '.join(known[-8:])}")
        explanation = explain_run(opened, chosen)
    if json:
        print_json(dataclasses.asdict(explanation))
    else:
        results.print(as_text(explanation, width=min(results.width, 110)), markup=False, soft_wrap=True)
