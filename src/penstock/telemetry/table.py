"""Tables of a snapshot: columns of equal length, each of a type that says how it is filled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self, get_type_hints

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.telemetry.moments import Moments
from penstock.telemetry.sketch import Sketch

_NUMBERS: dict[Any, Any] = {Floats: np.float64, Ints: np.int64, Bools: np.bool_}
"""Type of a column of numbers to the type of each."""
_OTHERS: dict[Any, Callable[[int], Any]] = {
    Moments: Moments.empty,
    tuple[str, ...]: lambda rows: ("",) * rows,
    tuple[Sketch, ...]: lambda rows: (Sketch.empty(),) * rows,
}
"""Type of any other column to one of so many rows that holds nothing."""


LATER: Any = None
"""Default of a column that tables of earlier journals lack: it holds nothing there."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Columns of equal length; `blank` fills those not given with zeros (False, empty text, no observations)."""

    def __post_init__(self) -> None:
        table: Any = type(self)
        for lacking in [f.name for f in fields(self) if getattr(self, f.name) is None]:
            object.__setattr__(self, lacking, _column(_column_types(table)[lacking], len(self), None))
        lengths = {f.name: len(getattr(self, f.name)) for f in fields(self)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of {type(self).__name__} differ in length: {lengths}")

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    @classmethod
    def blank(cls, rows: int, **columns: Any) -> Self:
        """A table of `rows` rows with the given columns; scalars are repeated."""
        table: Any = cls
        types = _column_types(table)
        if unknown := sorted(columns.keys() - types.keys()):
            raise TypeError(f"{cls.__name__} has no column {', '.join(unknown)}")
        return cls(**{name: _column(kind, rows, columns.get(name)) for name, kind in types.items()})

    def with_columns(self, **columns: Any) -> Self:
        """The same table with some columns replaced."""
        return replace(self, **columns)


@cache
def _column_types(table: Any) -> dict[str, Any]:
    hints = get_type_hints(table)
    return {f.name: hints[f.name] for f in fields(table)}


def _column(kind: Any, rows: int, given: Any) -> Any:
    """The column as given, or one that holds nothing."""
    number = _NUMBERS.get(kind)
    if given is None:
        return _OTHERS[kind](rows) if number is None else np.zeros(rows, number)
    return given if number is None else np.broadcast_to(np.asarray(given, number), (rows,))
