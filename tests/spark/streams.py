"""Streaming queries and waits that several tests share."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.observe.progress import BatchProgress, SourceProgress

T = TypeVar("T")

ROWS_PER_BATCH = 120
KEYS = 30
SOURCE_PARTITIONS = 3


def wait_for(look: Callable[[], T | None], *, timeout_s: float = 120.0, what: str = "it") -> T:
    """Return the first truthy answer of *look*."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        answer = look()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come within {timeout_s:g} s")


def last_source(query: StreamingQuery) -> SourceProgress:
    """Return the first source of the newest report; older versions of `lastProgress` mangle its offsets."""
    return BatchProgress.model_validate_json(query._jsq.lastProgress().json()).sources[0]


def numbers(spark: SparkSession, *, timed: bool = False) -> DataFrame:
    """The values 0, 1, 2, … and their key, exactly ROWS_PER_BATCH in each micro-batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    frame = source.option("numPartitions", SOURCE_PARTITIONS).option("startTimestamp", 1000).load()
    return frame.select("value", (col("value") % KEYS).alias("key"), *["timestamp"] * timed)


def started(frame: DataFrame, checkpoint: Path, *, mode: str = "append", every_ms: int = 0) -> StreamingQuery:
    """Start *frame* into nowhere."""
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime=f"{every_ms} milliseconds").start()


def collected(
    frame: DataFrame, checkpoint: Path, rows: list[Any], *, mode: str = "append", every_ms: int = 0
) -> StreamingQuery:
    """Start *frame* into the list *rows*, as (batch id, row) pairs."""

    def take(batch: DataFrame, batch_id: int) -> None:
        rows.extend((batch_id, row) for row in batch.collect())

    writer = frame.writeStream.foreachBatch(take).outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime=f"{every_ms} milliseconds").start()


def finished_batch(query: StreamingQuery, batch_id: int = 0, *, timeout_s: float = 180.0) -> int:
    """Return the newest finished batch, once it is at least *batch_id*."""

    def look() -> list[int]:
        if not query.isActive:
            raise AssertionError(f"the query failed: {query.exception()}")
        progress = query.lastProgress
        return [progress["batchId"]] if progress and progress["batchId"] >= batch_id else []

    return wait_for(look, timeout_s=timeout_s, what=f"batch {batch_id}")[0]


def next_batch(query: StreamingQuery) -> int:
    """Return the id of the batch that finishes next, right after it did."""
    last = query.lastProgress
    return finished_batch(query, last["batchId"] + 1 if last else 0)


def expected_totals(batches: int) -> dict[int, tuple[int, int]]:
    """Return {key: (count, sum)} of the first *batches* batches of `numbers`."""
    totals: dict[int, tuple[int, int]] = {}
    for value in range(batches * ROWS_PER_BATCH):
        count, total = totals.get(value % KEYS, (0, 0))
        totals[value % KEYS] = count + 1, total + value
    return totals
