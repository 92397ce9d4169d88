"""Moves of state partitions are honoured, and nothing is lost or counted twice."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import count, sum  # noqa: A004 (Spark's name)

from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.internals.state import StatePartitions
from tests.spark.streams import collected, expected_totals, finished_batch, next_batch, numbers, started

PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "default": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_moves_are_honoured_and_totals_exact(
    cluster_spark: SparkSession, tmp_path: Path, provider: str
) -> None:
    before = cluster_spark.conf.get(PROVIDER_KEY)
    cluster_spark.conf.set(PROVIDER_KEY, PROVIDERS[provider])
    rows: list[Any] = []
    totals = numbers(cluster_spark).groupBy("key").agg(count("*").alias("n"), sum("value").alias("total"))
    try:
        query = collected(totals, tmp_path, rows, mode="update", every_ms=1500)
    finally:
        cluster_spark.conf.set(PROVIDER_KEY, before)
    finished_batch(query, 1)
    state, executors = StatePartitions(cluster_spark, query), Executors(cluster_spark)
    (operator,) = state.operators()
    assert operator.partitions == 3
    hosts = {one.id: one.host for one in executors.list()}
    random.seed(11)
    honoured = 0
    for _ in range(5):
        last = next_batch(query)
        target = {p: random.choice(sorted(hosts)) for p in range(operator.partitions)}
        state.move(operator.id, {p: (hosts[executor], executor) for p, executor in target.items()})
        finished_batch(query, last + 1)
        honoured += state.where(operator.id) == target
    batches = stop_cleanly(cluster_spark, query) + 1
    final = {row["key"]: (row["n"], row["total"]) for _, row in rows}  # later batches overwrite earlier ones
    assert final == expected_totals(batches)
    assert honoured >= 4  # right after a batch a move sticks; a batch that began meanwhile may undo one


def test_what_does_not_exist_is_refused(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(numbers(local_spark).groupBy("key").count(), tmp_path, mode="update")
    finished_batch(query)
    state = StatePartitions(local_spark, query)
    (operator,) = state.operators()
    assert operator.stores == ("default",)
    assert set(state.where(operator.id).values()) == {"driver"}
    with pytest.raises(SparkInternalsError, match="no stateful operator 9"):
        state.where(9)
    with pytest.raises(SparkInternalsError, match="has 3 partitions"):
        state.move(operator.id, {3: ("127.0.0.1", "driver")})


def test_partitions_that_nobody_holds_have_no_place(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(numbers(local_spark).groupBy("key").count(), tmp_path, mode="update")
    finished_batch(query)
    state = StatePartitions(local_spark, query)
    (operator,) = state.operators()
    query.stop()
    state.move(operator.id, {1: ("a_host.with_underscores", "7")})
    assert state.where(operator.id)[1] == "7"
    local_spark._jsparkSession.streams().stateStoreCoordinator().deactivateInstances(state._run)
    assert state.where(operator.id) == {0: None, 1: None, 2: None}


def test_a_stateless_query_has_no_operators(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(numbers(local_spark), tmp_path)
    finished_batch(query)
    assert StatePartitions(local_spark, query).operators() == ()
