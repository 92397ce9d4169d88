"""A stranger's program on a cluster, with Spark's default settings, under `penstock.attach`: a driver of its own.

    python -m tests.spark.field_driver SCENARIO MASTER BROKERS TOPIC FOLDER

The session sets the master, memory and the Kafka connector, nothing else. FOLDER gets what the query writes, its
checkpoint, and `report.json` with what was seen. The parent feeds the topic, and may kill or freeze this process.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType

import penstock
from penstock.control.record import Cycle
from penstock.spark.cluster.jars import kafka_connector_conf
from penstock.spark.cluster.java import find_java
from penstock.spark.internals.driver_settings import DriverSettings
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import Executors
from tests.documents import GUIDE, blocks

WATCHED = ("spark.locality.wait", "spark.locality.wait.process", "spark.penstock.touched")
HASHES = 4000


@F.pandas_udf(LongType())
def bucket(number: pd.Series) -> pd.Series:
    """A hash of a hash of a hash …: about three milliseconds of a core for each record."""

    def worked_out(value: int) -> int:
        digest = str(value).encode()
        for _ in range(HASHES):
            digest = hashlib.sha256(digest).digest()
        return digest[0] % 16

    return number.map(worked_out)


class Field:
    """The session, and what is watched in it."""

    def __init__(self, spark: SparkSession, brokers: str, topic: str, folder: Path) -> None:
        self.spark, self.brokers, self.topic, self.folder = spark, brokers, topic, folder
        self.executors, self.settings = Executors(spark), DriverSettings(spark)
        self.seen: list[tuple[float, int]] = []
        wait(lambda: len(self.executors.list()) == 3, 120)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            with suppress(SparkInternalsError):
                self.seen.append((time.time(), len(self.executors.list())))
                written(self.folder / "executors", str(self.seen[-1][1]))
            time.sleep(0.5)

    def numbers(self) -> DataFrame:
        """What was fed into the topic."""
        read = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.brokers)
        frame = read.option("subscribe", self.topic).option("startingOffsets", "earliest").load()
        return frame.select(
            F.get_json_object(F.col("value").cast("string"), "$.number").cast("long").alias("number")
        )

    def scored(self, name: str = "orders") -> StreamingQuery:
        """Records scored and written to files: no state."""
        frame = self.numbers().select("number", bucket("number").alias("bucket"))
        return self._writing(frame, name).format("json").option("path", str(self.folder / name)).start()

    def counted(self, name: str = "counts") -> StreamingQuery:
        """Records counted by bucket; each batch writes a file of its own, again if it runs again."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)

        def write(batch: DataFrame, batch_id: int) -> None:
            rows = [list(row) for row in batch.collect()]
            (folder / f"{batch_id}.part").write_text(json.dumps(rows))
            os.replace(folder / f"{batch_id}.part", folder / f"{batch_id}.json")

        counts = self.numbers().groupBy(bucket("number").alias("bucket"))
        frame = counts.agg(F.count("*").alias("n"), F.sum("number").alias("total"))
        return self._writing(frame, name).outputMode("update").foreachBatch(write).start()

    def _writing(self, frame: DataFrame, name: str) -> Any:
        return frame.writeStream.queryName(name).option(
            "checkpointLocation", str(self.folder / f"{name}.checkpoint")
        )

    def left(self) -> dict[str, Any]:
        """How the application stands after a pilot is gone."""
        wait(lambda: len(self.executors.list()) == (self.executors.target() or 3), 60)
        return {
            "executors": len(self.executors.list()),
            "target": self.executors.target(),
            "settings": {key: self.settings.get(key) for key in WATCHED},
        }

    def told(self, done: Callable[[], bool], limit_s: float = 240.0) -> bool:
        """Wait until the parent has done its part."""
        return wait(done, limit_s)


def written(file: Path, text: str) -> None:
    """All of it or nothing: the parent reads it at any moment."""
    file.with_suffix(".part").write_text(text)
    os.replace(file.with_suffix(".part"), file)


def wait(holds: Callable[[], Any], limit_s: float) -> bool:
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        if holds():
            return True
        time.sleep(0.2)
    raise AssertionError(f"not within {limit_s} s")


def ended(field: Field, name: str) -> bool:
    """The parent writes a file of that name when it has come so far."""
    return (field.folder / name).exists()


