"""What every command shares: where things are printed, what is refused, and with which exit code.

Standard output carries the result (with `--json`: one document and nothing else); progress, logs and complaints
go to standard error. Exit 0: done; 1: ran, but a goal that was asked for was missed; 2: bad input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

GOAL_MISSED = 1
BAD_INPUT = 2

complaints = Console(stderr=True, highlight=False)
results = Console(highlight=False)


@contextmanager
def nothing_printed() -> Iterator[None]:
    """Sends to standard error what libraries write to standard output past Python, such as a solver's log."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on standard output; numbers that are not finite become null."""
    encoded = msgspec.json.encode(document, enc_hook=_plain)
    print(msgspec.json.format(encoded, indent=2).decode())


def _plain(value: Any) -> Any:
    """What JSON has no word for: NumPy's numbers and arrays as numbers and lists, anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table on standard output, numbers to the right and with few digits."""
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    cells = [list(row) for row in rows]
    for number, column in enumerate(columns):
        numeric = any(isinstance(row[number], int | float) for row in cells)
        table.add_column(column, justify="right" if numeric else "left")
    for row in cells:
        table.add_row(*(shown(value) for value in row))
    results.print(table)


def print_constraints(constraints: Sequence[Mapping[str, Any]]) -> None:
    """How the latency goals of a run or a simulation fared, if it has any."""
    if not constraints:
        return
    columns = ["name", "bound ms", "held in % of intervals", "unknown in %"]
    rows = []
    for c in constraints:
        held = None if c["held"] is None else 100 * c["held"]
        rows.append([c["name"], c["bound_ms"], held, 100 * c["unknown"], c["mean_ms"], c["p95_ms"]])
    print_table("Constraints", [*columns, "mean of intervals, ms", "p95 of intervals, ms"], rows)


def shown(value: Any) -> str:
    """A value as people read it."""
    from penstock.policies.wording import shown as in_words  # heavy, and no command's help needs it

    return in_words(value)
