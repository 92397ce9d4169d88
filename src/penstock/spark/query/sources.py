"""Streaming DataFrames for the sources of a dataflow, each record with its true source time."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType, TimestampType

from penstock.dataflow.connectors import OptionValue
from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.graph import Connector, Operator
from penstock.spark.query import replay_source as replay
from penstock.spark.query.function_shipping import PackedFunctions
from penstock.spark.query.user_functions import SOURCE_TIME, columns_of


def read_source(spark: SparkSession, operator: Operator, *, checkpoint: str) -> DataFrame:
    """The records of a source, with `source_time` as a column."""
    connector = operator.connector
    assert connector is not None
    if connector.kind == "replay":
        frame = _replay(spark, operator, connector, checkpoint)
    elif connector.kind == "kafka":
        frame = _kafka(spark, connector)
    elif connector.kind == "files":
        frame = _files(spark, connector)
    elif connector.kind == "rate":
        reader = spark.readStream.format("rate")
        reader = _with(reader, connector, rows_per_second="rowsPerSecond", partitions="numPartitions")
        frame = reader.load().withColumn(SOURCE_TIME, sql.col("timestamp"))
    else:
        frame = connector.dataframe
        if not frame.isStreaming:
            raise _error(operator, "the DataFrame is not a streaming one")
    return _with_source_time(frame, operator, connector)


def replay_rows(connector: Connector) -> int | None:
    """How many records a replay source has in all; None: it never ends."""
    path = connector.options.get("path")
    if path is None or connector.options.get("loop", True):
        return None
    return replay.file_rows(str(path))


def _with_source_time(frame: DataFrame, operator: Operator, connector: Connector) -> DataFrame:
    """The declared time column, or what the source itself says, or (a DataFrame without either) when it was read."""
    declared = connector.options.get("time_column")
    if declared is not None:
        return frame.withColumn(SOURCE_TIME, sql.col(f"`{declared}`").cast("timestamp"))
    if SOURCE_TIME not in frame.columns:
        # Spark writes the batch's time to its log before the batch runs, so a retry reads the same.
        return frame.withColumn(SOURCE_TIME, sql.current_timestamp())
    if not isinstance(frame.schema[SOURCE_TIME].dataType, TimestampType):
        raise _error(operator, f"its column '{SOURCE_TIME}' must be a timestamp")
    return frame


def _replay(spark: SparkSession, operator: Operator, connector: Connector, checkpoint: str) -> DataFrame:
    assert connector.load is not None
    path = connector.options.get("path")
    function = None if connector.function is None else connector.function.resolve()
    if connector.schema is not None:
        columns = columns_of(connector.schema)
    elif function is not None:
        columns = from_arrow_schema(function(0, 0).schema)
    else:
        try:
            columns = from_arrow_schema(replay.file_schema(str(path)))
        except OSError as problem:
            raise _error(operator, f"cannot read '{path}': {problem}") from None
    if SOURCE_TIME not in columns.names:
        columns = StructType([*columns.fields]).add(SOURCE_TIME, TimestampType())
    options = replay.ReplayOptions(
        source=operator.id,
        load=connector.load,
        path=None if path is None else str(path),
        generator=None if function is None else PackedFunctions.of([function]),
        partitions=int(connector.options.get("partitions", 2)),
        rows=replay_rows(connector),
        max_rows_per_batch=_whole(connector.options.get("max_rows_per_batch")),
        resume=_last_offset(spark, checkpoint, operator.id),
    )
    spark.dataSource.register(replay.ReplaySource)
    return spark.readStream.format(replay.NAME).schema(columns).options(**options.to_spark()).load()


def _kafka(spark: SparkSession, connector: Connector) -> DataFrame:
    reader = spark.readStream.format("kafka")
    reader = _with(
        reader,
        connector,
        topic="subscribe",
        servers="kafka.bootstrap.servers",
        starting="startingOffsets",
        max_rows_per_batch="maxOffsetsPerTrigger",
    )
    for name, value in connector.options.items():
        if name.startswith("kafka."):
            reader = reader.option(name, value)
    frame = reader.load()
    form = connector.options.get("value_format", "string")
    time = sql.col("timestamp")
    if form == "json":
        assert connector.schema is not None
        parsed = sql.from_json(sql.col("value").cast("string"), columns_of(connector.schema))
        return frame.select(parsed.alias("value"), time).select("value.*", time, time.alias(SOURCE_TIME))
    wanted = "binary" if form == "binary" else "string"
    columns = [sql.col(name).cast(wanted).alias(name) for name in ("key", "value")]
    return frame.select(*columns, time, time.alias(SOURCE_TIME))


def _files(spark: SparkSession, connector: Connector) -> DataFrame:
    assert connector.schema is not None
    reader = spark.readStream.format(str(connector.options["format"])).schema(connector.schema)
    reader = _with(reader, connector, header="header", max_files_per_batch="maxFilesPerTrigger")
    frame = reader.load(str(connector.options["path"]))
    if SOURCE_TIME in frame.columns:
        return frame
    return frame.select("*", sql.col("_metadata.file_modification_time").alias(SOURCE_TIME))


def _with(reader: DataStreamReader, connector: Connector, **names: str) -> DataStreamReader:
    """The reader with those of our options that are given, under Spark's names."""
    for ours, theirs in names.items():
        value = connector.options.get(ours)
        if value is not None:
            whole = int(value) if isinstance(value, float) and value == int(value) else value
            reader = reader.option(theirs, whole)
    return reader


def _last_offset(spark: SparkSession, checkpoint: str, source: str) -> dict[str, Any] | None:
    """Where the checkpoint says the source is; only Spark before 4.2 needs to be told."""
    if replay.ADMISSION_CONTROL:
        return None
    view: Any = spark._jvm
    hadoop = spark._jsc.hadoopConfiguration()
    folder = view.org.apache.hadoop.fs.Path(checkpoint, "offsets")
    files = folder.getFileSystem(hadoop)
    if not files.exists(folder):
        return None
    names = [status.getPath().getName() for status in files.listStatus(folder)]
    batches = sorted(int(name) for name in names if name.isdigit())
    if not batches:
        return None
    lines = [row.value for row in spark.read.text(f"{checkpoint}/offsets/{batches[-1]}").collect()]
    offsets = [json.loads(line) for line in lines[2:]]  # after version and metadata, one line per source
    return next((o for o in offsets if isinstance(o, dict) and o.get("source") == source), None)


def _whole(value: OptionValue | None) -> int | None:
    return None if value is None else int(value)


def _error(operator: Operator, message: str) -> DataflowError:
    return DataflowError([Problem(place=f"operators.{operator.id}.connector", message=message)])
