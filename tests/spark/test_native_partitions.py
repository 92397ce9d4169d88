"""An attached query with Spark's defaults: what each state partition cost and holds equals what Spark itself says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.spark import frame_controls
from penstock.spark.internals.gateway import JsonReader, context
from penstock.spark.internals.tasks import TaskTable
from penstock.spark.observe.native_tasks import NativeReader, NativeTasks
from penstock.spark.session import SETTINGS
from penstock.telemetry import Snapshot
from tests.spark.streams import finished_batch, wait_for
from tests.spark.test_native_tasks import PARTITIONS, aggregation, distinct, joined


def stock(spark: SparkSession) -> SparkSession:
    """A session of the application in which every setting of streaming is Spark's own."""
    session = spark.newSession()
    for one in SETTINGS:
        if one.key.startswith("spark.sql."):
            session.conf.unset(one.key)
    assert "HDFSBacked" in str(session.conf.get("spark.sql.streaming.stateStore.providerClass"))
    return session


def begun(frame: DataFrame, checkpoint: Path, *, mode: str, each: bool) -> StreamingQuery:
    writer = frame.writeStream.queryName("native").outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="2 seconds")
    writer = writer.foreachBatch(lambda batch, _: batch.collect() and None) if each else writer.format("noop")
    return writer.start()


class Spied:
    """What the pilot read of Spark's tasks, and the snapshots that it made of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[tuple[list[TaskTable], NativeTasks]] = []
        self.snapshots: list[Snapshot] = []
        plain = NativeReader.read

        def read(reader: NativeReader, tables: Any, scale: float = 1.0) -> NativeTasks:
            found = plain(reader, tables, scale)
            self.read.append((list(tables), found))
            return found

        monkeypatch.setattr(NativeReader, "read", read)
        # Other tests declared sheds in this application; with any, tasks are told by what they share.
        monkeypatch.setattr(frame_controls, "has_points", lambda spark: False)

    def note(self, _: object, snapshot: Snapshot | None) -> None:
        if snapshot is not None and snapshot.tasks.known.any():
            self.snapshots.append(snapshot)

    def whole_batch(self) -> tuple[Snapshot, TaskTable, NativeTasks] | None:
        """The newest snapshot of a single batch beyond the first ones, with what was read for it."""
        pairs = zip(self.snapshots, self.read, strict=False)
        alone = [
            (snapshot, tables[0], native)
            for snapshot, (tables, native) in pairs
            if snapshot.batches is not None and len(snapshot.batches.id) == 1 and snapshot.batches.id[0] >= 2
        ]
        return alone[-1] if alone else None


def spark_tasks(spark: SparkSession, table: TaskTable) -> dict[int, list[dict[str, Any]]]:
    """Spark's own list of the tasks of each stage."""
    store, reader = context(spark).statusStore(), JsonReader(spark)
    return {s.id: json.loads(reader.text(store.taskList(s.id, s.attempt, 10_000))) for s in table.stages}


def held_rows(
    spark: SparkSession, checkpoint: Path, batch: int, operator: int, *, join: bool
) -> dict[int, int]:
    """Rows in each partition of the state as Spark's state reader finds it after a batch."""
    found = dict.fromkeys(range(PARTITIONS), 0)
    for side in ("left", "right") if join else ("none",):
        reader = spark.read.format("statestore").option("batchId", batch).option("operatorId", operator)
        frame = reader.option("joinSide", side).load(str(checkpoint))
        for row in frame.groupBy("partition_id").count().collect():
            found[row["partition_id"]] += row["count"]
    return found


@pytest.mark.parametrize(
    ("frame", "mode", "each"),
    [
        (aggregation, "update", False),
        (joined, "append", False),
        (distinct, "append", False),
        (aggregation, "update", True),
    ],
    ids=["aggregation", "join", "drop-duplicates", "foreach-batch"],
)
def test_partitions_of_an_attached_query_are_as_spark_tells_them(
    local_spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    frame: Callable[[SparkSession], DataFrame],
    mode: str,
    each: bool,
) -> None:
    session, spied = stock(local_spark), Spied(monkeypatch)
    query = begun(frame(session), tmp_path, mode=mode, each=each)
    finished_batch(query)
    with penstock.attach(
        local_spark, interference=True, interval_s=0.5, subscribers=[spied.note], mode="observe"
    ) as pilot:
        snapshot, table, native = wait_for(
            spied.whole_batch, timeout_s=300, what="a snapshot of one whole batch"
        )
        assert not pilot.loop.faults
    assert snapshot.batches is not None
    batch = int(snapshot.batches.id[0])
    reports = [json.loads(progress.json()) for progress in query._jsq.recentProgress()]
    states = next(r["stateOperators"] for r in reports if r["batchId"] == batch)
    query.stop()
    listed = spark_tasks(local_spark, table)

    # All of it: what the operators are told to have had adds up to what Spark says that tasks had.
    every = [task["taskMetrics"] for tasks in listed.values() for task in tasks]
    assert native.busy_s.sum() * 1e3 == pytest.approx(
        sum(m["executorRunTime"] + m["executorDeserializeTime"] for m in every)
    )
    assert native.cpu_s.sum() * 1e9 == pytest.approx(sum(m["executorCpuTime"] for m in every))
    assert len(every) == sum(len(tasks) for tasks in listed.values()) == native.ran.sum()

    # And by state partition: each operator with state has its stage for itself here.
    stages = {number: s.id for s in table.stages for number in s.states}
    assert sorted(stages) == list(range(len(states))) == [0]
    for number, stage in stages.items():
        operator = snapshot.dataflow.row[next(o.id for o in snapshot.dataflow.operators if o.is_stateful)]
        mine = np.flatnonzero(native.operator == operator)
        told = np.flatnonzero(snapshot.tasks.operator == operator)
        assert native.index[mine].tolist() == snapshot.tasks.index[told].tolist() == list(range(PARTITIONS))
        own = {task["partitionId"]: task["taskMetrics"] for task in listed[stage]}
        own = dict(sorted(own.items()))
        read = [m["shuffleReadMetrics"] for m in own.values()]
        figures = {
            "cpu_s": [m["executorCpuTime"] / 1e9 for m in own.values()],
            "busy_s": [(m["executorRunTime"] + m["executorDeserializeTime"]) / 1e3 for m in own.values()],
            "records_in": [m["recordsRead"] for m in read],
            "bytes_in": [m["localBytesRead"] + m["remoteBytesRead"] for m in read],
        }
        for name, wanted in figures.items():
            assert getattr(native, name)[mine].tolist() == pytest.approx(wanted), name
            assert min(wanted) > 0, name
        tasks = snapshot.tasks
        assert tasks.busy_s[told].tolist() == pytest.approx(figures["busy_s"])
        assert tasks.arrived[told].tolist() == figures["records_in"]
        assert tasks.bytes_in[told].tolist() == figures["bytes_in"]

        rows = held_rows(session, tmp_path, batch, number, join=frame is joined)
        assert tasks.state_known[told].all()
        assert tasks.state_rows[told].tolist() == list(rows.values())
        assert sum(rows.values()) == states[number]["numRowsTotal"] > 0
        size = states[number]["customMetrics"]["stateOnCurrentVersionSizeBytes"]
        assert tasks.state_bytes[told].sum() == size > 0
        assert (tasks.state_bytes[told] > 0).all()
