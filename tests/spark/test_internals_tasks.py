"""Task metrics and shuffle matrices agree with each other, with the query's progress and with Spark's own totals."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals import task_recorder, tasks
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.gateway import context, listener
from penstock.spark.internals.shuffles import ShuffleMatrix, Shuffles, _exchanges
from penstock.spark.internals.tasks import StageFacts, TaskMetrics, TaskTable
from tests.spark.streams import (
    KEYS,
    ROWS_PER_BATCH,
    SOURCE_PARTITIONS,
    finished_batch,
    next_batch,
    numbers,
    started,
    wait_for,
)

PARTITIONS = 3


@pytest.fixture
def metrics(local_spark: SparkSession) -> Iterator[TaskMetrics]:
    reader = TaskMetrics(local_spark)
    yield reader
    reader.close()


def aggregation(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").count()


def joined(spark: SparkSession) -> DataFrame:
    left = (
        numbers(spark, timed=True).selectExpr("value as a", "timestamp as ta").withWatermark("ta", "1 second")
    )
    right = (
        numbers(spark, timed=True).selectExpr("value as b", "timestamp as tb").withWatermark("tb", "1 second")
    )
    return left.join(right, expr("a = b and ta between tb - interval 5 seconds and tb + interval 5 seconds"))


def whole_batch(metrics: TaskMetrics, query: StreamingQuery) -> tuple[TaskTable, int]:
    """The tasks of a batch that began when its run was followed, and its id."""
    run = str(query.runId)
    metrics.batch(run, -1)
    batch = finished_batch(query, finished_batch(query) + 3)
    return metrics.batch(run, batch), batch


def kinds(table: TaskTable) -> Counter[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """How many stages read which sources, hold which state, and have how many tasks."""
    return Counter((s.sources, s.states, s.tasks) for s in table.stages)


def spark_total_ms(spark: SparkSession, stages: tuple[StageFacts, ...]) -> int:
    """What Spark itself adds up for these stages."""
    store = context(spark).statusStore()
    return sum(
        store.stageAttempt(s.id, s.attempt, False, None, False, None)._1().executorRunTime() for s in stages
    )


def test_an_aggregation(local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path) -> None:
    query = started(aggregation(numbers(local_spark)), tmp_path, mode="update")
    table, _ = whole_batch(metrics, query)
    assert kinds(table) == {((0,), (), SOURCE_PARTITIONS): 1, ((), (0,), PARTITIONS): 1}
    maps, reduces = table.input_records > 0, table.shuffle_read_records > 0
    assert table.input_records.sum() == ROWS_PER_BATCH
    assert maps.sum() == SOURCE_PARTITIONS
    assert not (maps & reduces).any()
    assert table.shuffle_write_records.sum() == table.shuffle_read_records.sum() > 0
    read = table.shuffle_read_local_bytes.sum() + table.shuffle_read_remote_bytes.sum()
    assert read == table.shuffle_write_bytes.sum() > 0
    assert table.shuffled_bytes == (read, table.shuffle_read_remote_bytes.sum())
    assert set(table.executor) == {"driver"}
    assert table.succeeded.all()
    assert (table.cpu_ns > 0).all()
    assert (table.duration_ms >= table.run_ms).all()
    state = table.states
    assert sorted(table.partition[state.task]) == list(range(PARTITIONS))
    assert state.rows.sum() == KEYS
    assert (state.memory_bytes > 0).all()


def test_run_times_are_those_that_spark_adds_up(
    local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path
) -> None:
    query = started(aggregation(numbers(local_spark)), tmp_path, mode="update")
    table, _ = whole_batch(metrics, query)
    assert table.run_ms.sum() == spark_total_ms(local_spark, table.stages) > 0


def test_two_stateful_operators(local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path) -> None:
    query = started(aggregation(numbers(local_spark).dropDuplicates(["value"])), tmp_path, mode="update")
    table, _ = whole_batch(metrics, query)
    # Spark counts stateful operators from the sink back: 0 counts, 1 drops what it has seen.
    assert {s.states for s in table.stages} == {(), (0,), (1,)}
    seen = table.states.operator == 1
    assert table.states.updated[seen].sum() == ROWS_PER_BATCH


def test_a_join_of_two_streams(local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path) -> None:
    table, _ = whole_batch(metrics, started(joined(local_spark), tmp_path))
    per_batch = {((0,), (), SOURCE_PARTITIONS), ((1,), (), SOURCE_PARTITIONS), ((), (0,), PARTITIONS)}
    assert kinds(table) == dict.fromkeys(per_batch, 1)
    assert table.states.updated.sum() == 2 * ROWS_PER_BATCH
    assert table.states.emitted.sum() == ROWS_PER_BATCH


@pytest.mark.parametrize("persisted", [False, True])
def test_actions_inside_foreach_batch(
    local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path, persisted: bool
) -> None:
    def each(batch: DataFrame, _: int) -> None:
        if persisted:
            batch.persist()
        batch.groupBy("count").count().collect()
        if persisted:
            batch.unpersist()

    writer = aggregation(numbers(local_spark)).writeStream.foreachBatch(each).outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    table, _ = whole_batch(metrics, query)
    assert sum(s.states == (0,) for s in table.stages) == 1
    assert sum(s.sources == (0,) for s in table.stages) == 1
    assert any(not s.states and not s.sources for s in table.stages), "the user's own action"
    assert table.states.rows.sum() == KEYS


def test_an_adaptive_plan_and_python(local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path) -> None:
    frame = (
        numbers(local_spark).repartition(4, "key").mapInArrow(lambda batches: batches, "value long, key long")
    )
    table, _ = whole_batch(metrics, started(frame, tmp_path))
    assert kinds(table) == {((0,), (), SOURCE_PARTITIONS): 1, ((), (), 4): 1}
    assert {(s.is_first, s.is_last, s.has_python) for s in table.stages} == {
        (True, False, False),
        (False, True, True),
    }


def test_a_batch_is_told_once_and_only_if_seen_from_its_start(
    local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path
) -> None:
    query = started(numbers(local_spark), tmp_path)
    finished_batch(query)
    table, batch = whole_batch(metrics, query)
    assert len(table) == SOURCE_PARTITIONS
    assert len(metrics.batch(str(query.runId), batch)) == 0
    assert len(metrics.batch(str(query.runId), 0)) == 0
    assert len(metrics.batch("no such run", 0)) == 0


def test_what_nobody_takes_makes_room(
    local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path
) -> None:
    metrics._recorder.configure("\n".join(["number of total state rows"] * 10), 10)
    query = started(numbers(local_spark), tmp_path)
    metrics.batch(str(query.runId), -1)
    first = finished_batch(query) + 2
    last = finished_batch(query, first + 8)
    metrics._recorder.configure("\n".join(["number of total state rows"] * 10), 100_000)
    assert len(metrics.batch(str(query.runId), first)) == 0
    assert len(metrics.batch(str(query.runId), last)) == SOURCE_PARTITIONS


def test_readers_do_not_take_from_each_other(
    local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path
) -> None:
    query = started(numbers(local_spark), tmp_path)
    other = TaskMetrics(local_spark, str(query.runId))
    table, batch = whole_batch(metrics, query)
    assert len(other.batch(str(query.runId), batch)) == len(table) == SOURCE_PARTITIONS
    other.close()
    other.close()


def test_two_compiled_classes_with_the_same_methods_do_not_mix(local_spark: SparkSession) -> None:
    first, second = (listener(f'public String who() {{ return "{name}"; }}') for name in ("a", "b"))
    assert [first.who(), second.who()] == ["a", "b"]


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_matrix_sums_to_the_bytes_written(
    local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path, adaptive: bool
) -> None:
    frame = numbers(local_spark)
    if adaptive:  # without state, Spark plans the shuffle adaptively
        query = started(frame.repartition(4, "key"), tmp_path, every_ms=2000)
    else:
        query = started(aggregation(frame), tmp_path, mode="update", every_ms=2000)
    matrix, table = one_matrix(local_spark, metrics, query)
    assert matrix.sizes_bytes.shape == (SOURCE_PARTITIONS, 4 if adaptive else 3)
    by_map = np.sort(matrix.sizes_bytes.sum(axis=1))
    exact = np.sort(table.shuffle_write_bytes[table.shuffle_write_bytes > 0])
    assert (by_map >= exact * 0.999).all()
    assert (by_map <= exact * 1.1).all()
    assert set(matrix.map_executor) == {"driver"}
    assert (matrix.writer, matrix.reader) == (None, None if adaptive else 0)


def matrices_of(shuffles: Shuffles, query: StreamingQuery) -> tuple[int, tuple[ShuffleMatrix, ...]]:
    """A batch that ended, and its matrices, however soon the next batch began."""
    shuffles.last_batch(query, ())  # holds the plan of the newest until it has ended
    return wait_for(lambda: shuffles.last_batch(query, range(next_batch(query) + 1)), what="a matrix")


def one_matrix(
    spark: SparkSession, metrics: TaskMetrics, query: StreamingQuery
) -> tuple[ShuffleMatrix, TaskTable]:
    """The only matrix of a batch, and its tasks."""
    run = str(query.runId)
    metrics.batch(run, -1)
    finished_batch(query, finished_batch(query) + 1)
    batch, (matrix,) = matrices_of(Shuffles(spark), query)
    return matrix, metrics.batch(run, batch)


def test_the_matrix_inside_foreach_batch(
    local_spark: SparkSession, metrics: TaskMetrics, tmp_path: Path
) -> None:
    writer = aggregation(numbers(local_spark)).writeStream.outputMode("update")
    writer = writer.foreachBatch(lambda batch, _: batch.collect()).option("checkpointLocation", str(tmp_path))
    matrix, table = one_matrix(local_spark, metrics, writer.trigger(processingTime="2 seconds").start())
    assert (matrix.writer, matrix.reader) == (None, 0)
    written = table.shuffle_write_bytes.sum()
    assert written * 0.999 <= matrix.sizes_bytes.sum() <= written * 1.1


def test_matrices_know_the_stateful_operators_beside_them(local_spark: SparkSession, tmp_path: Path) -> None:
    spread = numbers(local_spark).repartition(2).dropDuplicates(["value"])
    query = started(aggregation(spread), tmp_path, mode="update", every_ms=2000)
    finished_batch(query)
    _, found = matrices_of(Shuffles(local_spark), query)
    assert {(matrix.writer, matrix.reader) for matrix in found} == {(None, None), (None, 1), (1, 0)}


def test_exchanges_below_a_join_know_their_own_branch() -> None:
    told = ["state 1 0", "exchange 2 5", "map 1 a 1 2", "exchange 2 6", "map 2 b 3 4"]
    told += ["state 3 1", "exchange 4 7", "map 2 b 0 9", "exchange 4 8"]  # of the last one no output is known
    found = {one.shuffle_id: (one.writer, one.reader) for one in _exchanges(told)}
    assert found == {5: (None, 0), 6: (1, 0), 7: (None, 1)}


def test_the_matrix_names_executors_on_a_cluster(cluster_spark: SparkSession, tmp_path: Path) -> None:
    metrics = TaskMetrics(cluster_spark)
    query = started(aggregation(numbers(cluster_spark)), tmp_path, mode="update", every_ms=1500)
    matrix, table = one_matrix(cluster_spark, metrics, query)
    metrics.close()
    wrote = np.flatnonzero(table.shuffle_write_bytes > 0).tolist()
    assert set(matrix.map_executor) == {table.executor[i] for i in wrote}
    assert set(matrix.map_host) <= {"127.0.0.2", "127.0.0.3", "127.0.0.4"}
    assert table.shuffle_read_remote_bytes.sum() > 0


def test_a_fault_of_the_listener_is_told_and_reaches_no_query(
    local_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without its names every callback that sees a plan fails.
    monkeypatch.setattr(tasks, "recorder", lambda: listener(task_recorder.SOURCE))
    query = started(aggregation(numbers(local_spark)), tmp_path, mode="update")
    broken = TaskMetrics(local_spark, str(query.runId))
    batch = finished_batch(query, finished_batch(query) + 3)
    with pytest.raises(SparkInternalsError, match="keeps no more"):
        broken.batch(str(query.runId), batch)
    assert finished_batch(query, batch + 2) > batch
    assert not local_spark.sparkContext._jsc.sc().isStopped()
    broken.close()
