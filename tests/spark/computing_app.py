"""A program that knows nothing of Penstock: hashes records for a while and counts them by key.

    python computing_app.py FOLDER ROWS_PER_SECOND HASHES

It ends when FOLDER/stop is there, and then writes what it counted, and what Spark says it read, to FOLDER/counted.json.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody writes it)


def main() -> None:
    folder, rate, hashes = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = SparkSession.builder.appName("computing").getOrCreate()
    rows = spark.readStream.format("rate").option("rowsPerSecond", rate).option("numPartitions", 4).load()
    worked = rows.withColumn(
        "hash", F.expr(f"aggregate(sequence(1, {hashes}), cast(value as string), (a, x) -> sha2(a, 256))")
    )
    counts = worked.groupBy((F.col("value") % 40).alias("key")).agg(
        F.count("*").alias("n"), F.max("hash").alias("last")
    )
    counted: dict[int, int] = {}
    totals: dict[int, int] = {}

    def take(batch, number):
        counted.update({row["key"]: row["n"] for row in batch.collect()})
        totals[number] = sum(counted.values())

    query = (
        counts.writeStream.queryName("counts")
        .outputMode("update")
        .foreachBatch(take)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    read: dict[int, int] = {}
    while not (folder / "stop").exists() and not query.awaitTermination(0.5):
        read |= {progress["batchId"]: progress["numInputRows"] for progress in query.recentProgress}
    query.stop()
    last = max(read.keys() & totals.keys())  # the stop may have met a batch half way
    told = {
        "counted": totals[last],
        "read": sum(n for id_, n in read.items() if id_ <= last),
        "batches": last + 1,
    }
    (folder / "counted.json").write_text(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main()
