"""`penstock explain`: a run of the journal as a story."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from penstock.cli.journals import DEFAULT_JOURNAL
from penstock.cli.output import InputError, print_json, results
from penstock.control import JournalError, SqliteJournal, as_text, explain


def explain_run(run: str, path: Path | None, *, as_json: bool) -> None:
    """Print the explanation of a run; `last` is the newest one."""
    journal = path or DEFAULT_JOURNAL
    if not journal.exists():
        raise InputError(
            f"there is no journal '{journal}'; 'penstock run' and 'simulate --journal' write one"
        )
    try:
        with SqliteJournal(journal) as opened:
            known = [r.id for r in opened.runs()]
            if not known:
                raise InputError(f"journal '{journal}' holds no run yet")
            chosen = known[-1] if run == "last" else run
            if chosen not in known:
                raise InputError(f"journal '{journal}' has no run '{run}'; it has {', '.join(known[-8:])}")
            explanation = explain(opened, chosen)
    except JournalError as problem:
        raise InputError(str(problem)) from problem
    if as_json:
        print_json(dataclasses.asdict(explanation))
    else:
        results.print(as_text(explanation, width=min(results.width, 110)), markup=False, soft_wrap=True)
