"""The largest key of a join's state, counted by Spark from a checkpoint: no placement and no repartition divides it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.telemetry.state_report import StateReport

SIDES = ("left", "right")


def with_largest_keys(spark: SparkSession, folder: Path, report: StateReport) -> StateReport:
    """The report of a checkpoint with the largest key of each join; reads its whole state once."""
    return replace(
        report,
        operators=tuple(
            replace(o, largest_key_share=_largest_share(spark, folder, int(o.operator)))
            if o.kind == "symmetricHashJoin"
            else o
            for o in report.operators
        ),
    )


def _largest_share(spark: SparkSession, folder: Path, operator: int) -> float | None:
    """Rows of the largest key over all rows, both sides together; None: there are none."""
    reader = spark.read.format("statestore").option("operatorId", operator)
    left, right = (reader.option("joinSide", side).load(str(folder)).select("key") for side in SIDES)
    # By name and type the keys of both sides may differ; as text they are equal where the values are.
    counts = left.selectExpr("to_json(key, map('ignoreNullFields', 'false')) as key").unionAll(
        right.selectExpr("to_json(key, map('ignoreNullFields', 'false')) as key")
    )
    found = counts.groupBy("key").count().selectExpr("max(count) as most", "sum(count) as all").head()
    return float(found["most"] / found["all"]) if found is not None and found["all"] else None
