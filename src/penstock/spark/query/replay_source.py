"""The replay source: plays a file or a generator at the rate of a `Load`, each record with its true source time.

Record number i is due when the load has produced i + 1 records, whatever the query does meanwhile: what is due and
not yet read is the backlog. The offset holds the next number and the moment the clock started, so a query that is
started again continues with the next record on the same clock.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.dataflow.load import Load
from penstock.spark.query.function_shipping import PackedFunctions
from penstock.spark.query.user_functions import SOURCE_TIME, SOURCE_TIME_TYPE, arrow_schema, conform

NAME = "penstock-replay"
ADMISSION_CONTROL = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
"""Whether Spark tells a source where a batch begins and how long it may be (from 4.2 on)."""
ROWS_PER_ARROW_BATCH = 50_000

Offset = Mapping[str, Any]
"""`next`: number of the next record; `started_us`: when the clock began, microseconds of the epoch; `source`."""


ROUNDING = 1e-6
"""Of a record: as far as sums of rates may be off."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """When each record is due: the inverse of the load's running total, for many records at once."""

    load: Load

    def due_by(self, elapsed_s: float) -> int:
        """How many records are due after that long."""
        return int(np.floor(self.load.records_until(max(0.0, elapsed_s)) + ROUNDING))

    def due_s(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """When the records with these numbers are due, in seconds since the start; inf: never."""
        times, rates = np.asarray(self.load.times_s), np.asarray(self.load.rates_rps)
        period_s = self.load.period_s
        ends = np.append(times[1:], np.inf if period_s is None else period_s)
        with np.errstate(invalid="ignore"):
            produced = np.where(rates > 0, (ends - times) * rates, 0.0)
        totals = np.append(0.0, np.cumsum(produced))
        wanted = numbers.astype(np.float64) + 1.0
        whole = np.zeros(len(wanted))
        if period_s is not None:
            if not totals[-1] > 0:
                return np.full(len(wanted), np.inf)
            # The last record of a period is due within it, not at the start of the next.
            whole = np.ceil(wanted / totals[-1]) - 1.0
            wanted = wanted - whole * totals[-1]
        # The sums are rounded: only steps in which there are records can have one.
        busy = np.flatnonzero(produced > 0)
        if not len(busy):
            return np.full(len(wanted), np.inf)
        at = busy[np.minimum(np.searchsorted(totals[busy + 1], wanted - ROUNDING), len(busy) - 1)]
        due = np.where(wanted - ROUNDING <= totals[-1], times[at] + (wanted - totals[at]) / rates[at], np.inf)
        return due + (0.0 if period_s is None else whole * period_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What the source is told, as it travels in Spark's options."""

    source: str
    load: Load
    path: str | None = None
    generator: PackedFunctions | None = None
    partitions: int = 2
    rows: int | None = None
    """Records in all; None: without end."""
    max_rows_per_batch: int | None = None
    resume: Offset | None = None
    """Where a query that is started again continues, on a Spark that does not tell the source itself."""

    def to_spark(self) -> dict[str, str]:
        """The options as text."""
        generator = self.generator
        return {
            "times_s": json.dumps(self.load.times_s),
            "rates_rps": json.dumps(self.load.rates_rps),
            "period_s": json.dumps(self.load.period_s),
            "source": json.dumps(self.source),
            "path": json.dumps(self.path),
            "partitions": json.dumps(self.partitions),
            "rows": json.dumps(self.rows),
            "max_rows_per_batch": json.dumps(self.max_rows_per_batch),
            "resume": json.dumps(self.resume),
            "generator": json.dumps(
                generator and [base64.b64encode(generator.data).decode(), generator.digest]
            ),
        }

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> ReplayOptions:
        """The options that `to_spark` wrote."""
        times, rates = json.loads(options["times_s"]), json.loads(options["rates_rps"])
        packed = json.loads(options["generator"])
        names = ("source", "path", "partitions", "rows", "max_rows_per_batch", "resume")
        return cls(
            load=Load(tuple(times), tuple(rates), json.loads(options["period_s"])),
            generator=packed and PackedFunctions(base64.b64decode(packed[0]), packed[1]),
            **{name: json.loads(options[name]) for name in names},
        )


class ReplaySource(DataSource):
    """The data source `penstock-replay`; register it with `spark.dataSource.register`."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return NAME

    def schema(self) -> StructType:
        """Always given by whoever loads it."""
        raise NotImplementedError("load the replay source with a schema")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """The reader."""
        options = ReplayOptions.from_spark(self.options)
        reader = ReplayReader if ADMISSION_CONTROL else CountingReplayReader
        return reader(options, arrow_schema(schema))


class Numbers(InputPartition):
    """A run of record numbers for one task."""

    def __init__(self, start: int, stop: int, started_us: int) -> None:
        self.start, self.stop, self.started_us = start, stop, started_us


class _Reader(DataSourceStreamReader):
    """What both kinds of reader share."""

    def __init__(self, options: ReplayOptions, schema: pa.Schema) -> None:
        self.options, self.columns = options, schema
        self.timetable = Timetable(options.load)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The first record, with the clock starting now."""
        return self.offset(0, time.time_ns() // 1000)

    def offset(self, number: int, started_us: int) -> dict[str, Any]:
        """The offset before record `number`."""
        return {"next": number, "started_us": started_us, "source": self.options.source}

    def due(self, started_us: int) -> int:
        """How many records are due now."""
        due = self.timetable.due_by(time.time() - started_us / 1e6)
        return due if self.options.rows is None else min(due, self.options.rows)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Equal runs of numbers."""
        # Before the first commit `start` is a fresh initial offset after a restart: the clock is that of `end`.
        cuts = np.linspace(start["next"], end["next"], self.options.partitions + 1).astype(int).tolist()
        return [Numbers(a, b, end["started_us"]) for a, b in pairwise(cuts) if b > a]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a run, with their source times."""
        assert isinstance(partition, Numbers)
        for start in range(partition.start, partition.stop, ROWS_PER_ARROW_BATCH):
            stop = min(start + ROWS_PER_ARROW_BATCH, partition.stop)
            due_s = self.timetable.due_s(np.arange(start, stop))
            times = partition.started_us + np.rint(due_s * 1e6).astype(np.int64)
            rows = self._records(start, stop)
            if SOURCE_TIME not in rows.schema.names:
                rows = rows.append_column(SOURCE_TIME, pa.array(times).view(SOURCE_TIME_TYPE))
            yield conform(rows, self.columns)

    def _records(self, start: int, stop: int) -> pa.RecordBatch:
        if self.options.generator is not None:
            rows = self.options.generator.unpack()[0](start, stop)
            if rows.num_rows != stop - start:
                raise ValueError(f"the generator gave {rows.num_rows} rows for numbers {start} to {stop}")
            return rows
        assert self.options.path is not None
        table = read_file(self.options.path, self.columns)
        return table.take(pa.array(np.arange(start, stop) % len(table))).combine_chunks().to_batches()[0]


class ReplayReader(_Reader):
    """With admission control (Spark 4.2 and later)."""

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """At most the declared rows per batch."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        most = self.options.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: Any) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends."""
        self._started_us = start["started_us"]
        end = max(start["next"], self.due(self._started_us))
        most = getattr(limit, "max_rows", None)
        if most is not None:
            end = min(end, start["next"] + most)
        return self.offset(end, self._started_us)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """What is due, read or not."""
        started_us = getattr(self, "_started_us", None)
        return None if started_us is None else self.offset(self.due(started_us), started_us)


class CountingReplayReader(_Reader):
    """For Spark 4.1, where a source does not learn where the next batch begins.

    It counts along instead: from where the checkpoint left off, which it is told by option.
    """

    def __init__(self, options: ReplayOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._at: Offset | None = options.resume

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The first record; the same clock each time it is asked."""
        if self._at is None:
            self._at = super().initialOffset()
        return {**self._at, "next": 0}

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802  # as 4.1 declares it
        """Where the next batch ends."""
        at = self._at if self._at is not None else self.initialOffset()
        end = max(at["next"], self.due(at["started_us"]))
        if self.options.max_rows_per_batch is not None:
            end = min(end, at["next"] + self.options.max_rows_per_batch)
        self._at = self.offset(end, at["started_us"])
        return dict(self._at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What a replay source has produced and a query has not read."""

    records: int
    oldest_s: float
    """Age of the oldest of them; 0 when there is none."""


def backlog(load: Load, offset: Offset, now_s: float, *, rows: int | None = None) -> Backlog:
    """Records due at `now_s` (seconds of the epoch) beyond `offset`, as Spark's progress reports it."""
    timetable = Timetable(load)
    started_s = offset["started_us"] / 1e6
    due = timetable.due_by(now_s - started_s)
    due = due if rows is None else min(due, rows)
    waiting = max(0, due - offset["next"])
    if not waiting:
        return Backlog(records=0, oldest_s=0.0)
    first_s = float(timetable.due_s(np.array([offset["next"]]))[0])
    return Backlog(records=waiting, oldest_s=max(0.0, now_s - started_s - first_s))


def file_schema(path: str) -> pa.Schema:
    """The columns of a CSV or Parquet file, without reading all of it."""
    if _is_parquet(path):
        return pa.parquet.read_schema(path).remove_metadata()
    with pa.csv.open_csv(path) as reader:
        return reader.schema


def file_rows(path: str) -> int:
    """How many records a CSV or Parquet file has."""
    if _is_parquet(path):
        return int(pa.parquet.read_metadata(path).num_rows)
    with pa.csv.open_csv(path) as reader:
        return sum(batch.num_rows for batch in reader)


_files: dict[tuple[str, str], pa.Table] = {}


def read_file(path: str, columns: pa.Schema) -> pa.Table:
    """The file's records with these columns, read once per worker."""
    key = (path, str(columns))
    if key not in _files:
        wanted = [field for field in columns if field.name != SOURCE_TIME]
        if _is_parquet(path):
            table = pa.parquet.read_table(path)
        else:
            types = {field.name: field.type for field in wanted}
            table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=types))
        own = SOURCE_TIME in table.schema.names
        names = [field.name for field in wanted] + ([SOURCE_TIME] if own else [])
        _files[key] = table.select(names).combine_chunks()
    return _files[key]


def _is_parquet(path: str) -> bool:
    return path.lower().endswith((".parquet", ".pq"))
