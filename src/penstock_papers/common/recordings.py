"""Recorded data as a source: a CSV file without a header line, played in the order of its own event times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.dataflow import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A generator of the file's rows, for `replay`; beyond the end they come again, later by the file's length.

    Rows are sorted by the first of `times` (a stable sort), because what follows counts on time going forward.
    """

    path: str
    columns: tuple[tuple[str, str], ...]
    """Name and Arrow type of each column of the file; a `timestamp[s]` becomes seconds of the epoch."""
    keep: tuple[str, ...]
    """Those to play, in order."""
    times: tuple[str, ...]
    """Columns of event times, in seconds."""

    def __call__(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows number `start` to `stop`."""
        rows = _read(self)
        if not rows.num_rows:
            raise ValueError(f"'{self.path}' has no rows to play")
        numbers = np.arange(start, stop)
        played = rows.take(pa.array(numbers % rows.num_rows))
        first, last = rows.column(self.times[0])[0].as_py(), rows.column(self.times[0])[-1].as_py()
        later = pa.array(numbers // rows.num_rows * (last - first + 1))
        for name in self.times:
            at = played.schema.get_field_index(name)
            played = played.set_column(at, name, pc.add(played.column(at), later))
        return played

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return int(_read(self).num_rows)


def finite(records: int, rate_rps: float) -> Load:
    """A load that produces so many records and then nothing.

    >>> finite(700, 1e6).records_until(60.0)
    700.0
    """
    return Load((0.0, records / rate_rps), (float(rate_rps), 0.0))


@cache
def _read(recording: Recording) -> pa.RecordBatch:
    names = [name for name, _ in recording.columns]
    types: Mapping[str, pa.DataType] = {
        name: pa.timestamp("s") if kind == "timestamp[s]" else pa.type_for_alias(kind)
        for name, kind in recording.columns
    }
    table = pa.csv.read_csv(
        recording.path,
        read_options=pa.csv.ReadOptions(column_names=names),
        convert_options=pa.csv.ConvertOptions(column_types=dict(types), include_columns=list(recording.keep)),
    )
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
    order = np.argsort(table.column(recording.times[0]).to_numpy(), kind="stable")
    batches = table.take(pa.array(order)).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
