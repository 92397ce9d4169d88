"""Pace: the interval that was set is the one measured, read limits hold, a clean stop cuts no batch."""

from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.gateway import execution
from penstock.spark.internals.pacing import Pacing, stop_cleanly
from tests.spark.streams import ROWS_PER_BATCH, finished_batch, numbers, started, wait_for


def gaps_s(query: StreamingQuery, first: int) -> list[float]:
    """Return the times between the triggers of batch *first* and later ones."""
    times = [
        datetime.fromisoformat(progress["timestamp"]).timestamp()
        for progress in query.recentProgress
        if progress["batchId"] >= first
    ]
    return [later - earlier for earlier, later in pairwise(times)]


def test_the_interval_set_is_the_interval_measured(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(numbers(local_spark), tmp_path, every_ms=5000)
    pacing = Pacing(local_spark, query)
    finished_batch(query)  # before it there may be no trigger yet
    assert pacing.interval_ms() == 5000
    for interval_ms in (1000, 2000):
        pacing.set_interval_ms(interval_ms)
        assert pacing.interval_ms() == interval_ms
        start = finished_batch(query) + 2  # the wait under way still ends by the old interval
        finished_batch(query, start + 4)
        assert median(gaps_s(query, start)) == pytest.approx(interval_ms / 1000, abs=0.1)
    with pytest.raises(ValueError, match="negative"):
        pacing.set_interval_ms(-1)


def test_read_limits_hold_from_the_next_batch(local_spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    local_spark.range(0, 40, 1, 40).write.parquet(str(folder))
    frame = local_spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(folder))
    query = started(frame, tmp_path / "checkpoint", every_ms=400)
    finished_batch(query, 1)
    pacing = Pacing(local_spark, query)
    (source,) = pacing.sources()
    assert source.accepts == ("files", "bytes")
    assert pacing.sources()[0].limit == "maxFiles:1"
    pacing.restore_read_limit("all")
    assert pacing.sources()[0].limit == "all"
    pacing.restore_read_limit("maxFiles:1")
    pacing.set_read_limit("files", 7)
    assert pacing.sources()[0].limit == "maxFiles:7"
    wait_for(lambda: sum(p["numInputRows"] for p in query.recentProgress) == 40, what="all rows")
    rows = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    full = rows[:-1]
    assert full == sorted(full), "the limit went back"
    assert set(full) == {1, 7}
    with pytest.raises(SparkInternalsError, match="no limit in rows"):
        pacing.set_read_limit("rows", 7)
    assert query.isActive


def test_a_source_without_limits_is_left_alone(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(numbers(local_spark), tmp_path)
    finished_batch(query)
    with pytest.raises(SparkInternalsError, match="takes: none"):
        Pacing(local_spark, query).set_read_limit("rows", 7)
    finished_batch(query, finished_batch(query) + 1)


@pytest.mark.parametrize("every_ms", [0, 700, 60_000])
def test_a_clean_stop_leaves_nothing_unfinished(
    local_spark: SparkSession, tmp_path: Path, every_ms: int
) -> None:
    query = started(numbers(local_spark).groupBy("key").count(), tmp_path, mode="update", every_ms=every_ms)
    finished_batch(query)
    last = stop_cleanly(local_spark, query, timeout_s=30)
    assert not query.isActive
    assert query.exception() is None
    names = {kind: {p.name for p in (tmp_path / kind).glob("[0-9]*")} for kind in ("offsets", "commits")}
    assert names["offsets"] == names["commits"]
    assert str(last) in names["commits"]
    assert query.lastProgress is not None
    assert query.lastProgress["numInputRows"] == ROWS_PER_BATCH


def test_a_clean_stop_that_comes_too_late_leaves_the_query_running(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    query = started(numbers(local_spark), tmp_path, every_ms=60_000)
    finished_batch(query)
    with pytest.raises(SparkInternalsError, match="no end of a micro-batch within 0 s"):
        stop_cleanly(local_spark, query, timeout_s=0)
    assert query.isActive
    assert Pacing(local_spark, query).interval_ms() == 60_000


def test_one_time_triggers_have_no_interval(local_spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    local_spark.range(1).write.parquet(str(folder))
    frame = local_spark.readStream.schema("id long").parquet(str(folder))
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert execution(query).triggerExecutor().getClass().getSimpleName() == "MultiBatchExecutor"
    with pytest.raises(SparkInternalsError, match="MultiBatchExecutor"):
        Pacing(local_spark, query).interval_ms()
