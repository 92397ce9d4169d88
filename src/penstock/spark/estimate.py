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

from collections.abc import Callable

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
    facts = {
        "value": sql.sum(weight() * y),
        "kept": sql.sum(y),
        "up": sql.min(y) >= 0,
        "down": sql.max(y) <= 0,
        "sums": _spread_sums([y], unique),
    }

    def ends(of: Column, t: Column) -> tuple[Column, Column]:
        one_sign = of["up"] | of["down"]
        low, high = bounds(of["value"], _variance(of["sums"], [sql.lit(1.0)], unique), t, one_sign, _COLUMNS)
        return (
            sql.when(of["up"], sql.greatest(low, of["kept"])).otherwise(low),
            sql.when(of["down"], sql.least(high, of["kept"])).otherwise(high),
        )

    return _told(facts, y, ends, confidence, unique)


def _ratio(x: Column, y: Column, confidence: float, unique: bool) -> Column:
    size = sql.sum(weight() * y)
    facts = {
        "value": sql.try_divide(sql.sum(weight() * x), size),
        "size": size,
        "sums": _spread_sums([x, y], unique),
    }

    def ends(of: Column, t: Column) -> tuple[Column, Column]:
        variance = _variance(of["sums"], [sql.lit(1.0), -of["value"]], unique)
        margin = sql.try_divide(t * sql.sqrt(variance), sql.abs(of["size"]))
        return of["value"] - margin, of["value"] + margin

    return _told(facts, x, ends, confidence, unique)


def _told(
    facts: dict[str, Column],
    y: Column,
    ends: Callable[[Column, Column], tuple[Column, Column]],
    confidence: float,
    unique: bool,
) -> Column:
    """(value, low, high), where `ends` makes the bounds of the facts and of Student's t."""
    facts = {
        **facts,
        "exact": sql.max(sql.when(y.isNotNull(), weight())) == 1.0,
        "units": _units(y, unique),
    }

    def told(of: Column, t: Column) -> Column:
        value, enough = of["value"], of["units"] >= 2
        low, high = (sql.when(of["exact"], value).when(enough, end) for end in ends(of, t))
        return sql.struct(value.alias("value"), low.alias("low"), high.alias("high"))

    def with_t(of: Column) -> Column:
        degrees = freedom(of["units"].cast("double"), _COLUMNS, None if unique else SIGNS)
        t = _let(_column(degrees), lambda d: _column(student(d, quantile(confidence))))
        return _let(t, lambda t: told(of, t))

    return _let(sql.struct(*(column.alias(name) for name, column in facts.items())), with_t)


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """The body with a name for the value: Spark has no other way to say an expression once and use it often."""
    return sql.element_at(sql.transform(sql.array(value), body), 1)


def _spread_sums(columns: list[Column], unique: bool) -> Column:
    """What the variance of a linear combination of the columns' weighted sums is made of."""
    spread = sql.sqrt(weight() * (weight() - 1.0))
    if unique:
        # (f·x + g·y)² summed, its factors known only after the sums.
        return sql.array(*(sql.sum(x * y * spread * spread) for x in columns for y in columns))
    bits = sql.floor(sql.coalesce(sql.col(HASH), sql.lit(0.0)) * 2.0**HASH_BITS).cast("long")
    positive = [bits.bitwiseAND(sql.lit(1 << r)) != 0 for r in range(SIGNS)]
    return sql.array(
        *(
            sql.array(*(sql.sum(sql.when(p, x * spread).otherwise(-x * spread)) for p in positive))
            for x in columns
        )
    )


def _variance(sums: Column, factors: list[Column], unique: bool) -> Column:
    """The estimated variance of a linear combination, from what `_spread_sums` gave."""
    if unique:
        products = [f * g for f in factors for g in factors]
        return sql.greatest(_added([p * sums[i] for i, p in enumerate(products)]), sql.lit(0.0))
    if len(factors) == 1:
        combined = sql.transform(sums[0], lambda x: factors[0] * x)
    else:
        combined = sql.zip_with(sums[0], sums[1], lambda x, y: factors[0] * x + factors[1] * y)
    squares = sql.aggregate(combined, sql.lit(0.0), lambda total, c: total + c * c)
    return squares / float(SIGNS)


def _units(y: Column, unique: bool) -> Column:
    # Rows without a hash were kept for sure, so they say nothing about what was dropped.
    return sql.count(y) if unique else sql.approx_count_distinct(sql.when(y.isNotNull(), sql.col(HASH)))


def _added(columns: list[Column]) -> Column:
    total = columns[0]
    for column in columns[1:]:
        total = total + column
    return total


def _given(column: Column | str) -> Column:
    return (sql.col(column) if isinstance(column, str) else column).cast("double")


def _column(value: Column | float) -> Column:
    return value if isinstance(value, Column) else sql.lit(value)
