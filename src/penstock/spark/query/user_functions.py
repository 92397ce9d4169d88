"""Calling users' functions in the form they take, and getting Arrow batches back that still tell where rows come from.

Some columns travel with a record through functions that know nothing of them: its true source time (`source_time`) and
its sample (`sampling`). A function that returns them keeps their values. Where it leaves them out: a record function's
results have those of the record they came from; as many rows as came in have theirs, in order. Otherwise the rows are
new records: all have the latest time of the batch, no hash yet, and the mean weight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.dataflow.graph import Takes
from penstock.spark.query.sampling import HASH, SAMPLE, WEIGHT

SOURCE_TIME = "source_time"
SOURCE_TIME_TYPE = pa.timestamp("us", tz="UTC")
CARRIED = (SOURCE_TIME, *SAMPLE)

Records = list[dict[str, Any]]


class ResultError(TypeError):
    """A user's function that returned something its operator cannot pass on."""


def arrow_schema(columns: StructType, zone: str = "UTC") -> pa.Schema:
    """The Arrow schema Spark uses for these columns in a session of that time zone, all of them nullable."""
    try:
        found = to_arrow_schema(columns, timezone="UTC")
    except TypeError:  # before 4.2 UTC is the default and the parameter has another name
        found = to_arrow_schema(columns)
    return pa.schema([pa.field(field.name, _in_zone(field.type, zone)) for field in found])


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    return pa.timestamp(kind.unit, tz=zone) if pa.types.is_timestamp(kind) and kind.tz else kind


def columns_of(text: str) -> StructType:
    """Columns as declared, `id long, text string`; needs a running Spark."""
    columns = StructType.fromDDL(text)
    assert isinstance(columns, StructType)
    return columns


def call(
    function: Callable[..., Any], takes: Takes, batch: pa.RecordBatch, schema: pa.Schema
) -> tuple[pa.RecordBatch, float]:
    """What `function` makes of the batch, in `schema`, and the sum of squared deviations of its times per record.

    Only a record function tells the latter; it is 0 otherwise.
    """
    if takes == "record":
        return _call_records(function, batch, schema)
    given = batch if takes == "arrow" else batch.to_pandas()
    return finished(function(given), batch, schema), 0.0


def finished(result: Any, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The result of a function that got the whole batch, with the columns that travel along."""
    rows = as_batch(result, schema)
    same = rows.num_rows == batch.num_rows
    for name in _carried(batch, schema):
        if rows.schema.get_field_index(name) < 0:
            column = batch.column(name)
            rows = rows.append_column(name, column if same else of_new_records(name, column, rows.num_rows))
    return conform(rows, schema)


def of_new_records(name: str, column: pa.Array, count: int) -> pa.Array:
    """What `count` records that came from all records of a column carry."""
    if name == HASH:
        return pa.nulls(count, column.type)
    return pa.repeat(pc.mean(pc.fill_null(column, 1.0)) if name == WEIGHT else pc.max(column), count)


def _carried(batch: pa.RecordBatch, schema: pa.Schema) -> list[str]:
    return [name for name in CARRIED if name in schema.names and name in batch.schema.names]


def _call_records(
    function: Callable[..., Any], batch: pa.RecordBatch, schema: pa.Schema
) -> tuple[pa.RecordBatch, float]:
    results: Records = []
    origin: list[int] = []
    marks = [time.perf_counter()]
    for i, record in enumerate(as_records(without_sample(batch))):
        result = function(record)
        if result is None:
            pass
        elif isinstance(result, dict):
            results.append(result)
            origin.append(i)
        else:
            before = len(results)
            results.extend(_checked(result))
            origin.extend([i] * (len(results) - before))
        marks.append(time.perf_counter())
    spent = np.diff(marks)
    m2 = float(np.sum((spent - spent.mean()) ** 2)) if spent.size else 0.0
    rows = pa.array(origin, pa.int64())
    return from_records(results, schema, {n: batch.column(n).take(rows) for n in _carried(batch, schema)}), m2


def without_sample(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without the columns of sampling."""
    return batch.select([name for name in batch.schema.names if name not in SAMPLE])


def as_records(batch: pa.RecordBatch) -> Records:
    """The rows as dicts; a timestamp is an aware datetime in UTC."""
    columns = [_values(column) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def from_records(records: Records, schema: pa.Schema, carried: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Dicts as a batch with the given columns; a key without a column is left out, a missing one null."""
    arrays = [
        carried[field.name].cast(field.type)
        if field.name in carried
        else pa.array([record.get(field.name) for record in records], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_batch(result: Any, schema: pa.Schema) -> pa.RecordBatch:
    """What a function returned, as one Arrow batch."""
    if isinstance(result, pa.RecordBatch):
        return result
    if result is None:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=result.schema)
    if isinstance(result, pd.DataFrame):
        missing = [name for name in schema.names if name not in result.columns and name not in CARRIED]
        if missing:
            raise ResultError(
                f"column '{missing[0]}' is missing; the function returned {list(result.columns)}"
            )
        wanted = pa.schema([field for field in schema if field.name in result.columns])
        return pa.RecordBatch.from_pandas(result, schema=wanted, preserve_index=False)
    raise ResultError(
        f"a function must return a pyarrow RecordBatch or Table, or a DataFrame, not {type(result).__name__}"
    )


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with exactly the columns of `schema`, in its order and types."""
    given = batch.schema
    if given == schema or (given.names == schema.names and given.types == schema.types):
        return batch  # at most they differ in which columns may be null
    arrays = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            raise ResultError(f"column '{field.name}' is missing; there are {', '.join(batch.schema.names)}")
        column = batch.column(at)
        arrays.append(_typed(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    zoned = pa.types.is_timestamp(kind) and kind.tz and getattr(column.type, "tz", None)
    if zoned and column.type.unit == kind.unit:
        return column.view(kind)  # the same moments under another zone's name: nothing to compute
    return column.cast(kind)


def _values(column: pa.Array) -> list[Any]:
    # pyarrow makes an aware datetime in 5-20 µs, NumPy a naive one in 0.1 µs.
    if pa.types.is_timestamp(column.type) and column.type.unit != "ns":
        naive = column.to_numpy(zero_copy_only=False).astype("datetime64[us]").tolist()
        if column.type.tz is None:
            return list(naive)
        return [None if t is None else t.replace(tzinfo=UTC) for t in naive]
    return list(column.to_pylist())


def _checked(result: Iterable[Any]) -> Iterable[dict[str, Any]]:
    if isinstance(result, str | bytes) or not isinstance(result, Iterable):
        raise ResultError(
            f"a record function must return a dict, several, or None, not {type(result).__name__}"
        )
    return result
