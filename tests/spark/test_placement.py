"""Placement live: partitions of two stateful operators that talk to each other come to live together."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.control import PolicyRun, Settings
from penstock.policies.placement import PlacementOptions, TaskPlacement
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.internals.tasks import TaskMetrics
from penstock.spark.launch import launch
from penstock.spark.pilot import Pilot
from penstock.spark.runtime import SparkRuntime
from tests.spark.correlated import KEYS, correlated
from tests.spark.streams import finished_batch, wait_for

pytestmark = pytest.mark.live

PARTITIONS = 6
MEASURED = 3
"""Batches over which the traffic is measured, before and after."""
QUICK = PlacementOptions(every_s=2.0, confirmations=1, cool_down_s=10.0, least_bytes_per_s=0.0)


def remote_bytes_per_record(runtime: SparkRuntime, metrics: TaskMetrics) -> float:
    """Shuffle bytes read from other executors for each record that came in, over some batches."""
    remote = records = 0
    for _ in range(MEASURED):
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
    dataflow = correlated("together", 300.0)
    runtime = launch(
        cluster_spark, dataflow, checkpoint=tmp_path / "c", state_partitions=PARTITIONS, trigger_s=1.0
    )
    finished_batch(runtime.query, 1)
    metrics = TaskMetrics(cluster_spark, str(runtime.query.runId))
    finished_batch(runtime.query, runtime.query.lastProgress["batchId"] + 1)  # the one under way is not told
    before = remote_bytes_per_record(runtime, metrics)
    policies = [PolicyRun(policy=TaskPlacement(time.monotonic), options=QUICK)]
    with Pilot(runtime, policies, settings=Settings(interval_s=1.0)) as pilot:

        def together() -> bool:
            places = runtime.moves.places()
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
    after = remote_bytes_per_record(runtime, metrics)
    metrics.close()
    assert after <= 0.7 * before, f"{before:.0f} bytes per record remote before, {after:.0f} after"
    print(f"remote shuffle bytes per record: {before:.0f} before, {after:.0f} after")
    stop_cleanly(cluster_spark, runtime.query, timeout_s=120)
    read = sum(p["numInputRows"] for p in runtime.query.recentProgress)
    rows = cluster_spark.sql("select key, max(total) as total from together group by key").collect()
    expected = {key: read // KEYS + (key < read % KEYS) for key in range(min(KEYS, read))}
    assert {row["key"]: row["total"] for row in rows} == expected, "every record once"
