"""Where results go: a native Spark sink when a dataflow has one sink, else one `foreachBatch` that serves all.

With several sinks the last stage emits the rows of all of them in one pass, each row with a bit mask of its sinks; the
batch is computed once, cached, and written to each sink in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import LongType, StructField, StructType

from penstock.dataflow.graph import Connector, Operator
from penstock.spark.query.user_functions import arrow_schema

MASK = "sinks"

BatchFunction = Callable[[DataFrame, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkMasks:
    """Rows for several sinks leave the last stage together; sinks with the same columns share them."""

    bits: Mapping[str, int]
    groups: Mapping[str, int]
    """Which set of columns a sink has."""
    columns: tuple[StructType, ...]
    layout: pa.Schema
    """`schema` in Arrow's terms."""

    @classmethod
    def of(cls, sinks: Mapping[str, StructType], zone: str = "UTC") -> SinkMasks:
        """The layout for these sinks and their columns."""
        distinct: list[StructType] = []
        groups = {}
        for sink, columns in sinks.items():
            if columns not in distinct:
                distinct.append(columns)
            groups[sink] = distinct.index(columns)
        bits = {sink: 1 << i for i, sink in enumerate(sinks)}
        layout = arrow_schema(_wide(tuple(distinct)), zone)
        return cls(bits=bits, groups=groups, columns=tuple(distinct), layout=layout)

    @property
    def schema(self) -> StructType:
        """What Spark sees."""
        return _wide(self.columns)

    def emit(self, leaving: list[tuple[str, pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        """One wide batch for each distinct batch, masked with all the sinks it goes to."""
        found: dict[int, tuple[pa.RecordBatch, int, int]] = {}
        for sink, batch in leaving:
            _, mask, _ = found.get(id(batch), (batch, 0, 0))
            found[id(batch)] = batch, mask | self.bits[sink], self.groups[sink]
        for batch, mask, group in found.values():
            arrays = [pa.array(np.full(batch.num_rows, mask))]
            for each, columns in enumerate(self.columns):
                kinds = [self.layout.field(len(arrays) + i).type for i in range(len(columns))]
                if each == group:
                    arrays += [batch.column(n).cast(k) for n, k in zip(columns.names, kinds, strict=True)]
                else:
                    arrays += [pa.nulls(batch.num_rows, kind) for kind in kinds]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.layout)

    def rows_of(self, sink: str, frame: DataFrame) -> DataFrame:
        """The rows for one sink, with its own columns."""
        group, names = self.groups[sink], self.columns[self.groups[sink]].names
        mine = frame.where(sql.col(MASK).bitwiseAND(sql.lit(self.bits[sink])) != 0)
        return mine.select(*(sql.col(f"{group}_{i}").alias(name) for i, name in enumerate(names)))


def _wide(sets: tuple[StructType, ...]) -> StructType:
    """The mask, then every set of columns, under names that cannot clash."""
    fields = [StructField(MASK, LongType())]
    for group, columns in enumerate(sets):
        fields += [StructField(f"{group}_{i}", c.dataType) for i, c in enumerate(columns.fields)]
    return StructType(fields)


def native_writer(frame: DataFrame, connector: Connector, name: str) -> DataStreamWriter:
    """Spark's own sink for the only sink of a dataflow; the query is called `name`, or as its memory table."""
    writer = _native_writer(frame, connector)
    return writer.queryName(str(connector.options["table"]) if connector.kind == "memory" else name)


def _native_writer(frame: DataFrame, connector: Connector) -> DataStreamWriter:
    options = connector.options
    if connector.kind == "kafka":
        writer = kafka_rows(frame, connector).writeStream.format("kafka")
        return writer.options(**kafka_options(connector))
    if connector.kind == "files":
        writer = frame.writeStream.format(str(options["format"]))
        return writer.option("path", str(options["path"]))
    if connector.kind == "console":
        writer = frame.writeStream.format("console")
        return writer.option("numRows", options.get("rows", 20)).option(
            "truncate", options.get("truncate", True)
        )
    if connector.kind == "memory":
        return frame.writeStream.format("memory")
    if connector.kind == "foreach-batch":
        assert connector.function is not None
        return frame.writeStream.foreachBatch(connector.function.resolve())
    return frame.writeStream.format("noop")


def batch_function(spark: SparkSession, masks: SinkMasks, sinks: Iterable[Operator]) -> BatchFunction:
    """What `foreachBatch` does for a dataflow with several sinks."""
    writers = {
        operator.id: _batch_writer(spark, operator.connector) for operator in sinks if operator.connector
    }

    def write(frame: DataFrame, batch_id: int) -> None:
        # Without the cache every sink would compute the whole batch again, state included.
        frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            for sink, writer in writers.items():
                writer(masks.rows_of(sink, frame), batch_id)
        finally:
            frame.unpersist()

    return write


def _batch_writer(spark: SparkSession, connector: Connector) -> BatchFunction:
    if connector.kind == "kafka":
        return lambda frame, _: (
            kafka_rows(frame, connector).write.format("kafka").options(**kafka_options(connector)).save()
        )
    if connector.kind == "files":
        return lambda frame, batch_id: _write_files(frame, connector, batch_id)
    if connector.kind == "console":
        rows, truncate = int(connector.options.get("rows", 20)), bool(connector.options.get("truncate", True))
        return lambda frame, _: frame.show(rows, truncate)
    if connector.kind == "memory":
        return _Memory(spark, str(connector.options["table"]))
    if connector.kind == "foreach-batch":
        assert connector.function is not None
        return connector.function.resolve()
    return lambda frame, _: frame.write.format("noop").mode("overwrite").save()


def _write_files(frame: DataFrame, connector: Connector, batch_id: int) -> None:
    # A batch that is written again after a failure replaces its own folder: nothing twice.
    folder = f"{connector.options['path']}/batch={batch_id}"
    frame.write.format(str(connector.options["format"])).mode("overwrite").save(folder)


class _Memory:
    """Collects the batches of one sink in a temporary table of the session that compiled the dataflow."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark, self._table = spark, table
        self._batches: dict[int, pa.Table] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self._batches[batch_id] = frame.toArrow()
        rows = pa.concat_tables(self._batches.values())
        self._spark.createDataFrame(rows, schema=frame.schema).createOrReplaceTempView(self._table)


def kafka_rows(frame: DataFrame, connector: Connector) -> DataFrame:
    """The rows as a Kafka sink takes them."""
    if connector.options.get("value_format", "json") == "columns":
        columns = [name for name in ("key", "value") if name in frame.columns]
        return frame.select(*columns)
    return frame.select(
        sql.to_json(sql.struct(*(sql.col(f"`{name}`") for name in frame.columns))).alias("value")
    )


def kafka_options(connector: Connector) -> dict[str, str]:
    """What Spark's Kafka sink is told."""
    passed = {name: str(value) for name, value in connector.options.items() if name.startswith("kafka.")}
    return {
        "kafka.bootstrap.servers": str(connector.options["servers"]),
        "topic": str(connector.options["topic"]),
        **passed,
    }
