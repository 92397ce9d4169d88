"""`penstock explain`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.output import print_json, results


def explain(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="A run's id, or 'last'.")] = "last",
    journal: options.Journal = None,
    json: options.Json = False,
) -> None:
    """Tell what was decided in a run, why, and what it changed."""
    from penstock.api.journals import recorded_run
    from penstock.control import as_text
    from penstock.control import explain as explain_run

    with recorded_run(journal, run) as (opened, chosen):
        explanation = explain_run(opened, chosen.id)
    if json:
        print_json(dataclasses.asdict(explanation))
    else:
        results.print(as_text(explanation, width=min(results.width, 110)), markup=False, soft_wrap=True)
