"""Where runs are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.control import JournalError, Run, SqliteJournal
from penstock.errors import InputError
from penstock.web.recorded import run_called

DEFAULT_JOURNAL = Path(".penstock/runs.sqlite")


def open_journal(path: Path) -> SqliteJournal:
    """The journal in a file, which is made if it is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return SqliteJournal(path)
    except (JournalError, OSError) as problem:
        raise InputError(f"cannot open journal '{path}': {problem}") from problem


@contextmanager
def recorded_run(path: Path | None, name: str) -> Iterator[tuple[SqliteJournal, Run]]:
    """A run of a journal (the default one if none is named) by its id; `last` is the newest."""
    path = path or DEFAULT_JOURNAL
    if not path.exists():
        raise InputError(
            f"there is no journal '{path}'; 'penstock run', 'penstock submit' and 'simulate --journal' write one"
        )
    with SqliteJournal(path, create=False) as journal:
        yield journal, run_called(journal, name)
