"""What `penstock.shed` costs while everything is kept: a native and a Python query, with it and without, in local mode.

    python benchmarks/shed_cost.py [--rounds 5] [--rows 2000000] [--save FILE] [--json]

Every way reads the same files, a batch each. The native query adds up by key; the Python one scores every record with a
pandas function first. Seconds are those that Spark reports for the execution of the batches (`addBatch`), without the
first, in which workers start. Ratios are of the same round. Exit 1: the shed query gave another sum than the plain one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from _alternated import compared, rounds
from penstock.cli.output import complaints, print_json, print_table

WAYS = ("native", "native with shed", "python", "python with shed")
FILES = 11


def run_way(way: str, rows: int) -> dict[str, Any]:
    """One run, in this process; the figures."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812  # Spark's own habit

    import penstock

    def score(number: pd.Series) -> pd.Series:
        return number.map(lambda n: (n * 2654435761) & 0xFFFF)

    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory(prefix="shed-cost-") as temporary:
        folder, each = Path(temporary), rows // FILES
        for i in range(FILES):
            part = spark.range(i * each, (i + 1) * each, 1, 4).withColumn("key", F.col("id") % 1000)
            part.coalesce(4).write.mode("append").parquet(str(folder / "in"))
        stream = spark.readStream.schema("id long, key long").option("maxFilesPerTrigger", 4)
        frame = stream.parquet(str(folder / "in"))
        if way.endswith("with shed"):
            frame = penstock.shed(frame, keep_by="id", name="all")
        value = F.pandas_udf(score, "long")("id") if way.startswith("python") else F.col("id")
        totals: dict[int, int] = {}

        def take(batch: Any, batch_id: int) -> None:
            totals[batch_id] = batch.agg(F.sum("total")).first()[0]

        query = (
            frame.withColumn("value", value)
            .groupBy("key")
            .agg(F.sum("value").alias("total"))
            .writeStream.outputMode("complete")
            .foreachBatch(take)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        took_ms = [p["durationMs"]["addBatch"] for p in query.recentProgress if p["numInputRows"]]
    spark.stop()
    return {"seconds": sum(took_ms[1:]) / 1e3, "batches": len(took_ms), "total": totals[max(totals)]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path(".penstock/shed_cost.jsonl"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if args.way:
        print(json.dumps(run_way(args.way, args.rows)))
        return

    def run(way: str, seed: int) -> dict[str, Any]:
        command = [sys.executable, __file__, "--way", way, "--rows", str(args.rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
        if done.returncode:
            raise SystemExit(f"{way} failed:\n{done.stderr[-3000:]}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    found = rounds(WAYS, run, count=args.rounds, seed=args.seed, save=args.save, tell=complaints.print)
    ratios = {kind: compared(found, "seconds", f"{kind} with shed", kind) for kind in ("native", "python")}
    same = all(
        len({r["total"] for r in found if r["way"].startswith(kind)}) == 1 for kind in ("native", "python")
    )
    if args.json:
        print_json({"ratios": ratios, "same": same, "runs": found})
    else:
        print_table("", ["round", "way", "seconds"], [[r["round"], r["way"], r["seconds"]] for r in found])
        for kind, ratio in ratios.items():
            print(
                f"{kind}, with shed over without: {ratio['ratio']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
            )
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
