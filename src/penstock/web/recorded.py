"""A run of a journal, afterwards or while another process writes it, as a page."""

from __future__ import annotations

from penstock.control import JournalError, Run, SqliteJournal
from penstock.web.history import History

PLACEMENTS_READ = 120
"""Full snapshots are large: so many, evenly spread, tell where partitions were."""


def run_called(journal: SqliteJournal, name: str) -> Run:
    """The run of that id; `last` is the newest. `JournalError` if there is none."""
    known = journal.runs()
    if not known:
        raise JournalError(f"journal '{journal.path}' holds no run yet")
    found = known[-1] if name == "last" else next((run for run in known if run.id == name), None)
    if found is None:
        latest = ", ".join(run.id for run in known[-8:])
        raise JournalError(f"journal '{journal.path}' has no run '{name}'; it has {latest}")
    return found


def history_of(journal: SqliteJournal, run: Run) -> History:
    """Everything the journal tells about a run."""
    history = History(title=run.dataflow, version=run.version, run=run)
    for cycle in journal.cycles(run.id):
        history(cycle, None)
    for snapshot in journal.snapshots(run.id, at_most=PLACEMENTS_READ):
        history.see(snapshot)
    return history
