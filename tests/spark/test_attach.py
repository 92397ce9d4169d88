"""The front door on real Spark, as a user goes through it: `penstock.attach`, by call and as a context manager."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.errors import UserError
from penstock.spark.pilot import Pilot
from tests.spark.streams import finished_batch, wait_for


def counts(spark: SparkSession, rate: int = 40) -> DataFrame:
    """A native aggregation that nobody prepared for Penstock."""
    numbers = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
    return numbers.groupBy((F.col("value") % 5).alias("key")).count()


def started(spark: SparkSession, name: str, folder: Path) -> StreamingQuery:
    writer = counts(spark).writeStream.queryName(name).outputMode("update").format("noop")
    return writer.option("checkpointLocation", str(folder / name)).start()


def under_control(pilot: Pilot, *names: str) -> None:
    wait_for(
        lambda: {c.name for c in pilot.runtime.dataflow.constraints} == {f"{n}.latency" for n in names},
        timeout_s=120,
        what=f"{', '.join(names) or 'no query'} under control",
    )


def test_a_pilot_follows_queries_that_come_end_and_start_again(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    goals = {"second": penstock.Goals(latency_ms=9000, priority=2)}
    with penstock.attach(local_spark, latency_ms=60_000, goals=goals, interval_s=1.0) as pilot:
        first = started(local_spark, "first", tmp_path)
        under_control(pilot, "first")
        second = started(local_spark.newSession(), "second", tmp_path)
        under_control(pilot, "first", "second")
        bounds = {c.name: c.bound_ms for c in pilot.runtime.dataflow.constraints}
        assert bounds == {"first.latency": 60_000, "second.latency": 9000}
        first.stop()
        under_control(pilot, "second")
        first = started(local_spark, "first", tmp_path)
        under_control(pilot, "first", "second")
        assert not pilot.loop.faults
    assert not pilot.running
    assert first.isActive
    assert second.isActive, "queries outlive the pilot"
    assert "application" in pilot.report()
    pilot.stop()
    second.stop()


def test_only_one_of_two_pilots_is_in_charge(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(local_spark, "alone", tmp_path)
    finished_batch(query)
    with penstock.attach(local_spark, latency_ms=60_000, interval_s=1.0) as first:
        under_control(first, "alone")
        with penstock.attach(local_spark, latency_ms=60_000, interval_s=1.0) as second:
            under_control(second, "alone")
            assert second.runtime.only_observes is not None
            assert first.runtime.only_observes is None
    third = penstock.attach(local_spark, latency_ms=60_000, interval_s=1.0)
    under_control(third, "alone")
    assert third.runtime.only_observes is None, "the lease was given back"
    third.stop()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mode": "acts"}, "no mode 'acts'"),
        ({"latency_ms": -1.0}, "latency_ms must be more than 0"),
        ({"min_executors": 5, "max_executors": 2}, "min_executors must lie in 1 to 2"),
    ],
)
def test_bad_options_are_refused_in_a_line(
    local_spark: SparkSession, options: dict[str, float], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        penstock.attach(local_spark, **options)
