"""A plain Kafka query under `penstock.attach`: a backlog is worked off in bounded batches, and all is put back."""

from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.dataflow import constant
from penstock.policies.actions import Limit
from penstock.spark.internals.pacing import Pacing
from penstock_papers.common.kafka_broker import KafkaBroker, feeding
from tests.spark.streams import finished_batch, wait_for

RATE_RPS, STOP_S = 100, 120
BACKLOG = RATE_RPS * STOP_S
WORK = "aggregate(sequence(1, 25000), 0L, (a, x) -> a + hash(a, x, value))"


def started(spark: SparkSession, broker: KafkaBroker, topic: str, folder: Path) -> StreamingQuery:
    """Reads numbers, computes with each, and keeps them: native operators, stock settings, default trigger."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value", f"{WORK} AS work")
    )
    writer = records.writeStream.queryName("orders").format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def produce(broker: KafkaBroker, topic: str, count: int) -> None:
    """So many records at once: what waits after a stop."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50})
    for number in range(count):
        producer.produce(topic, value=f"late-{number}".encode())
        producer.poll(0)
    producer.flush()


def test_a_backlog_of_two_minutes_is_worked_off_in_bounded_batches(
    local_spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create_topic("orders")
    query = started(local_spark, kafka_broker, topic, tmp_path)
    limits: list[int] = []
    with penstock.attach(local_spark, latency_ms=8_000, pacing=True, interval_s=1.0) as pilot:
        pilot.loop.subscribers.append(
            lambda cycle, _: limits.extend(
                o.action.records
                for o in cycle.outcomes
                if isinstance(o.action, Limit) and o.status == "applied"
            )
        )
        with feeding(kafka_broker.bootstrap, {topic: constant(RATE_RPS)}):
            wait_for(
                lambda: (
                    query.lastProgress is not None and Pacing(local_spark, query).sources()[0].limit != "all"
                ),
                timeout_s=120,
                what="a read limit",
            )
        before = finished_batch(query)
        produce(kafka_broker, topic, BACKLOG)
        wait_for(
            lambda: (
                query.lastProgress is not None
                and not query.status["isDataAvailable"]
                and not query.status["isTriggerActive"]
            ),
            timeout_s=240,
            what="the backlog to be gone",
        )
        late = [p for p in query.recentProgress if p["batchId"] > before and p["numInputRows"]]
        rows = [int(p["numInputRows"]) for p in late]
        assert max(rows) <= max(limits), f"batches of {rows} records with limits of {limits}"
        assert len(rows) >= 3, f"one batch swallowed it: {rows} with limits of {limits}"
        assert not pilot.loop.faults
    assert Pacing(local_spark, query).sources()[0].limit == "all", "the owner's limit is back"
    assert Pacing(local_spark, query).interval_ms() == 0, "and the owner's trigger"
    query.stop()
    kept = local_spark.read.parquet(str(tmp_path / "out"))
    assert kept.where("value LIKE 'late-%'").count() == BACKLOG
    assert kept.where("value LIKE 'late-%'").select("value").distinct().count() == BACKLOG
