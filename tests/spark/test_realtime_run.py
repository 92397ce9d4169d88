"""A declared dataflow in real-time mode, Kafka to Kafka on a real broker."""

import json
import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from penstock.api.realtime import run_realtime
from penstock.dataflow import Dataflow, DataflowError, constant, flow
from penstock.dataflow.connectors import console, kafka, kafka_sink
from penstock.spark.query.realtime import compile_realtime
from penstock.spark.realtime import RealTimeError
from penstock_papers.common.kafka_broker import KafkaBroker, feeding
from tests.spark.flows import record_minus
from tests.spark.test_compile_kafka import consumed

RATE = 50


def squared(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("square", sql.col("number") * sql.col("number"))


def squares(broker: KafkaBroker, inbox: str, outbox: str) -> Dataflow:
    builder = flow("squares")
    source = kafka(inbox, broker.bootstrap, starting="earliest", value_format="json", schema="number long")
    stream = builder.source("in", source).transform("square", squared)
    stream.sink("out", kafka_sink(outbox, broker.bootstrap))
    builder.constrain("in -> square -> out", mean_ms=5000, name="quick")
    return builder.build()


def ran(spark, dataflow: Dataflow, checkpoint: Path, for_s: float = 8.0):
    return run_realtime(
        spark,
        dataflow,
        checkpoint=checkpoint,
        given=0,
        limit=None,
        batch_s=5,
        interval_s=1,
        for_s=for_s,
        stop=threading.Event(),
    )


def test_records_go_through_and_their_latency_is_read_at_the_sink(local_spark, kafka_broker, tmp_path: Path):
    inbox = kafka_broker.create_topic("realtime-in", partitions=1)
    outbox = kafka_broker.create_topic("realtime-out", partitions=1)
    dataflow = squares(kafka_broker, inbox, outbox)
    with feeding(kafka_broker.bootstrap, {inbox: constant(RATE)}):
        found = ran(local_spark, dataflow, tmp_path / "checkpoint")
    assert found.failure is None
    assert (found["slots"], found["restarts"]) == (1, 0)
    assert 0 <= found["latency_ms"]["mean"] <= found["latency_ms"]["p99"] < 60_000
    assert found["constraints"][0]["held"] is not None
    results = [json.loads(value) for value in consumed(kafka_broker.bootstrap, outbox, 5 * RATE)]
    assert len(results) >= 5 * RATE
    assert all(result["square"] == result["number"] ** 2 for result in results)
    # What was written after the last checkpoint would be written again by the next run: at least once.
    assert sorted({result["number"] for result in results}) == list(range(len(results)))


def test_a_dataflow_that_needs_more_slots_is_refused_with_their_number(
    local_spark, kafka_broker, tmp_path: Path
):
    inbox = kafka_broker.create_topic("realtime-wide", partitions=3)
    with pytest.raises(RealTimeError, match="2 slots: all stages run at once: it needs 3"):
        ran(local_spark, squares(kafka_broker, inbox, "realtime-nowhere"), tmp_path)


def test_operators_in_python_and_other_sources_are_refused_by_name(local_spark, tmp_path: Path):
    builder = flow("mixed")
    source = builder.source("in", kafka("inbox", "127.0.0.1:9", value_format="json", schema="number long"))
    source.map("minus", record_minus, takes="record").sink("out", console())
    with pytest.raises(DataflowError, match=r"operators\.minus: runs in Python"):
        compile_realtime(local_spark, builder.build(), checkpoint=tmp_path)
