"""Placement live: partitions of two stateful operators that talk to each other come to live together."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession

from penstock import flow
from penstock.control import PolicyRun, Settings
from penstock.dataflow.connectors import memory
from penstock.policies.placement import PlacementOptions, TaskPlacement
from penstock.runtimes.spark.autopilot import Autopilot
from penstock.runtimes.spark.internals.executors import Executors
from penstock.runtimes.spark.internals.pacing import stop_cleanly
from penstock.runtimes.spark.internals.tasks import TaskMetrics
from penstock.runtimes.spark.launch import launch
from penstock.runtimes.spark.runtime import SparkRuntime

from .flows import replayed
from .streams import finished_batch, wait_for

KEYS = 300
PARTITIONS = 6
PAYLOAD = "key long, seen long, payload string"
QUICK = PlacementOptions(every_s=2.0, confirmations=1, cool_down_s=10.0)


def readings(key: tuple[int], rows: pd.DataFrame, state: tuple[int] | None) -> tuple[Any, Any]:
    """What was seen of the key so far, with a payload that does not compress."""
    seen = (state[0] if state else 0) + len(rows)
    payload = hashlib.shake_256(f"{key[0]}-{seen}".encode()).hexdigest(400)
    return pd.DataFrame({"key": [key[0]], "seen": [len(rows)], "payload": [payload]}), (seen,)


def totals(key: tuple[int], rows: pd.DataFrame, state: tuple[int] | None) -> tuple[Any, Any]:
    total = (state[0] if state else 0) + int(rows["seen"].sum())
    return pd.DataFrame({"key": [key[0]], "total": [total]}), (total,)


def by_key(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"key": frame["number"] % KEYS})


def remote_bytes_per_record(runtime: SparkRuntime, metrics: TaskMetrics, batches: int) -> float:
    """Shuffle bytes read from other executors for each record that came in, over some batches."""
    remote = records = 0
    for _ in range(batches):
        last = runtime.query.lastProgress["batchId"]
        finished_batch(runtime.query, last + 1)
        progress = runtime.query.lastProgress
        table = metrics.batch(str(runtime.query.runId), progress["batchId"])
        remote += int(table.shuffle_read_remote_bytes.sum())
        records += progress["numInputRows"]
    return remote / records


def test_remote_shuffle_bytes_fall_by_a_third(cluster_spark: SparkSession, tmp_path: Path) -> None:
    executors = Executors(cluster_spark)
    wait_for(lambda: len(executors.list()) == 3, what="three executors")
    builder = flow("together")
    # The same key twice: partition i of the first operator sends to partition i of the second, and to no other.
    first = (
        builder.source("in", replayed(300.0))
        .map("key", by_key, takes="pandas", schema="key long")
        .keyed("readings", readings, key="key", state="seen long", schema=PAYLOAD, takes="pandas")
    )
    second = first.keyed(
        "totals", totals, key="key", state="total long", schema="key long, total long", takes="pandas"
    )
    second.sink("out", memory("together"))
    runtime = launch(
        cluster_spark, builder.build(), checkpoint=tmp_path / "c", state_partitions=PARTITIONS, trigger_s=1.0
    )
    finished_batch(runtime.query, 3)
    metrics = TaskMetrics(cluster_spark)
    before = remote_bytes_per_record(runtime, metrics, 5)
    policies = [PolicyRun(policy=TaskPlacement(time.monotonic), options=QUICK)]
    with Autopilot(runtime, policies, settings=Settings(interval_s=1.0)) as pilot:

        def together() -> bool:
            places = runtime.steering.places()
            return len(places) == 2 * PARTITIONS and all(
                places[one] == executor
                for place, executor in places.items()
                for one in places
                if one.partition == place.partition
            )

        try:
            wait_for(together, timeout_s=120, what="all pairs of partitions on one executor each")
        except AssertionError:
            raise AssertionError(pilot.report()) from None
    after = remote_bytes_per_record(runtime, metrics, 5)
    assert after <= 0.7 * before, f"{before:.0f} bytes per record remote before, {after:.0f} after"
    print(f"remote shuffle bytes per record: {before:.0f} before, {after:.0f} after")
    stop_cleanly(cluster_spark, runtime.query, timeout_s=120)
    read = sum(p["numInputRows"] for p in runtime.query.recentProgress)
    rows = cluster_spark.sql("select key, max(total) as total from together group by key").collect()
    expected = {key: read // KEYS + (key < read % KEYS) for key in range(min(KEYS, read))}
    assert {row["key"]: row["total"] for row in rows} == expected, "every record once"
