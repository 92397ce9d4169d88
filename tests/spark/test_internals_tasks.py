"""Task metrics and shuffle matrices agree with each other and with the query's own progress."""

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.internals import tasks
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.shuffles import Shuffles, _exchanges
from penstock.spark.internals.tasks import TaskMetrics
from tests.spark.streams import (
    ROWS_PER_BATCH,
    SOURCE_PARTITIONS,
    collected,
    finished_batch,
    next_batch,
    numbers,
    started,
)


def aggregation(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").count()


def test_records_and_bytes_add_up(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(aggregation(numbers(local_spark)), tmp_path, mode="update", every_ms=500)
    finished_batch(query, 1)
    metrics = TaskMetrics(local_spark)
    batch = next_batch(query)
    table = metrics.batch(str(query.runId), batch)
    maps, reduces = table.input_records > 0, table.shuffle_read_records > 0
    assert len(table) == SOURCE_PARTITIONS + 3
    assert set(table.status) == {"SUCCESS"}
    assert table.input_records.sum() == ROWS_PER_BATCH
    assert maps.sum() == SOURCE_PARTITIONS
    assert table.shuffle_write_records.sum() == table.shuffle_read_records.sum() > 0
    assert not (maps & reduces).any()
    read = table.shuffle_read_local_bytes.sum() + table.shuffle_read_remote_bytes.sum()
    assert read == table.shuffle_write_bytes.sum() > 0
    assert table.shuffled_bytes == (read, table.shuffle_read_remote_bytes.sum())
    assert sorted(table.partition[maps]) == list(range(SOURCE_PARTITIONS))
    assert set(table.executor) == {"driver"}
    assert (table.cpu_ns[maps] > 0).all()
    assert (table.duration_ms >= table.run_ms).all()


def test_a_batch_nobody_ran_is_empty(local_spark: SparkSession) -> None:
    assert len(TaskMetrics(local_spark).batch("no such run", 0)) == 0


def test_memory_is_bounded(
    local_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "KEPT_BATCHES", 3)
    metrics = TaskMetrics(local_spark)
    query = started(numbers(local_spark), tmp_path)
    finished_batch(query, 6)
    query.stop()
    assert len(metrics.batch(str(query.runId), 0)) == 0
    assert len(metrics.batch(str(query.runId), 6)) == SOURCE_PARTITIONS
    assert len(metrics._stages) == 3


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_matrix_sums_to_the_bytes_written(
    local_spark: SparkSession, tmp_path: Path, adaptive: bool
) -> None:
    frame = numbers(local_spark)
    if adaptive:  # without state, Spark plans the shuffle adaptively
        query = started(frame.repartition(4, "key"), tmp_path, every_ms=2000)
    else:
        query = started(aggregation(frame), tmp_path, mode="update", every_ms=2000)
    finished_batch(query, 1)
    shuffles, metrics = Shuffles(local_spark), TaskMetrics(local_spark)
    batch = next_batch(query)
    found = shuffles.last_batch(query, {batch})
    assert found is not None
    batch_id, (matrix,) = found
    assert batch_id == batch
    assert matrix.sizes_bytes.shape == (SOURCE_PARTITIONS, 4 if adaptive else 3)
    written = metrics.batch(str(query.runId), batch).shuffle_write_bytes
    by_map = np.sort(matrix.sizes_bytes.sum(axis=1))
    exact = np.sort(written[written > 0])
    assert (by_map >= exact * 0.999).all()
    assert (by_map <= exact * 1.1).all()
    assert set(matrix.map_executor) == {"driver"}
    assert (matrix.writer, matrix.reader) == (None, None if adaptive else 0)


def test_matrices_know_the_stateful_operators_beside_them(local_spark: SparkSession, tmp_path: Path) -> None:
    spread = numbers(local_spark).repartition(2).dropDuplicates(["value"])
    query = started(aggregation(spread), tmp_path, mode="update", every_ms=2000)
    finished_batch(query)
    found = Shuffles(local_spark).last_batch(query, {next_batch(query)})
    assert found is not None
    # Spark counts stateful operators from the sink back: 0 counts, 1 drops what it has seen.
    assert {(matrix.writer, matrix.reader) for matrix in found[1]} == {(None, None), (None, 1), (1, 0)}


def test_exchanges_below_a_join_know_their_own_branch() -> None:
    told = ["state 1 0", "exchange 2 5", "map 1 a 1 2", "exchange 2 6", "map 2 b 3 4"]
    told += ["state 3 1", "exchange 4 7", "map 2 b 0 9", "exchange 4 8"]  # of the last one no output is known
    found = {one.shuffle_id: (one.writer, one.reader) for one in _exchanges(told)}
    assert found == {5: (None, 0), 6: (1, 0), 7: (None, 1)}


def test_the_matrix_of_batches_without_a_break(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(aggregation(numbers(local_spark)), tmp_path, mode="update")
    shuffles, metrics = Shuffles(local_spark), TaskMetrics(local_spark)
    finished_batch(query)
    shuffles.last_batch(query, ())  # looks while a later batch runs
    ended = range(next_batch(query) + 1)
    found = shuffles.last_batch(query, ended)
    assert found is not None, "the plan seen before has ended, the newest may not"
    batch_id, (matrix,) = found
    assert batch_id in ended
    written = metrics.batch(str(query.runId), batch_id).shuffle_write_bytes.sum()
    assert written * 0.999 <= matrix.sizes_bytes.sum() <= written * 1.1


def test_plans_inside_foreach_batch_are_out_of_reach(local_spark: SparkSession, tmp_path: Path) -> None:
    query = collected(aggregation(numbers(local_spark)), tmp_path, [], mode="update")
    finished_batch(query)
    with pytest.raises(SparkInternalsError, match="foreachBatch"):
        Shuffles(local_spark).last_batch(query, {0})


def test_the_matrix_names_executors_on_a_cluster(cluster_spark: SparkSession, tmp_path: Path) -> None:
    query = started(aggregation(numbers(cluster_spark)), tmp_path, mode="update", every_ms=1500)
    finished_batch(query, 1)
    shuffles, metrics = Shuffles(cluster_spark), TaskMetrics(cluster_spark)
    batch = next_batch(query)
    found = shuffles.last_batch(query, {batch})
    assert found is not None
    table = metrics.batch(str(query.runId), batch)
    ran = {
        executor for executor, wrote in zip(table.executor, table.shuffle_write_bytes, strict=True) if wrote
    }
    assert set(found[1][0].map_executor) == ran
    remote = table.shuffle_read_remote_bytes.sum()
    read = remote + table.shuffle_read_local_bytes.sum()
    assert table.shuffled_bytes == (read, remote)
    assert remote > 0
    assert set(found[1][0].map_host) <= {"127.0.0.2", "127.0.0.3", "127.0.0.4"}
