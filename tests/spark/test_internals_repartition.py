"""The number of state partitions changes between two runs, and every total stays exact."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import count, sum  # noqa: A004 (Spark's name)

from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.internals.repartition import (
    PROVIDER,
    repartition_reason,
    repartition_state,
    state_provider,
)
from penstock.spark.internals.state import StatePartitions
from tests.spark.streams import collected, expected_totals, finished_batch, numbers


def test_from_three_partitions_to_six(local_spark: SparkSession, tmp_path: Path) -> None:
    reason = repartition_reason(local_spark)
    if reason:
        with pytest.raises(SparkInternalsError, match="cannot change the number of state partitions"):
            repartition_state(local_spark, tmp_path, 6)
        return
    rows: list[Any] = []
    totals = numbers(local_spark).groupBy("key").agg(count("*").alias("n"), sum("value").alias("total"))
    query = collected(totals, tmp_path, rows, mode="update")
    finished_batch(query, 2)
    last = stop_cleanly(local_spark, query)
    repartition_state(local_spark, tmp_path, 6)
    query = collected(totals, tmp_path, rows, mode="update")
    finished_batch(query, last + 4)
    (operator,) = StatePartitions(local_spark, query).operators()
    assert operator.partitions == 6
    batches = stop_cleanly(local_spark, query) + 1 - 1  # the repartitioning took one id and no rows
    assert {row["key"]: (row["n"], row["total"]) for _, row in rows} == expected_totals(batches)


def test_another_state_store_is_refused_and_the_query_goes_on(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    before = local_spark.conf.get(PROVIDER)
    local_spark.conf.set(
        PROVIDER, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    )
    rows: list[Any] = []
    totals = numbers(local_spark).groupBy("key").agg(count("*").alias("n"), sum("value").alias("total"))
    try:
        query = collected(totals, tmp_path, rows, mode="update")
        last = finished_batch(query, 1)
        stop_cleanly(local_spark, query)
        provider = state_provider(local_spark, str(tmp_path))
        assert provider is not None
        assert provider.endswith("HDFSBackedStateStoreProvider")
        with pytest.raises(SparkInternalsError, match=r"needs RocksDB|cannot change the number"):
            repartition_state(local_spark, tmp_path, 6)
        query = collected(totals, tmp_path, rows, mode="update")
        finished_batch(query, last + 2)
    finally:
        local_spark.conf.set(PROVIDER, before)
    batches = stop_cleanly(local_spark, query) + 1
    assert {row["key"]: (row["n"], row["total"]) for _, row in rows} == expected_totals(batches)


def test_nonsense_is_refused(local_spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        repartition_state(local_spark, tmp_path, 0)
    with pytest.raises(SparkInternalsError, match="state repartition"):
        repartition_state(local_spark, tmp_path / "nothing here", 3)
