"""Kafka to Kafka through a compiled dataflow, on a real broker."""

import json
from pathlib import Path

from confluent_kafka import Consumer, Producer

from penstock.dataflow import flow
from penstock.dataflow.connectors import kafka, kafka_sink
from penstock.spark.query.compile import compile_dataflow
from tests.spark.flows import record_minus

COUNT = 600


def test_records_go_through_once_with_the_time_kafka_gave_them(local_spark, kafka_broker, tmp_path: Path):
    inbox, outbox = kafka_broker.create_topic("inbox"), kafka_broker.create_topic("outbox")
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for number in range(COUNT):
        producer.produce(
            inbox, json.dumps({"number": number}), key=str(number % 5), timestamp=1_700_000_000_000 + number
        )
    assert producer.flush(30) == 0
    builder = flow("through")
    source = kafka(
        inbox,
        kafka_broker.bootstrap,
        starting="earliest",
        value_format="json",
        schema="number long",
        max_rows_per_batch=250,
    )
    stream = builder.source("in", source)
    stream.map("minus", record_minus, takes="record").sink("out", kafka_sink(outbox, kafka_broker.bootstrap))
    compiled = compile_dataflow(local_spark, builder.build(), checkpoint=tmp_path / "checkpoint")
    query = compiled.start(available_now=True)
    assert query.awaitTermination(250)
    assert query.exception() is None
    assert len(query.recentProgress) >= 3
    found = [json.loads(value) for value in consumed(kafka_broker.bootstrap, outbox, COUNT)]
    assert sorted(-record["number"] for record in found) == list(range(COUNT))
    for record in found:
        millisecond = -record["number"] % 1000
        assert f".{millisecond:03d}" in record["source_time"]
    records = compiled.measures.take(compiled.measures.waiting())
    assert sum(o.rows_in for r in records for o in r.operators if o.operator == "in") == COUNT


def consumed(servers: str, topic: str, count: int) -> list[bytes]:
    """Everything in the topic, once `count` records are there and nothing more comes."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    quiet = 0
    while quiet < 5 and len(values) < 2 * count:
        message = consumer.poll(2.0)
        if message is None:
            quiet += 1
        elif message.error() is None:
            values.append(message.value())
            quiet = 0 if len(values) < count else quiet
    consumer.close()
    return values
