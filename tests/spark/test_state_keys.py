"""The share of a join's largest key, from the checkpoint of a query whose keys are known."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr

from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.observe.checkpoint_files import state_of_checkpoint
from penstock.spark.state_keys import with_largest_keys
from penstock.telemetry.state_report import advice
from tests.spark.streams import finished_batch, numbers, started


def test_the_largest_key_of_a_join_is_counted(local_spark: SparkSession, tmp_path: Path) -> None:
    # Half of all records have key 0, the others one of their own.
    left, right = (
        numbers(local_spark, timed=True)
        .select(expr("if(value % 2 = 0, 0, value)").alias(side), col("timestamp").alias(f"t{side}"))
        .withWatermark(f"t{side}", "1 hour")
        for side in "ab"
    )
    frame = left.join(right, expr("a = b and ta between tb - interval 1 hour and tb + interval 1 hour"))
    query = started(frame, tmp_path)
    finished_batch(query, 1)
    stop_cleanly(local_spark, query)
    report = state_of_checkpoint(tmp_path, now_unix=time.time())
    (operator,) = with_largest_keys(local_spark, tmp_path, report).operators
    assert operator.largest_key_share == pytest.approx(0.5)
    assert operator.repartitioned_share(8, 400) == pytest.approx(0.5, abs=0.02)
    assert any("its largest key has 50.0% of all rows" in line for line in advice(operator, executors=8))
