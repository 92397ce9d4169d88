"""Twenty random moves while a query runs: nothing lost, nothing twice, whatever the operator and the state store."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.policies.actions import Move
from penstock.spark.internals.pacing import stop_cleanly
from tests.spark.control import WHY, application, carry_out
from tests.spark.streams import ROWS_PER_BATCH, collected, expected_totals, finished_batch, numbers

PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "default": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
MOVES = 20
AT_ONCE = 3


def aggregation(spark: SparkSession) -> DataFrame:
    return numbers(spark).groupBy("key").agg(sql.count("*").alias("n"), sql.sum("value").alias("total"))


class Sums(StatefulProcessor):
    """Count and sum per key, in transformWithState."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.sums = handle.getValueState("sums", "n long, total long")

    def handleInputRows(  # noqa: N802  # Spark's name
        self, key: Any, rows: Iterator[pd.DataFrame], timer_values: Any
    ) -> Iterator[pd.DataFrame]:
        n, total = self.sums.get() if self.sums.exists() else (0, 0)
        for frame in rows:
            n, total = n + len(frame), total + int(frame["value"].sum())
        self.sums.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    def close(self) -> None:
        pass


def transform_with_state(spark: SparkSession) -> DataFrame:
    grouped = numbers(spark).groupBy("key")
    return grouped.transformWithStateInPandas(Sums(), "key long, n long, total long", "update", "None")


@pytest.fixture(params=["rocksdb", "default"])
def provider(request: pytest.FixtureRequest, cluster_spark: SparkSession) -> Iterator[str]:
    before = cluster_spark.conf.get(PROVIDER_KEY)
    cluster_spark.conf.set(PROVIDER_KEY, PROVIDERS[request.param])
    yield request.param
    cluster_spark.conf.set(PROVIDER_KEY, before)


def moved_at_random(spark: SparkSession, query: Any, seed: int) -> list[float]:
    """Carry out twenty random moves through the runtime; the pauses that were measured."""
    finished_batch(query, 1)
    runtime, pauses = application(spark), []
    try:
        chosen = random.Random(seed)
        done = 0
        while done < MOVES:
            snapshot = runtime.observe()
            stateful = [i for i in range(len(snapshot.tasks)) if snapshot.tasks.node[i] >= 0]
            actions = []
            for row in chosen.sample(stateful, AT_ONCE):
                here = snapshot.nodes.ids[snapshot.tasks.node[row]]
                there = chosen.choice([n for n in snapshot.nodes.ids if n != here])
                operator = snapshot.dataflow.operators[snapshot.tasks.operator[row]].id
                index = int(snapshot.tasks.index[row])
                actions.append(Move(reason=WHY, operator=operator, index=index, source=here, target=there))
            outcomes = carry_out(runtime, *actions)
            assert {o.status for o in outcomes.values()} == {"applied"}, outcomes
            pauses += [o.reason.facts["pause_s"] for o in outcomes.values() if o.reason is not None]
            done += len(actions)
    finally:
        runtime.close()
    assert len(pauses) >= MOVES
    return pauses


def check_totals(spark: SparkSession, frame: DataFrame, checkpoint: Path, seed: int) -> None:
    rows: list[Any] = []
    query = collected(frame, checkpoint, rows, mode="update")
    pauses = moved_at_random(spark, query, seed)
    batches = stop_cleanly(spark, query) + 1
    final = {
        row["key"]: (row["n"], row["total"]) for _, row in rows
    }  # a later batch overwrites an earlier one
    assert final == expected_totals(batches)
    assert all(pause is not None and pause >= 0 for pause in pauses), "the pause is measured"


def test_aggregation(cluster_spark: SparkSession, provider: str, tmp_path: Path) -> None:
    check_totals(cluster_spark, aggregation(cluster_spark), tmp_path, seed=1)


def test_transform_with_state(cluster_spark: SparkSession, tmp_path: Path) -> None:
    # transformWithState runs on RocksDB only.
    check_totals(cluster_spark, transform_with_state(cluster_spark), tmp_path, seed=2)


def test_stream_stream_join(cluster_spark: SparkSession, provider: str, tmp_path: Path) -> None:
    def side(name: str) -> DataFrame:
        source = cluster_spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        frame = source.option("numPartitions", 2).option("startTimestamp", 1000).load()
        return frame.select((sql.col("value")).alias(name), sql.col("value").alias("key"))

    joined = side("left").join(side("right"), "key")
    rows: list[Any] = []
    query = collected(joined, tmp_path, rows)
    moved_at_random(cluster_spark, query, seed=3)
    batches = stop_cleanly(cluster_spark, query) + 1
    by_batch = {batch: [r for b, r in rows if b == batch] for batch in {b for b, _ in rows}}
    seen = Counter(row["key"] for batch in sorted(by_batch) for row in by_batch[batch])
    assert seen == Counter(range(batches * ROWS_PER_BATCH)), "every pair once"
    assert all(row["left"] == row["right"] == row["key"] for _, row in rows)
