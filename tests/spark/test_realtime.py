"""What real-time mode can run: what the pre-flight says of a query is what Spark says when one starts it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from penstock.spark.attach import attach
from penstock.spark.realtime import RealTimeError, preflight, preflight_of

ONE, TWO = "realtime-one", "realtime-two"


@pytest.fixture(scope="module")
def topics(kafka_broker) -> str:
    """A broker with two topics of one partition."""
    for name in (ONE, TWO):
        kafka_broker.create_topic(name, partitions=1)
    return kafka_broker.bootstrap


@pytest.fixture
def one_shuffle_task(local_spark: SparkSession) -> Iterator[None]:
    """Stateful queries fit two slots with a topic of one partition."""
    before = local_spark.conf.get("spark.sql.shuffle.partitions")
    local_spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    local_spark.conf.set("spark.sql.shuffle.partitions", before)


def words(spark: SparkSession, servers: str, topic: str = ONE) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).load().selectExpr("CAST(value AS STRING) AS value", "timestamp")


def same(batches):  # type: ignore[no-untyped-def]
    yield from batches


def counted(key, rows, state):  # type: ignore[no-untyped-def]
    yield from rows


def through_python(frame: DataFrame, *, arrow: bool) -> DataFrame:
    return frame.select(sql.udf(str, "string", useArrow=arrow)("value").alias("value"))


def joined(spark: SparkSession, servers: str) -> DataFrame:
    left, right = (words(spark, servers, t).withWatermark("timestamp", "1 second") for t in (ONE, TWO))
    return left.join(right.withColumnRenamed("value", "other"), "timestamp").select("value")


Make = Callable[[SparkSession, str], DataFrame]

RUN: dict[str, Make] = {
    "map": lambda s, k: words(s, k).select(sql.upper("value").alias("value")),
    "aggregation": lambda s, k: words(s, k).groupBy("value").count(),
    "deduplication": lambda s, k: words(s, k).dropDuplicates(["value"]),
    "table": lambda s, k: words(s, k).join(s.range(9).selectExpr("CAST(id AS STRING) AS value"), "value"),
}

REFUSED: dict[str, tuple[Make, str]] = {
    "rate source": (lambda s, k: s.readStream.format("rate").load().selectExpr("'a' AS value"), "source rate"),
    "file source": (lambda s, k: s.readStream.schema("value STRING").json("."), "source files"),
    "one source twice": (lambda s, k: (w := words(s, k)).union(w), "twice"),
    "pickled UDF": (lambda s, k: through_python(words(s, k), arrow=False), "pickled"),
    "Arrow UDF": (lambda s, k: through_python(words(s, k), arrow=True), "a Python UDF"),
    "mapInArrow": (lambda s, k: words(s, k).mapInArrow(same, "value STRING, timestamp TIMESTAMP"), "mapInArrow"),
    "mapInPandas": (lambda s, k: words(s, k).mapInPandas(same, "value STRING, timestamp TIMESTAMP"), "mapInPandas"),
    "Python state": (
        lambda s, k: (
            words(s, k)
            .groupBy("value")
            .applyInPandasWithState(counted, "value STRING", "n LONG", "update", "NoTimeout")
        ),
        "applyInPandasWithState",
    ),
    "two streams": (joined, "a join of two streams"),
    "duplicates within a watermark": (
        lambda s, k: (
            words(s, k)
            .withWatermark("timestamp", "1 second")
            .dropDuplicatesWithinWatermark(["value"])
        ),
        "dropDuplicatesWithinWatermark",
    ),
    "ranges": (lambda s, k: words(s, k).repartitionByRange(2, "value"), "repartitionByRange"),
    "coalesce": (lambda s, k: words(s, k).coalesce(1), "coalesce"),
    "state before a union": (
        lambda s, k: words(s, k).dropDuplicates(["value"]).union(words(s, k, TWO)),
        "a union behind an operator with state",
    ),
    "limit": (lambda s, k: words(s, k).limit(3), "update mode"),
}  # fmt: skip


def verdict_of_spark(
    frame: DataFrame,
    folder: Path,
    *,
    servers: str,
    sink: str = "kafka",
    mode: str = "update",
    trigger: str = "5 seconds",
) -> str | None:
    """What Spark says when one starts the query in real-time mode; None once it runs."""
    named = frame.columns[0]
    writer = frame.select(sql.col(named).cast("string").alias("value")).writeStream.outputMode(mode)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(realTime=trigger)
    if sink == "foreachBatch":
        writer = writer.foreachBatch(lambda rows, number: None)
    elif sink == "kafka":
        writer = writer.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", TWO)
    else:
        writer = writer.format(sink).option("path", str(folder / "out"))
    try:
        query = writer.start()
    except Exception as problem:
        return str(problem)
    deadline_s = time.monotonic() + 120
    try:
        while query.isActive and query.lastProgress is None:
            assert time.monotonic() < deadline_s, "no batch has ended"
            time.sleep(0.1)
        failure = query.exception()
        return None if failure is None else str(failure)
    finally:
        query.stop()


@pytest.mark.parametrize("name", RUN)
@pytest.mark.usefixtures("one_shuffle_task")
def test_what_the_preflight_lets_pass_runs(name: str, local_spark, topics: str, tmp_path: Path):
    frame = RUN[name](local_spark, topics)
    found = preflight(frame)
    assert found.runs, str(found)
    assert found.slots_needed == 1 + (name in ("aggregation", "deduplication"))
    assert verdict_of_spark(frame, tmp_path, servers=topics) is None


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("one_shuffle_task")
def test_what_the_preflight_refuses_spark_refuses(name: str, local_spark, topics: str, tmp_path: Path):
    make, reason = REFUSED[name]
    frame = make(local_spark, topics)
    found = preflight(frame, source_partitions=1)
    assert not found.runs
    assert any(reason in obstacle.what for obstacle in found.standing), str(found)
    assert all(obstacle.why and obstacle.instead for obstacle in found.standing)
    refusal = verdict_of_spark(frame, tmp_path, servers=topics)
    assert refusal is not None, "Spark runs it"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sink": "foreachBatch"}, "sink foreachBatch"),
        ({"sink": "parquet"}, "sink parquet"),
        ({"mode": "append"}, "output mode append"),
        ({"trigger": "2 seconds"}, "a trigger of 2 s"),
    ],
)
def test_where_it_goes_and_how_is_checked_too(given, reason, local_spark, topics: str, tmp_path: Path):
    frame = RUN["map"](local_spark, topics)
    batch_s = float(given.get("trigger", "5 seconds").split()[0])
    found = preflight(
        frame, sink=given.get("sink", "kafka"), output_mode=given.get("mode", "update"), batch_s=batch_s
    )
    assert [obstacle.what for obstacle in found.standing] == [reason]
    assert verdict_of_spark(frame, tmp_path, servers=topics, **given) is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "1"),
        ("spark.sql.execution.sortBeforeRepartition", "true"),
    ],
)
def test_settings_that_it_cannot_have_are_named(key, value, local_spark, topics: str, tmp_path: Path):
    session = local_spark.newSession()
    session.conf.set(key, value)
    frame = RUN["map"](session, topics)
    assert [obstacle.what for obstacle in preflight(frame).standing] == [f"{key}={value}"]
    assert key in (verdict_of_spark(frame, tmp_path, servers=topics) or "")


def test_all_stages_need_their_slots_at_once(local_spark, topics: str):
    session = local_spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "7")
    found = preflight(RUN["aggregation"](session, topics))
    assert (found.slots_needed, found.slots) == (8, 2)
    assert [obstacle.kind for obstacle in found.standing] == ["slots"]


def test_who_lifts_the_check_is_told_the_risk(local_spark):
    session = local_spark.newSession()
    session.conf.set("spark.sql.streaming.realTimeMode.allowlistCheck", "false")
    found = preflight(REFUSED["mapInArrow"][0](session, "127.0.0.1:9"), source_partitions=1)
    assert found.runs
    assert "at your own risk" in str(found.obstacles[0])


def test_a_query_in_micro_batches_is_checked_as_it_runs(local_spark, tmp_path: Path):
    frame = local_spark.readStream.format("rate").load().mapInArrow(same, "timestamp TIMESTAMP, value LONG")
    query = frame.writeStream.foreachBatch(lambda rows, number: None).start()
    found = preflight_of(local_spark, query)
    query.stop()
    assert [o.kind for o in found.standing] == ["source", "operator", "sink", "output mode"]


def test_the_partitions_of_a_running_query_are_known(local_spark, topics: str, tmp_path: Path):
    writer = RUN["map"](local_spark, topics).writeStream.format("memory").queryName("known")
    query = writer.option("checkpointLocation", str(tmp_path)).outputMode("update").start()
    deadline_s = time.monotonic() + 120
    while query.lastProgress is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    found = preflight_of(local_spark, query)
    query.stop()
    assert found.runs, str(found)
    assert found.slots_needed == 1


def test_a_pilot_says_once_that_a_bound_needs_real_time_mode(local_spark):
    frame = local_spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    mapped = frame.mapInArrow(same, "timestamp TIMESTAMP, value LONG")
    mapped.writeStream.format("noop").queryName("tight").start()
    deadline_s = time.monotonic() + 120
    with attach(local_spark, latency_ms=1, mode="observe", interval_s=1) as pilot:
        while "needs real-time mode" not in (told := pilot.report()):
            assert time.monotonic() < deadline_s, told
            time.sleep(0.5)
    assert "mapInArrow" in told


def test_a_table_is_no_stream(local_spark):
    with pytest.raises(RealTimeError, match="not a streaming one"):
        preflight(local_spark.range(3))
