"""Tables of records that compiled code reaches by pointer.

Compiled functions get one record, the world, with scalars and the addresses of all tables, and reach a row as
`tasks(w, t)`: a plain pointer, for nothing is counted, copied or passed along on the way. Handing dozens of arrays
from function to function instead took ten times as long to run and to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

Rows = NDArray[np.void]
World = Any
"""A record of the schema's world, in compiled functions."""

I, F, U = np.int64, np.float64, np.uint64
Columns = list[tuple[str, type]]

CELL = np.dtype([("value", F)])
COUNT = np.dtype([("value", I)])


def ints(*names: str) -> Columns:
    """Columns of whole numbers."""
    return [(name, I) for name in names]


def floats(*names: str) -> Columns:
    """Columns of numbers."""
    return [(name, F) for name in names]


def sums(name: str) -> Columns:
    """Columns for count, sum and sum of squares of one quantity."""
    return floats(f"{name}_n", f"{name}_1", f"{name}_2")


class Schema:
    """Which tables there are and which scalars stand beside them."""

    def __init__(self, scalars: Columns, tables: Mapping[str, np.dtype[Any]]) -> None:
        self.tables = dict(tables)
        self.world = np.dtype([*scalars, *((name, I) for name in tables)])

    def rows(self, name: str) -> Callable[[World, int], Any]:
        """A function for compiled code: a row of the table, by reference."""
        record, size = numba.from_dtype(self.tables[name]), self.tables[name].itemsize
        fields = self.world.fields
        assert fields is not None
        offset = fields[name][1]

        @intrinsic
        def row(typing: Any, world: Any, index: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                world, index = arguments
                word = index.type
                place = builder.add(builder.ptrtoint(world, word), word(offset))
                table = builder.load(builder.inttoptr(place, word.as_pointer()))
                address = builder.add(table, builder.mul(index, word(size)))
                return builder.inttoptr(address, context.get_value_type(record))

            return record(world, types.int64), code

        return cast(Callable[[World, int], Any], row)


class Tables:
    """The tables as NumPy sees them. Exchanging one for a larger one tells compiled code its new address."""

    def __init__(self, schema: Schema, scalars: Mapping[str, float]) -> None:
        self._schema = schema
        self._world = np.zeros(1, schema.world)
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, value in scalars.items():
            self._world[name] = value

    @property
    def w(self) -> World:
        """What compiled functions are given."""
        return self._world[0]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __setitem__(self, name: str, rows: NDArray[Any]) -> None:
        dtype = self._schema.tables[name]
        dtype = dtype if rows.dtype.fields else dtype["value"]
        if rows.dtype != dtype or not rows.flags.c_contiguous:
            raise TypeError(f"table '{name}' must be contiguous and of type {dtype}, not {rows.dtype}")
        self._arrays[name] = rows
        self._world[name] = rows.ctypes.data


def chained(rows: Rows, used: int, end: int = -1) -> Rows:
    """The rows, those from `used` on linked into a free list that ends with `end`."""
    rows["next"][used:-1] = np.arange(used + 1, len(rows))
    rows["next"][-1] = end
    return rows


def enlarged(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """The rows and as many zero ones behind them as make `count`."""
    grown = np.zeros((count, *rows.shape[1:]), rows.dtype)
    grown[: len(rows)] = rows
    return grown
