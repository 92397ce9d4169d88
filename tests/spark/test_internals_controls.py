"""A control change reaches the next micro-batch and never differs within one."""

import itertools
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from penstock.spark.internals.controls import (
    controls_at,
    get_control,
    get_controls,
    seeded,
    set_control,
    set_controls,
)
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.task_controls import BATCH_KEY, CONTROLS_KEY, ControlDocument, current_controls
from tests.spark.streams import collected, finished_batch, next_batch, numbers, wait_for

SEEN = "place string, batch long, version long, x long"


def seen_by_task(place: str) -> dict[str, Any]:
    """What the running task sees: its batch, the document's version and the value it picks."""
    task = TaskContext.get()
    assert task is not None
    text = task.getLocalProperty(CONTROLS_KEY)
    return {
        "place": place,
        "batch": int(task.getLocalProperty(BATCH_KEY) or -1),
        "version": json.loads(text)["version"] if text else 0,
        "x": current_controls().get("x", 0),
    }


def in_map(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pylist([seen_by_task("map")])


def in_reduce(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        yield pa.RecordBatch.from_pylist([seen_by_task("reduce")])


def with_group_state(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    for _ in frames:
        yield pd.DataFrame([seen_by_task("group state")])


class WithState(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[pd.DataFrame]:  # noqa: N802 (Spark's name)
        for _ in rows:
            yield pd.DataFrame([seen_by_task("transform")])

    def close(self) -> None:
        pass


def map_and_reduce(frame: DataFrame) -> DataFrame:
    return frame.mapInArrow(in_map, SEEN).repartition(3).mapInArrow(in_reduce, SEEN)


def group_state(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").applyInPandasWithState(
        with_group_state, SEEN, "n long", "append", GroupStateTimeout.NoTimeout
    )


def transform(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").transformWithStateInPandas(WithState(), SEEN, "Append", "None")


def change_at_random_moments(query: StreamingQuery, batches: int = 5) -> dict[int, int]:
    """Set x = 1, 2, … until it changed in as many batches; return from which batch on each value holds."""
    random.seed(7)
    from_batch: dict[int, int] = {}
    for x in itertools.count(1):
        from_batch[set_control(query, "x", x).effective_batch] = x
        if len(from_batch) == batches:
            return from_batch
        time.sleep(random.uniform(0.02, 0.25))
    raise AssertionError


def check(rows: list[Any], from_batch: dict[int, int]) -> None:
    """Every task of every batch picked the value that was promised for it."""
    picked: dict[int, set[int]] = defaultdict(set)
    for batch, row in rows:
        assert row["batch"] == batch
        picked[batch].add(row["x"])
    expected, wanted = 0, {}
    for batch in range(max(picked) + 1):
        expected = from_batch.get(batch, expected)
        wanted[batch] = {expected}
    assert {batch: picked[batch] for batch in wanted} == wanted


@pytest.mark.parametrize("flow", [map_and_reduce, group_state, transform])
def test_all_tasks_of_a_batch_pick_the_promised_value(
    local_spark: SparkSession, tmp_path: Path, flow: Any
) -> None:
    rows: list[Any] = []
    query = collected(flow(numbers(local_spark)), tmp_path, rows)
    finished_batch(query)
    from_batch = change_at_random_moments(query)
    finished_batch(query, max(from_batch))
    query.stop()
    check(rows, from_batch)


def test_the_same_on_a_cluster(cluster_spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Any] = []
    query = collected(map_and_reduce(numbers(cluster_spark)), tmp_path, rows)
    finished_batch(query)
    from_batch = change_at_random_moments(query)
    finished_batch(query, max(from_batch))
    query.stop()
    check(rows, from_batch)
    assert {row["place"] for _, row in rows} == {"map", "reduce"}


def test_a_change_between_two_actions_of_a_batch_waits_for_the_next(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    """Spark hands the newer document to the second action; the tasks must pick the older value."""
    seen: dict[int, list[tuple[set[int], set[int], int]]] = {}
    queries: list[StreamingQuery] = []

    def twice(batch: DataFrame, batch_id: int) -> None:
        seen[batch_id] = []
        for _ in range(2):
            rows = batch.mapInArrow(in_map, SEEN).collect()
            on_driver = controls_at(batch.sparkSession, batch_id).get("x", 0)
            seen[batch_id].append(({row["version"] for row in rows}, {row["x"] for row in rows}, on_driver))
            if queries:
                set_control(queries[0], "x", batch_id)

    writer = numbers(local_spark).writeStream.foreachBatch(twice)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    finished_batch(query)
    queries.append(query)
    first = next_batch(query) + 1
    finished_batch(query, first + 3)
    query.stop()
    for batch_id in range(first, first + 4):
        (versions_a, x_a, driver_a), (versions_b, x_b, driver_b) = seen[batch_id]
        assert min(versions_b) > max(versions_a), "the second action did not get the newer document"
        assert x_a == x_b == {driver_a} == {driver_b} == {batch_id - 1}


def test_a_change_while_idle_holds_in_the_very_next_batch(local_spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Any] = []
    query = collected(map_and_reduce(numbers(local_spark)), tmp_path, rows, every_ms=3000)
    finished_batch(query)

    def idle_after() -> int | None:
        progress = query.lastProgress
        return None if query.status["isTriggerActive"] or progress is None else progress["batchId"]

    def changed_while_idle() -> tuple[int, ControlDocument] | None:
        """Change once; only a change with no batch begun before, during or after it counts."""
        before = idle_after()
        if before is None:
            return None
        document = set_controls(query, {"x": before + 1, "y": "z"})
        return (before, document) if idle_after() == before else None

    last, document = wait_for(changed_while_idle, what="an idle moment")
    assert document.effective_batch == last + 1
    assert get_controls(query) == document
    assert get_control(query, "y") == "z"
    finished_batch(query, last + 1)
    assert last + 1 not in {row["x"] for batch, row in rows if batch <= last}
    assert {row["x"] for batch, row in rows if batch == last + 1} == {last + 1}


def test_a_seeded_query_has_its_values_in_its_first_batch(local_spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Any] = []
    with seeded(local_spark, ControlDocument(version=3, current={"x": 8})):
        query = collected(map_and_reduce(numbers(local_spark)), tmp_path, rows)
    finished_batch(query)
    assert {row["x"] for batch, row in rows if batch == 0} == {8}
    assert local_spark.conf.get(CONTROLS_KEY, None) is None
    assert set_control(query, "y", 1).version == 4


def test_a_stopped_query_takes_no_controls(local_spark: SparkSession, tmp_path: Path) -> None:
    query = collected(numbers(local_spark), tmp_path, [])
    query.stop()
    with pytest.raises(SparkInternalsError, match=r"controls: .* is not running"):
        set_control(query, "x", 1)
