"""A plain PySpark program: orders from Kafka are scored by a Python function and counted by region.

    spark-submit examples/orders.py BROKERS TOPIC OUTPUT_TOPIC CHECKPOINT

Nothing here knows of Penstock. It runs by itself, and unchanged under `penstock submit`.
"""

from __future__ import annotations

import hashlib
import sys

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own habit
from pyspark.sql.types import StringType

ROUNDS = 4000
"""Hashes for one order: about three milliseconds of a core."""


@F.pandas_udf(StringType())  # a type, not its name: there is no session yet
def region(number: pd.Series) -> pd.Series:
    """Where an order belongs: a hash of a hash of a hash …, so that every order costs real CPU time."""

    def worked_out(value: int) -> str:
        digest = str(value).encode()
        for _ in range(ROUNDS):
            digest = hashlib.sha256(digest).digest()
        return f"region-{digest[0] % 16:02d}"

    return number.map(worked_out)


def main(brokers: str, topic: str, output: str, checkpoint: str) -> None:
    """Count orders by region until the program is ended."""
    spark = SparkSession.builder.appName("orders").getOrCreate()
    orders = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.get_json_object(F.col("value").cast("string"), "$.number").cast("long").alias("number"))
    )
    counts = orders.groupBy(region("number").alias("region")).agg(
        F.count("*").alias("orders"), F.sum("number").alias("total")
    )
    query = (
        counts.select(
            F.col("region").alias("key"), F.to_json(F.struct("region", "orders", "total")).alias("value")
        )
        .writeStream.queryName("orders")
        .outputMode("update")
        .format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("topic", output)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
