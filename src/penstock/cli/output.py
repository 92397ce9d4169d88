"""What every command shares: where things are printed, what is refused, and with which exit code.

Standard output carries the result (with `--json`: one document and nothing else); progress, logs and complaints
go to standard error. Exit 0: done; 1: ran, but a goal that was asked for was missed; 2: bad input.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

GOAL_MISSED = 1
BAD_INPUT = 2

complaints = Console(stderr=True, highlight=False)
results = Console(highlight=False)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on standard output; numbers that are not finite become null."""
    print(json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [_plain(v) for v in value]
    return str(value)


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


def shown(value: Any) -> str:
    """A value as people read it."""
    from penstock.policies.wording import shown as in_words  # heavy, and no command's help needs it

    return in_words(value)
