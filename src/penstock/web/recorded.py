"""A run of a journal, afterwards or while another process writes it, as a page."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.control import JournalError, Run, SqliteJournal
from penstock.errors import InputError
from penstock.web.history import History
from penstock.web.metrics import Metrics
from penstock.web.page import page_html

PLACEMENTS_READ = 120
"""Full snapshots are large: so many, evenly spread, tell where partitions were."""
FILE_POINTS = 2000
"""Points of a chart in a file, which cannot ask for more."""


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


class RecordedPage:
    """The page of a run; cycles that are written meanwhile appear on it. Nothing can be changed from here."""

    def __init__(self, journal: SqliteJournal, run: Run) -> None:
        self._journal, self._run = journal, run
        self._lock = threading.Lock()
        self._number = 0
        self._metrics = Metrics()
        self.history = History(title=run.dataflow, version=run.version, run=run)
        self._read()
        # Snapshots in full may be of a version that this one cannot read; the cycles tell enough without them.
        with suppress(JournalError):
            for snapshot in journal.snapshots(run.id, at_most=PLACEMENTS_READ):
                self.history.see(snapshot)

    def state(self, *, last_s: float | None, points: int) -> dict[str, Any]:
        """The document of the page."""
        self._read()
        return self.history.document(last_s=last_s, points=points)

    def metrics(self) -> bytes:
        """What can be counted from the journal."""
        return self._metrics.text()

    def change(self, wanted: bytes) -> None:
        """Refused: whoever runs the loop has a page that can."""
        raise InputError("this page shows a journal; goals are changed on the page of the run itself")

    def _read(self) -> None:
        with self._lock:
            new = 0
            for cycle in self._journal.cycles(self._run.id, after=self._number):
                self.history(cycle, None)
                self._metrics(cycle, None)
                self._number, new = cycle.number, new + 1
            with suppress(JournalError):
                last = self._journal.last_snapshot(self._run.id) if new else None
                if last is not None:
                    self.history.see(last)


def write_page(journal: SqliteJournal, run: Run, out: Path) -> None:
    """Write the page of a run as one HTML file that needs nothing else."""
    document = RecordedPage(journal, run).history.document(points=FILE_POINTS)
    text = page_html(document, title=f"Penstock: {run.dataflow}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise InputError(f"cannot write '{out}': {problem.strerror}") from problem
