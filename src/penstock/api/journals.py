"""Where runs are kept."""

from __future__ import annotations

from pathlib import Path

from penstock.control import JournalError, SqliteJournal
from penstock.errors import InputError

DEFAULT_JOURNAL = Path(".penstock/runs.sqlite")


def open_journal(path: Path) -> SqliteJournal:
    """The journal in a file, which is made if it is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return SqliteJournal(path)
    except (JournalError, OSError) as problem:
        raise InputError(f"cannot open journal '{path}': {problem}") from problem
