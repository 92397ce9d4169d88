"""What Penstock says of a Kafka source beside what the broker itself says."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from penstock.dataflow import constant, flow
from penstock.dataflow.connectors import discard, kafka
from penstock.spark.launch import launch
from penstock.spark.observe.progress import kafka_total
from penstock.spark.runtime import SparkRuntime
from penstock_papers.common.kafka_broker import KafkaBroker, feeding
from tests.spark.flows import record_minus
from tests.spark.streams import finished_batch, last_source

RATE_RPS = 300.0


class Broker:
    """The broker's own numbers for one topic."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "meter"})
        partitions = self._consumer.list_topics(topic, 10).topics[topic].partitions
        self._partitions = [TopicPartition(topic, p) for p in partitions]

    def end(self) -> int:
        """Records ever written."""
        return sum(self._consumer.get_watermark_offsets(p, 5)[1] for p in self._partitions)


def read_so_far(runtime: SparkRuntime) -> int:
    """Records in batches that have ended."""
    return kafka_total(last_source(runtime.query).end)


def test_rate_and_lag_agree_with_the_broker(
    local_spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create_topic("metered")
    broker = Broker(kafka_broker.bootstrap, topic)
    builder = flow("metered")
    source = kafka(
        topic, kafka_broker.bootstrap, starting="earliest", value_format="json", schema="number long"
    )
    builder.source("in", source).map("minus", record_minus, takes="record").sink("out", discard())
    rates, lags, ends = [], [], []
    with feeding(kafka_broker.bootstrap, {topic: constant(RATE_RPS)}):
        runtime = launch(local_spark, builder.build(), checkpoint=tmp_path / "checkpoint", trigger_s=1.0)
        finished_batch(runtime.query, 4)
        runtime.observe()
        time.sleep(8)
        for _ in range(15):
            time.sleep(1)
            read, now = read_so_far(runtime), time.time()
            snapshot = runtime.observe()
            ends.append((now, broker.end()))
            if read_so_far(runtime) == read:  # no batch ended in between, so both speak of the same moment
                rates.append(float(snapshot.sources.produced_rps[0]))
                lags.append((float(snapshot.sources.backlog_records[0]), ends[-1][1] - read))
        runtime.query.stop()
        runtime.close()
    times, counts = np.array(ends).T
    truth_rps = (counts[-1] - counts[0]) / (times[-1] - times[0])
    assert len(rates) >= 8
    errors = np.abs(np.array(rates) / truth_rps - 1)
    assert np.quantile(errors, 0.9) <= 0.02
    estimated, true = np.array(lags).T
    # The two are read a few milliseconds apart, in which the producer goes on.
    assert np.median(np.abs(estimated - true)) <= 0.1 * truth_rps
    assert np.corrcoef(estimated, true)[0, 1] > 0.9
