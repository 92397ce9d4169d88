"""Dataflows and functions that the tests of compiling share."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from penstock.dataflow import Load, constant
from penstock.dataflow.connectors import foreach_batch, replay
from penstock.dataflow.graph import Connector
from penstock.spark.query.sampling import unit_hashes

KEYS = 7


def numbers(start: int, stop: int) -> pa.RecordBatch:
    """Records `start` to `stop`: their number, a key, and a text."""
    n = np.arange(start, stop)
    return pa.RecordBatch.from_pydict(
        {"number": n, "key": n % KEYS, "text": [f"item {i}" for i in n]},
        schema=pa.schema([("number", pa.int64()), ("key", pa.int64()), ("text", pa.string())]),
    )


def replayed(rate_rps: float = 2000.0, *, load: Load | None = None, **options: Any) -> Connector:
    """A source of `numbers`."""
    return replay(generator=numbers, load=load or constant(rate_rps), **options)


def arrow_even(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(pc.bit_wise_and(batch.column("number"), 1), 0))


def pandas_square(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"number": frame["number"], "key": frame["key"], "square": frame["number"] ** 2})


def record_twice(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"number": record["number"], "copy": i} for i in range(2)]


def record_minus(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "number": -record["number"]}


def keyed_sums(key: tuple[int], rows: pd.DataFrame, state: tuple[int, int] | None) -> tuple[Any, Any]:
    count, total = state or (0, 0)
    count, total = count + len(rows), total + int(rows["number"].sum())
    return pd.DataFrame({"key": [key[0]], "count": [count], "total": [total]}), (count, total)


class Collected:
    """A sink that keeps the rows it gets, by batch, so that a batch that comes twice replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[dict[str, Any]]] = {}

    def connector(self) -> Connector:
        return foreach_batch(self)

    def __call__(self, frame: Any, batch_id: int) -> None:
        self.batches[batch_id] = [row.asDict() for row in frame.collect()]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def values(self, column: str = "number") -> list[Any]:
        return sorted(row[column] for row in self.rows)


def kept_rows(rows: pa.RecordBatch, share: float, by: tuple[str, ...] = ()) -> pa.RecordBatch:
    """The records of a source that a shedder leaves which keeps `share` by the columns `by`."""
    return rows.filter(pa.array(unit_hashes(rows, by) < share))
