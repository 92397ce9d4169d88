"""The columns of a sample (`sampling`) in DataFrames, in Spark's own expressions."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from penstock.spark.query.sampling import HASH, SAMPLE, WEIGHT


def merged_samples(frame: DataFrame) -> DataFrame:
    """The frame with one hash and one weight per row, as its last columns, null where it had none.

    A join has those of both sides. Where both have the same hash, one draw decided about both rows, and the row counts
    as often as the side that was kept less often. Otherwise two independent draws did, and the weights multiply.
    """
    at = {name: [i for i, column in enumerate(frame.columns) if column == name] for name in SAMPLE}
    if all(len(places) == 1 for places in at.values()):
        return frame
    names = frame.columns  # by number meanwhile: a join may have two columns of one name
    frame = frame.toDF(*(f"_{i}" for i in range(len(names))))
    sides = max(1, *(len(places) for places in at.values()))
    pairs = [tuple(_column(at[name], side) for name in SAMPLE) for side in range(sides)]
    hashed, weight = pairs[0]
    for other, factor in pairs[1:]:
        hashed, weight = _joint(hashed, weight, other, factor)
    others = [sql.col(f"_{i}").alias(name) for i, name in enumerate(names) if name not in SAMPLE]
    return frame.select(*others, hashed.alias(HASH), weight.alias(WEIGHT))


def _column(places: list[int], side: int) -> Column:
    return sql.col(f"_{places[side]}") if side < len(places) else sql.lit(None).cast("double")


def _joint(one: Column, one_weight: Column, other: Column, other_weight: Column) -> tuple[Column, Column]:
    mine, theirs = (sql.coalesce(weight, sql.lit(1.0)) for weight in (one_weight, other_weight))
    return (
        sql.when(one == other, one).otherwise(sql.coalesce(one / theirs, other / mine)),
        sql.when(one == other, sql.greatest(mine, theirs)).otherwise(mine * theirs),
    )
