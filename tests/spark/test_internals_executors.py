"""Executors come, work and leave on request, during a query whose results stay exact."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import count, sum  # noqa: A004 (Spark's name)

from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.internals.state import StatePartitions
from tests.spark.streams import collected, expected_totals, finished_batch, next_batch, numbers, wait_for


def test_from_three_to_one_to_three(cluster_spark: SparkSession, tmp_path: Path) -> None:
    executors = Executors(cluster_spark)
    first = wait_for(lambda: executors.list() if len(executors.list()) == 3 else (), what="three executors")
    assert {one.host for one in first} == {"127.0.0.2", "127.0.0.3", "127.0.0.4"}
    assert {one.cores for one in first} == {1}
    rows: list[Any] = []
    totals = numbers(cluster_spark).groupBy("key").agg(count("*").alias("n"), sum("value").alias("total"))
    query = collected(totals, tmp_path, rows, mode="update", every_ms=700)
    finished_batch(query, 1)

    assert executors.request_total(3)
    assert executors.target() == Executors(cluster_spark).target() == 3
    stays, *leave = first
    state = StatePartitions(cluster_spark, query)
    (operator,) = state.operators()

    def drained() -> bool:
        next_batch(query)
        if set(state.where(operator.id).values()) == {stays.id}:
            return True
        for partition in range(operator.partitions):
            state.move(operator.id, {partition: (stays.host, stays.id)})
        return False

    wait_for(drained, what="state on one executor")
    assert executors.request_total(1)
    assert executors.decommission(leave[0].id)
    assert executors.kill([leave[1].id]) == {leave[1].id}
    assert executors.kill(["no such executor"]) == frozenset()
    wait_for(lambda: [one.id for one in executors.list()] == [stays.id], what="one executor")
    assert executors.target() == 1
    next_batch(query)

    assert executors.request_total(3)
    back = wait_for(lambda: executors.list() if len(executors.list()) == 3 else (), what="three again")
    newcomer = next(one for one in back if one.id not in {gone.id for gone in first})

    def settled() -> bool:
        next_batch(query)
        if state.where(operator.id)[0] == newcomer.id:
            return True
        state.move(operator.id, {0: (newcomer.host, newcomer.id)})
        return False

    wait_for(settled, what="state on a new executor")
    batches = stop_cleanly(cluster_spark, query) + 1
    assert {row["key"]: (row["n"], row["total"]) for _, row in rows} == expected_totals(batches)


def test_in_local_mode_the_driver_is_all_there_is(local_spark: SparkSession) -> None:
    executors = Executors(local_spark)
    (only,) = executors.list()
    assert (only.id, only.cores) == ("driver", 2)
    with pytest.raises(SparkInternalsError, match=r"executors: master local\[2\]"):
        executors.request_total(2)
    with pytest.raises(SparkInternalsError, match="executors"):
        executors.kill(["driver"])
