"""Every operator with state of a query that Penstock did not build has cost, rows, bytes and state by partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.control import PolicyRun
from penstock.dataflow import OperatorId
from penstock.policies.interference import Interference, InterferenceOptions
from penstock.spark import frame_controls
from penstock.spark.attached_query import dataflow_of
from penstock.spark.frame_controls import FrameControls
from penstock.spark.goals import Goals
from penstock.spark.internals.gateway import context
from penstock.spark.internals.state import StatePartitions
from penstock.spark.internals.tasks import TaskMetrics, TaskTable
from penstock.spark.observe.native_tasks import NativeReader, NativeTasks
from penstock.telemetry import Snapshot
from tests.spark.streams import KEYS, ROWS_PER_BATCH, finished_batch, numbers, wait_for

PARTITIONS = 3


def aggregation(spark: SparkSession) -> DataFrame:
    return numbers(spark).groupBy("key").count()


def distinct(spark: SparkSession) -> DataFrame:
    return numbers(spark).dropDuplicates(["value"])


def joined(spark: SparkSession) -> DataFrame:
    left, right = (
        numbers(spark, timed=True)
        .selectExpr(f"value as {side}", f"timestamp as t{side}")
        .withWatermark(f"t{side}", "1 second")
        for side in "ab"
    )
    return left.join(right, expr("a = b and ta between tb - interval 5 seconds and tb + interval 5 seconds"))


def begun(frame: DataFrame, checkpoint: Path, *, mode: str, each: bool) -> StreamingQuery:
    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint))
    writer = writer.foreachBatch(lambda batch, _: batch.collect() and None) if each else writer.format("noop")
    return writer.start()


def looked(spark: SparkSession, query: StreamingQuery) -> tuple[NativeTasks, TaskTable, int]:
    """The figures of one whole batch, its tasks, and its id."""
    metrics = TaskMetrics(spark, str(query.runId))
    batch = finished_batch(query, finished_batch(query) + 3)
    table = metrics.batch(str(query.runId), batch)
    states = StatePartitions(spark, query).operators()
    frames = FrameControls.of(spark, query, "q", interval_s=5.0)
    sources = [str(s["description"]) for s in query.lastProgress["sources"]]
    flow = dataflow_of("q", sources, states, Goals(), frames)
    reader = NativeReader(flow, {s.id: OperatorId(f"q.state{s.id}") for s in states})
    metrics.close()
    return reader.read([table]), table, batch


@pytest.mark.parametrize(
    ("frame", "mode", "each", "rows", "state_rows"),
    [
        (aggregation, "update", False, None, lambda _: KEYS),
        (aggregation, "update", True, None, lambda _: KEYS),
        (distinct, "append", False, ROWS_PER_BATCH, lambda batch: ROWS_PER_BATCH * (batch + 1)),
        (joined, "append", False, 2 * ROWS_PER_BATCH, None),
    ],
    ids=["aggregation", "foreach-batch", "drop-duplicates", "join"],
)
def test_four_kinds_of_query(
    local_spark: SparkSession,
    tmp_path: Path,
    frame: Callable[[SparkSession], DataFrame],
    mode: str,
    each: bool,
    rows: int | None,
    state_rows: Callable[[int], int] | None,
) -> None:
    native, table, batch = looked(local_spark, begun(frame(local_spark), tmp_path, mode=mode, each=each))
    # Nothing is lost and nothing counted twice: the parts add up to Spark's own totals of the stages.
    store = context(local_spark).statusStore()
    stages = [store.stageAttempt(s.id, s.attempt, False, None, False, None)._1() for s in table.stages]
    run_ms = sum(s.executorRunTime() + s.executorDeserializeTime() for s in stages)
    assert native.busy_s.sum() * 1e3 == pytest.approx(run_ms)
    assert run_ms > 0
    assert native.cpu_s.sum() * 1e9 == pytest.approx(sum(s.executorCpuTime() for s in stages))
    # A stage holds one operator here, so what its tasks read is what the operator is told to have had.
    state = native.state_rows > 0
    assert native.index[state].tolist() == list(range(PARTITIONS))
    assert (native.busy_s[state] > 0).all()
    assert (native.state_bytes[state] > 0).all()
    assert native.bytes_in[state].sum() == sum(s.shuffleReadBytes() for s in stages)
    assert native.remote_bytes.sum() == sum(s.shuffleRemoteBytesRead() for s in stages)
    read = sum(s.shuffleReadRecords() for s in stages)
    assert native.records_in[state].sum() == (read if rows is None else rows) == read
    if state_rows is not None:
        assert native.state_rows.sum() == state_rows(batch)
    sources = np.unique(native.operator[native.bytes_out > 0])
    assert (
        native.records_in[np.isin(native.operator, sources) & ~state].sum()
        == (2 if frame is joined else 1) * ROWS_PER_BATCH
    )


def test_two_operators_with_state_in_one_stage_share_its_time(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    frame = numbers(local_spark).dropDuplicates(["key", "value"]).groupBy("key", "value").count()
    native, table, _ = looked(local_spark, begun(frame, tmp_path, mode="update", each=False))
    both = [s for s in table.stages if len(s.states) == 2]
    assert len(both) == 1, "no shuffle between them"
    operators = np.unique(native.operator[native.state_rows > 0])
    assert len(operators) == 2
    assert native.busy_s.sum() == pytest.approx((table.run_ms + table.deserialize_ms).sum() / 1e3)
    assert all((native.busy_s[native.operator == o] > 0).all() for o in operators)


@pytest.mark.parametrize("asks", [False, True])
def test_only_who_asks_for_interference_gets_figures_of_tasks(
    local_spark: SparkSession, tmp_path: Path, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests declared sheds in this application; with any, tasks are told by what they share (see the guide).
    monkeypatch.setattr(frame_controls, "has_points", lambda spark: False)
    seen: list[Snapshot] = []
    query = begun(aggregation(local_spark), tmp_path, mode="update", each=False)
    finished_batch(query)
    policies = [PolicyRun(policy=Interference(), options=InterferenceOptions())] if asks else None
    with penstock.attach(
        local_spark,
        policies=policies,
        interval_s=1.0,
        subscribers=[lambda _, snapshot: seen.append(snapshot) if snapshot is not None else None],
    ) as pilot:
        wait_for(
            lambda: [s for s in seen if s.tasks.state_known.sum() == PARTITIONS], what="state in a snapshot"
        )
        assert not pilot.loop.faults
    told = {s.dataflow.operators[i].id for s in seen for i in s.tasks.operator[s.tasks.known]}
    assert bool(told) is asks, told
    assert f"{PARTITIONS} partitions, {KEYS} rows" in pilot.report()


def test_figures_of_an_attached_query_on_a_cluster(cluster_spark: SparkSession, tmp_path: Path) -> None:
    seen: list[Snapshot] = []
    query = begun(aggregation(cluster_spark), tmp_path, mode="update", each=False)
    metrics = TaskMetrics(cluster_spark, str(query.runId))
    batch = finished_batch(query, 2)
    table = metrics.batch(str(query.runId), batch)
    metrics.close()
    store = context(cluster_spark).statusStore()
    stages = [store.stageAttempt(s.id, s.attempt, False, None, False, None)._1() for s in table.stages]
    assert table.run_ms.sum() == sum(s.executorRunTime() for s in stages) > 0
    assert table.shuffle_read_records.sum() == sum(s.shuffleReadRecords() for s in stages) > 0
    assert len(set(table.executor)) > 1
    with penstock.attach(
        cluster_spark,
        policies=[PolicyRun(policy=Interference(), options=InterferenceOptions())],
        interval_s=1.0,
        subscribers=[lambda _, snapshot: seen.append(snapshot) if snapshot is not None else None],
    ) as pilot:
        wait_for(lambda: [s for s in seen if s.tasks.known.sum() > PARTITIONS], what="figures in a snapshot")
        assert not pilot.loop.faults
    assert not [w for s in seen for w in s.warnings if "task metrics" in w]
    last = next(s for s in reversed(seen) if s.tasks.known.any())
    held = last.tasks.state_known
    assert last.tasks.state_rows[held].sum() == KEYS
    assert (last.tasks.node[held] >= 0).all(), "each where its state lives"
