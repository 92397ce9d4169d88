"""A stranger's program with `penstock.shed` and three kinds of sinks: a driver of its own, killed in its first life.

    python -m tests.spark.shed_driver BROKERS TOPIC OUTPUT FOLDER LIFE

In life 1 half of the records are kept from some batch on. In batch `LAST` of the query with several sinks, when all of
them are written, a new share is set for the batch after it, and the driver is killed: between the control's write and
the end of the batch, and between the sinks' commit and Spark's. Life 2 runs a few batches, with nobody who steers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.spark.cluster.jars import kafka_connector_conf
from penstock.spark.cluster.java import find_java
from penstock.spark.internals.controls import set_controls
from penstock.spark.query.sampling import keep_control
from tests.spark.streams import finished_batch

SHARED, LAST, LATER = keep_control("orders"), 6, 3
HALF, TENTH = 0.5, 0.1


def numbers(spark: SparkSession, brokers: str, topic: str) -> DataFrame:
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    read = read.option("subscribe", topic).option("startingOffsets", "earliest")
    value = F.get_json_object(F.col("value").cast("string"), "$.number").cast("long").alias("number")
    return penstock.shed(
        read.option("maxOffsetsPerTrigger", 200).load().select(value),
        keep_by="number",
        name="orders",
        weights=False,
    )


def kill() -> None:
    me = psutil.Process()
    for one in [*me.children(recursive=True), me]:
        os.kill(one.pid, signal.SIGKILL)


def main(brokers: str, topic: str, output: str, folder: Path, life: int) -> None:
    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    for name, value in kafka_connector_conf().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    frame = numbers(spark, brokers, topic)
    running: dict[str, StreamingQuery] = {}

    def several(batch: DataFrame, batch_id: int) -> None:
        found = sorted(row["number"] for row in batch.collect())
        for sink in ("first", "second"):
            (folder / f"{sink}-{life}-{batch_id}.json").write_text(json.dumps(found))
        if life == 1 and batch_id >= LAST:
            set_controls(running["several"], {SHARED: TENTH})
            kill()

    def started(name: str, writer: object) -> None:
        running[name] = writer.option("checkpointLocation", str(folder / f"{name}.c")).start()  # type: ignore[attr-defined]

    value = frame.select(F.to_json(F.struct("number")).alias("value"))
    to_kafka = value.writeStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    started("kafka", to_kafka.option("topic", output).trigger(processingTime="1 second"))
    files = frame.writeStream.format("json").option("path", str(folder / "files"))
    started("files", files.trigger(processingTime="1 second"))
    started("several", frame.writeStream.foreachBatch(several).trigger(processingTime="2 seconds"))
    if life == 1:
        for query in running.values():
            finished_batch(query, 1)
            set_controls(query, {SHARED: HALF})
        time.sleep(300)  # until the last batch ends us
        return
    for query in running.values():
        last = finished_batch(query)
        finished_batch(query, last + LATER)
    for query in running.values():
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]), int(sys.argv[5]))
