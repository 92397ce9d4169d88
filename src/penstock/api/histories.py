"""From what a user names to a history: a run of a journal, an event log, or a file of progress documents."""

from __future__ import annotations

from pathlib import Path

from penstock.api.journals import DEFAULT_JOURNAL
from penstock.control import SqliteJournal
from penstock.errors import InputError
from penstock.simulator.calibration.event_log import is_event_log, read_event_log
from penstock.simulator.calibration.history import History, settled
from penstock.simulator.calibration.journal import read_journal
from penstock.simulator.calibration.progress import read_progress

LAST = "last"
SQLITE = b"SQLite format 3\0"


def find_history(given: str | Path, journal: Path | None = None) -> History:
    """The settled history of a run (its id, or `last`), of an event log, or of a progress file.

    Raise an InputError that says what is wrong with a file that is broken, empty, cut off or something else.
    """
    path = Path(given)
    if given != LAST and path.exists():
        return settled(_in_file(path))
    kept = journal or DEFAULT_JOURNAL
    if not kept.exists():
        raise InputError(
            f"'{given}' is neither a file nor a run: there is no journal '{kept}'; "
            "name a run with --journal, an event log of Spark, or a file of progress JSON"
        )
    return settled(_in_journal(kept, str(given)))


def _in_file(path: Path) -> History:
    if path.is_dir():
        return read_event_log(path)
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE))
    except OSError as problem:
        raise InputError(f"'{path}' cannot be read: {problem}") from None
    if not start:
        raise InputError(f"'{path}' is empty")
    if start == SQLITE:
        return _in_journal(path, LAST)
    return read_event_log(path) if is_event_log(path) else read_progress(path)


def _in_journal(path: Path, run: str) -> History:
    with SqliteJournal(path, create=False) as opened:
        known = [r.id for r in opened.runs()]
        if not known:
            raise InputError(f"journal '{path}' holds no run yet")
        chosen = known[-1] if run == LAST else run
        if chosen not in known:
            raise InputError(f"journal '{path}' has no run '{run}'; it has {', '.join(known[-8:])}")
        return read_journal(opened, chosen)
