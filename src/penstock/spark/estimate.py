"""Answers with error bars from a DataFrame that was shed: aggregate expressions for `groupBy().agg()`.

    import penstock.spark.estimate as estimate       # or penstock.estimate

    orders = penstock.shed(orders, keep_by="customer", name="orders")
    orders.groupBy("country").agg(estimate.count().alias("orders"), estimate.sum("amount").alias("turnover"))

Each gives a struct (value, low, high): what the whole input would have given, and the bounds that hold the true value
with the given confidence. All are Spark's own expressions, for batches and for streams. Records that share the key by
which they were shed make larger errors together; this is accounted for (`policies.shedding.estimates` has the
formulas), at 32 sums per column. Where every record has a key of its own, `unique=True` is exact and cheap. Without
shedding low and high are the value itself. They are null where fewer than two keys were kept: too little to tell.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from penstock.policies.shedding.estimates import (
    HASH_BITS,
    SIGNS,
    Operations,
    bounds,
    freedom,
    quantile,
    student,
)
from penstock.spark.query.sample_columns import merged_samples
from penstock.spark.query.sampling import HASH, WEIGHT

_COLUMNS = Operations(
    sqrt=sql.sqrt,
    where=lambda condition, then, otherwise: sql.when(condition, then).otherwise(otherwise),
    greatest=lambda one, other: sql.greatest(one, _column(other)),
    magnitude=sql.abs,
)


def count(*, confidence: float = 0.95, unique: bool = False) -> Column:
    """How many records there were."""
    return _total(sql.lit(1.0), confidence, unique)


def sum(column: Column | str, *, confidence: float = 0.95, unique: bool = False) -> Column:  # noqa: A001
    """The sum of a column over all records."""
    return _total(_given(column), confidence, unique)


def mean(column: Column | str, *, confidence: float = 0.95, unique: bool = False) -> Column:
    """The mean of a column over all records that have it."""
    x = _given(column)
    return _ratio(x, sql.when(x.isNotNull(), 1.0), confidence, unique)


def ratio(
    numerator: Column | str, denominator: Column | str, *, confidence: float = 0.95, unique: bool = False
) -> Column:
    """The sum of one column over the sum of another, of the records that have both."""
    x, y = _given(numerator), _given(denominator)
    both = x.isNotNull() & y.isNotNull()
    return _ratio(sql.when(both, x), sql.when(both, y), confidence, unique)


def merged(frame: DataFrame) -> DataFrame:
    """A join of shed DataFrames with one weight per row, from those of both sides; other DataFrames as they are."""
    return merged_samples(frame)


def weight() -> Column:
    """How many records of the input each row stands for."""
    return sql.coalesce(sql.col(WEIGHT), sql.lit(1.0))


def _total(y: Column, confidence: float, unique: bool) -> Column:
    value, kept = sql.sum(weight() * y), sql.sum(y)
    all_up, all_down = sql.min(y) >= 0, sql.max(y) <= 0
    t = _student(y, confidence, unique)
    low, high = bounds(value, _variance([y], [sql.lit(1.0)], unique), t, all_up | all_down, _COLUMNS)
    low = sql.when(all_up, sql.greatest(low, kept)).otherwise(low)
    high = sql.when(all_down, sql.least(high, kept)).otherwise(high)
    return _told(value, low, high, y, unique)


def _ratio(x: Column, y: Column, confidence: float, unique: bool) -> Column:
    size = sql.sum(weight() * y)
    value = sql.try_divide(sql.sum(weight() * x), size)
    variance = _variance([x, y], [sql.lit(1.0), -value], unique)
    margin = sql.try_divide(_student(x, confidence, unique) * sql.sqrt(variance), sql.abs(size))
    return _told(value, value - margin, value + margin, x, unique)


def _variance(columns: list[Column], factors: list[Column], unique: bool) -> Column:
    """The estimated variance of a linear combination of the columns' weighted sums."""
    spread = sql.sqrt(weight() * (weight() - 1.0))
    if unique:
        # (f·x + g·y)² summed, its factors known only after the sums.
        products = [
            f * g * sql.sum(x * y * spread * spread)
            for f, x in zip(factors, columns, strict=True)
            for g, y in zip(factors, columns, strict=True)
        ]
        return sql.greatest(_added(products), sql.lit(0.0))
    bits = sql.floor(sql.coalesce(sql.col(HASH), sql.lit(0.0)) * 2.0**HASH_BITS).cast("long")
    squares = []
    for r in range(SIGNS):
        positive = bits.bitwiseAND(sql.lit(1 << r)) != 0
        sums = [sql.sum(sql.when(positive, x * spread).otherwise(-x * spread)) for x in columns]
        combined = _added([f * s for f, s in zip(factors, sums, strict=True)])
        squares.append(combined * combined)
    return _added(squares) / float(SIGNS)


def _student(y: Column, confidence: float, unique: bool) -> Column:
    degrees = freedom(_units(y, unique).cast("double"), _COLUMNS, None if unique else SIGNS)
    return _column(student(degrees, quantile(confidence)))


def _units(y: Column, unique: bool) -> Column:
    # Rows without a hash were kept for sure, so they say nothing about what was dropped.
    return sql.count(y) if unique else sql.approx_count_distinct(sql.when(y.isNotNull(), sql.col(HASH)))


def _told(value: Column, low: Column, high: Column, y: Column, unique: bool) -> Column:
    exact = sql.max(sql.when(y.isNotNull(), weight())) == 1.0
    enough = _units(y, unique) >= 2
    ends = [sql.when(exact, value).when(enough, end) for end in (low, high)]
    return sql.struct(value.alias("value"), ends[0].alias("low"), ends[1].alias("high"))


def _added(columns: list[Column]) -> Column:
    total = columns[0]
    for column in columns[1:]:
        total = total + column
    return total


def _given(column: Column | str) -> Column:
    return (sql.col(column) if isinstance(column, str) else column).cast("double")


def _column(value: Column | float) -> Column:
    return value if isinstance(value, Column) else sql.lit(value)
