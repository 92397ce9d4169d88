"""Kafka for real: what was produced is consumed, once each, at the pace that was set."""

from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from penstock.spark.internals.pacing import Pacing
from penstock_papers.common.kafka_broker import KafkaBroker
from tests.spark.streams import collected, finished_batch, wait_for

RECORDS = 300


def test_every_record_once_and_read_limits_live(
    local_spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create_topic("numbers", partitions=3)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, key=str(number), value=str(number))
    assert producer.flush(30) == 0

    source = local_spark.readStream.format("kafka").option("subscribe", topic)
    source = source.option("kafka.bootstrap.servers", kafka_broker.bootstrap)
    frame = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10).load()
    rows: list[Any] = []
    query = collected(frame.selectExpr("int(string(value)) AS number"), tmp_path, rows, every_ms=1000)
    finished_batch(query, 1)
    pacing = Pacing(local_spark, query)
    assert pacing.sources()[0].accepts == ("rows",)
    pacing.set_read_limit("rows", 100)
    wait_for(lambda: len(rows) >= RECORDS, what="all records")
    wait_for(lambda: sum(p["numInputRows"] for p in query.recentProgress) == RECORDS, what="progress")
    assert sorted(row["number"] for _, row in rows) == list(range(RECORDS))
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    # Spark deals a limit out to the partitions in proportion, rounding each share.
    assert all(abs(size - 10) <= 3 or abs(size - 100) <= 3 for size in sizes[:-1])
    assert any(abs(size - 100) <= 3 for size in sizes)


def test_the_broker_listens_on_loopback_only(kafka_broker: KafkaBroker) -> None:
    listening = [
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(kafka_broker.pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) == {"127.0.0.1"}
