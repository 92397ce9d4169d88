"""A driver of its own with Spark's default settings, whose executors a pool resizes while a stateful query runs.

    python -m tests.spark.stock_driver SCENARIO FOLDER [PARTITIONS]

The session sets nothing but the master and memory; PARTITIONS sets the number of state partitions, 200 by default as
Spark has it. A session that shares a JVM with another one would inherit its settings, hence a process of its own.
FOLDER/report.json says what was seen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, sum  # noqa: A004 (Spark's name)
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.act.capacity_request import Patience
from penstock.spark.act.executor_pool import ExecutorPool, PoolOptions
from penstock.spark.act.query_run import SparkQueryRun
from penstock.spark.act.state_moves import StateMoves
from penstock.spark.cluster.java import find_java
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock.spark.internals.driver_settings import DriverSettings
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.gateway import context, jvm
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.session import spark_jars
from tests.spark.streams import expected_totals, finished_batch, numbers, wait_for

WAIT_S = 400.0
QUICK = PoolOptions(patience=Patience(arrival_floor_s=15, first_pause_s=5, longest_pause_s=20))
WATCHED = ("spark.locality.wait", "spark.locality.wait.process", "spark.penstock.touched")


class Stage:
    """The session, its query and a pool."""

    def __init__(self, spark: SparkSession, folder: Path, options: PoolOptions | None = None) -> None:
        self.spark, self.folder, self.options = spark, folder, options
        self.settings, self.executors = DriverSettings(spark), Executors(spark)
        wait_for(lambda: len(self.executors.list()) == 3, timeout_s=WAIT_S, what="three executors")
        self.rows: dict[int, tuple[int, int]] = {}
        totals = numbers(spark).groupBy("key").agg(count("*").alias("n"), sum("value").alias("total"))
        writer = totals.writeStream.foreachBatch(self.take).outputMode("update")
        self.query: StreamingQuery = writer.option("checkpointLocation", str(folder / "c")).start()
        finished_batch(self.query, 0, timeout_s=WAIT_S)
        self.open()

    def take(self, batch: DataFrame, batch_id: int) -> None:
        self.rows |= {row["key"]: (row["n"], row["total"]) for row in batch.collect()}

    def open(self) -> None:
        """A new pool, as a new pilot would have it."""
        self.pool = ExecutorPool(self.executors, self.settings, options=self.options).start()
        self.moves: StateMoves = self.pool.follow(
            str(self.query.runId), SparkQueryRun(self.spark, self.query)
        )
        wait_for(lambda: self.pool.view(), timeout_s=WAIT_S, what="a first look")

    def until(self, holds: Callable[[], Any], what: str) -> None:
        def look() -> bool:
            assert self.query.isActive, f"the query failed: {self.query.exception()}"
            self.pool.reconcile()
            return bool(holds())

        wait_for(look, timeout_s=WAIT_S, what=f"{what}; {self.pool.status()}")

    def settle(self, desired: int) -> dict[str, Any]:
        """Want so many and wait until it is so."""
        self.pool.want(desired)
        self.until(lambda: self.pool.status().settled, f"{desired} executors")
        return self.look()

    def look(self) -> dict[str, Any]:
        """What Spark says now."""
        there = self.executors.all()
        return {
            "executors": len(there),
            "taking_tasks": len([e for e in there if e.takes_tasks]),
            "target": self.executors.target(),
            "failed_tasks": max(0, *(e.failed_tasks for e in there)),
            "held": sorted(Counter(map(str, self.moves.places().values())).values()),
            "elsewhere": len(set(self.moves.places().values()) - {e.id for e in there}),
        }

    def close(self) -> dict[str, Any]:
        """Stop the pool and put everything back, as a pilot does."""
        ended = self.pool.close()
        left = self.look()
        levers = {"executors": self.pool.put_back_target, **self.pool.wait.levers}
        failed = self.pool.touched.put_back(levers)
        wait_for(
            lambda: [e.takes_tasks for e in self.executors.list()] == [True] * 3,
            timeout_s=WAIT_S,
            what="three executors again",
        )
        return {
            "ended": ended,
            "left": left,
            "failed": failed,
            "target": self.executors.target(),
            "settings": {key: self.settings.get(key) for key in WATCHED},
        }

    def end(self) -> dict[str, Any]:
        """Stop the query between two batches; whether its results are exact."""
        batches = stop_cleanly(self.spark, self.query, timeout_s=WAIT_S) + 1
        return {"exact": self.rows == expected_totals(batches), "batches": batches}


def resize(stage: Stage) -> dict[str, Any]:
    """3, 2, 3, 1, and back."""
    seen = [stage.settle(desired) for desired in (2, 3, 1)]
    return {"seen": seen, "closed": stage.close(), "end": stage.end()}


def stops(stage: Stage) -> dict[str, Any]:
    """Close in the middle of every step, put back, begin again."""
    steps: list[tuple[int, str]] = [
        (2, "moving state"), (2, "waiting for"), (1, "moving state"), (3, "waiting for"), (3, "spreading")
    ]  # fmt: skip
    closed = {}
    for number, (desired, doing) in enumerate(steps):
        if desired == 3:
            stage.settle(2)
        stage.pool.want(desired)
        stage.until(lambda doing=doing: stage.pool.status().doing.startswith(doing), f"'{doing}'")  # type: ignore[misc]
        closed[f"{number}: {desired}, {doing}"] = stage.close()
        stage.open()
    stage.close()
    return {"closed": closed, "end": stage.end()}


def zombie(stage: Stage) -> dict[str, Any]:
    """Somebody half decommissions an executor: it is no capacity, and is replaced."""
    stage.settle(3)
    victim = stage.executors.list()[0].id
    view = jvm(stage.spark)
    info = view.org.apache.spark.scheduler.ExecutorDecommissionInfo("a test", view.scala.Option.empty())
    context(stage.spark).schedulerBackend().decommissionExecutor(victim, info, False, False)
    stage.until(lambda: stage.pool.status().unusable == 1, "the zombie to be seen")
    seen = stage.pool.status()
    stage.until(
        lambda: stage.pool.status().settled and victim not in {e.id for e in stage.executors.all()},
        "a replacement",
    )
    return {"usable": seen.usable, "after": stage.look(), "closed": stage.close(), "end": stage.end()}


def scarce(stage: Stage) -> dict[str, Any]:
    """Five wanted where three fit: never, then one late and so in part, then gone again with its machine."""
    refusals: list[dict[str, Any]] = []

    def refused(came: int) -> bool:
        told = stage.pool.status().refusal
        return told is not None and told.facts["came"] == came and len(stage.executors.list()) == came

    def note(came: int) -> None:
        stage.until(lambda: refused(came), f"word that {came} came")
        told = stage.pool.status().refusal
        assert told is not None
        refusals.append({**told.facts, **stage.look()})

    stage.pool.want(5)
    note(3)
    with another_worker(stage.spark, stage.folder):
        note(4)
        stage.until(lambda: len(set(stage.moves.places().values())) == 4, "state on the fourth")
    note(3)
    return {"refusals": refusals, "closed": stage.close(), "end": stage.end()}


@contextmanager
def another_worker(spark: SparkSession, folder: Path) -> Iterator[None]:
    """One more machine in the cluster, which goes again with its executors."""
    environment = os.environ | {"SPARK_HOME": str(spark_jars().parent), "SPARK_LOCAL_IP": "127.0.0.77"}
    environment["SPARK_SCALA_VERSION"] = "2.13"
    command = [find_java().command, "-Xmx256m", "-cp", f"{spark_jars()}/*"]
    command += ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.77", "--port", "0"]
    command += ["--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
    with (folder / "worker.log").open("wb") as log:
        master = str(spark.sparkContext.master)
        worker = subprocess.Popen([*command, master], env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        ours = [*psutil.Process(worker.pid).children(recursive=True), psutil.Process(worker.pid)]
        for process in ours:
            process.kill()
        worker.wait(30)


def many(stage: Stage) -> dict[str, Any]:
    """All state to one executor and back, with as many partitions as were asked for."""
    first = stage.executors.list()[0].id
    out = stage.moves.move(dict.fromkeys(stage.moves.places(), first))
    stage.until(lambda: out.done, "the moves")
    return {
        "missed": len(out.missed),
        "moved": len(out.outcomes),
        "seen": [stage.settle(2)],
        "closed": stage.close(),
        "end": stage.end(),
    }


def main(scenario: str, folder: Path, partitions: str | None = None) -> None:
    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with LoopbackCluster(workers=3, cores=1, memory="1g") as cluster:
        builder = SparkSession.builder.master(cluster.master_url)
        builder = builder.config("spark.executor.memory", "512m").config("spark.driver.memory", "1g")
        if partitions is not None:
            builder = builder.config("spark.sql.shuffle.partitions", partitions)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        try:
            scenarios = {"resize": resize, "stops": stops, "zombie": zombie, "scarce": scarce, "many": many}
            report = scenarios[scenario](Stage(spark, folder, QUICK if scenario == "scarce" else None))
        finally:
            spark.stop()
    (folder / "report.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