def readme(field: Field) -> dict[str, Any]:
    """README's first block as it stands."""
    (block,) = (b for b in blocks(GUIDE[0]) if b.needs == "spark")
    query = field.scored()

    def stop() -> None:
        field.told(lambda: ended(field, "fed"), 900)
        query.processAllAvailable()
        query.stop()

    ending = threading.Thread(target=stop)
    ending.start()
    space: dict[str, Any] = {"spark": field.spark, "query": query}
    exec(compile(block.text, f"{GUIDE[0].name}:{block.line}", "exec"), space)
    ending.join()
    seen = list(field.seen)
    return {"seen": seen, "left": field.left(), "report": space["pilot"].report()}


def two(field: Field) -> dict[str, Any]:
    """Two queries with bounds of their own; one is stopped and started again, one comes later."""
    goals = {
        "orders": penstock.Goals(latency_ms=20_000, priority=2),
        "counts": penstock.Goals(latency_ms=60_000),
    }
    first = field.scored()
    with penstock.attach(field.spark, goals=goals, max_executors=3) as pilot:
        time.sleep(30)
        second = field.counted()
        time.sleep(45)
        first.stop()
        time.sleep(5)
        first = field.scored()
        field.told(lambda: ended(field, "fed"), 400)
        for query in (first, second):
            query.processAllAvailable()
        cycles = [row_of(c) for c in pilot.journal.cycles(str(pilot.loop.run_id))]
        report, faults = pilot.report(), len(pilot.loop.faults)
    seen = list(field.seen)
    for query in (first, second):
        query.stop()
    return {"cycles": cycles, "faults": faults, "left": field.left(), "report": report, "seen": seen}


def row_of(cycle: Cycle) -> dict[str, Any]:
    brief = cycle.brief
    return {
        "time_s": cycle.time_s,
        "took_s": cycle.took_s,
        "skipped": cycle.skipped,
        "nodes": brief.nodes if brief else None,
        "produced_rps": brief.produced_rps if brief else None,
        "backlog": sum(s.backlog_records or 0.0 for s in brief.sources) if brief else None,
        "latency": {c.name: [c.latency_s, c.bound_s] for c in brief.constraints} if brief else {},
        "actions": [p.action.text for p in cycle.plan.actions],
    }


def watched(field: Field) -> dict[str, Any]:
    """One query under a pilot until the parent has fed everything: silence, a freeze, or a kill comes from there."""
    query = field.counted()
    options: dict[str, Any] = json.loads(os.environ.get("FIELD_ATTACH", "{}"))
    with penstock.attach(field.spark, **{"latency_ms": 30_000, "max_executors": 3, **options}) as pilot:

        def tell() -> None:
            while True:
                rows = [row_of(c) for c in pilot.journal.cycles(str(pilot.loop.run_id))]
                written(field.folder / "now.json", json.dumps({"cycles": rows}))
                for _ in range(40):
                    written(field.folder / "doing", pilot.runtime.pool.status().doing)
                    time.sleep(0.05)

        threading.Thread(target=tell, daemon=True).start()
        field.told(lambda: ended(field, "fed"), 900)
        query.processAllAvailable()
        cycles = [row_of(c) for c in pilot.journal.cycles(str(pilot.loop.run_id))]
        report = pilot.report()
    seen = list(field.seen)
    query.stop()
    return {"cycles": cycles, "seen": seen, "left": field.left(), "report": report}


def alone(field: Field) -> dict[str, Any]:
    """The same query without a pilot, to its end."""
    query = field.counted()
    field.told(lambda: ended(field, "fed"), 400)
    query.processAllAvailable()
    seen = list(field.seen)
    query.stop()
    return {"seen": seen}


def main(scenario: str, master: str, brokers: str, topic: str, folder: Path) -> None:
    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).config("spark.executor.memory", "512m")
    for name, value in kafka_connector_conf().items():
        builder = builder.config(name, value)
    for name, value in json.loads(os.environ.get("FIELD_CONF", "{}")).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    scenarios = {"readme": readme, "two": two, "watched": watched, "alone": alone}
    try:
        report = scenarios[scenario](Field(spark, brokers, topic, folder))
    finally:
        spark.stop()
    (folder / "report.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:5], Path(sys.argv[5]))
