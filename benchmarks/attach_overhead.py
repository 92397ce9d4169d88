"""What `penstock.attach` costs a native query: its throughput with a pilot over its throughput without, in turns.

    python benchmarks/attach_overhead.py [--rounds 20] [--window 15] [--warm-up 180] [--partitions 200]
        [--save FILE] [--json]

One query runs on a loopback cluster of two workers for the whole time: batches of as many rows, counted by key, one
right after the other. A round has four windows: with a pilot, without, without, with (every other round begins
without), so that a machine, or a JVM, that gets steadily faster or slower changes no ratio. The throughput of a
window, from the end of a batch to the end of a later one, is its rows over its time. Beside it stand rows for a second
of CPU of everything that runs here: master, workers, executors, the driver's JVM, Python and so the pilot. The query
takes all the CPU it can get, so that both ratios say the same. A round's figure is the geometric mean of its two
windows. Exit 1: one of the two medians is below 0.99.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own habit

import penstock
from _alternated import compared
from penstock.cli.output import complaints, print_json, print_table
from penstock.spark.cluster.java import find_java
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock.spark.pilot import Pilot

ROWS = 1_000_000
SETTLE_S = 6.0
"""A pilot's first seconds are not what it costs: it learns what this Spark can do. The first pilot of a process also
loads compiled code, so one is there for a moment while the query warms up."""


FIGURES = {"rows_per_s": "rows/s", "rows_per_cpu_s": "rows per second of CPU"}


def cpu_s() -> float:
    """CPU so far of this process and of all below it, the cluster's among them."""
    own, spent_s = psutil.Process(), 0.0
    for process in (own, *own.children(recursive=True)):
        # Hadoop starts small commands all the time; when they have ended, their parents have their CPU.
        with suppress(psutil.NoSuchProcess):
            t = process.cpu_times()
            spent_s += t.user + t.system + t.children_user + t.children_system
    return spent_s


def after_a_batch(query: Any) -> tuple[float, int, float]:
    """Waits for the end of the running batch; the time then, the rows of all batches so far, the CPU so far."""
    running = batches(query)
    while batches(query) == running:
        time.sleep(0.02)
    return time.monotonic(), batches(query) * ROWS, cpu_s()


def batches(query: Any) -> int:
    """How many have ended. Asked in the cheapest way: `lastProgress` is a document of JSON."""
    return int(query._jsq.lastProgress().batchId()) + 1


def piloted(spark: SparkSession) -> Pilot:
    """A pilot that has everything to watch and nothing to change."""
    return penstock.attach(spark, latency_ms=600_000, min_executors=2, max_executors=2)


def by_round(windows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The windows of a round and way as one row."""
    kinds = sorted({(row["round"], row["way"]) for row in windows})
    of = {kind: [row for row in windows if (row["round"], row["way"]) == kind] for kind in kinds}
    return [
        {"round": number, "way": way}
        | {figure: geometric_mean(row[figure] for row in of[number, way]) for figure in FIGURES}
        for number, way in kinds
    ]


def measured(rounds: int, window_s: float, warm_up_s: float, partitions: int) -> list[dict[str, Any]]:
    """A row per window."""
    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    rows = []
    with LoopbackCluster(workers=2, cores=1, memory="1g") as cluster:
        builder = SparkSession.builder.master(cluster.master_url).config("spark.executor.memory", "512m")
        builder = builder.config("spark.sql.shuffle.partitions", partitions)
        # Every minute Spark writes and deletes files of state, and a batch then takes half as long again. Windows and
        # rounds are about as long: that would meet one way more often than the other.
        builder = builder.config("spark.sql.streaming.stateStore.maintenanceInterval", "1h")
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
        numbers = source.option("numPartitions", 2).load()
        query = (
            numbers.groupBy((F.col("value") % 1000).alias("key"))
            .agg(F.count("*"), F.sum("value"))
            .writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", tempfile.mkdtemp(prefix="overhead-"))
            .start()
        )
        time.sleep(warm_up_s)  # JVMs compile what they run in the first minutes, and the query gets faster
        piloted(spark).stop()
        for number in range(rounds):
            with_first = number % 2 == 0
            for half, with_pilot in enumerate((with_first, not with_first, not with_first, with_first)):
                way = "with" if with_pilot else "without"
                complaints.print(f"round {number + 1} of {rounds}, window {half + 1} of 4: {way}")
                pilot = piloted(spark) if with_pilot else None
                time.sleep(SETTLE_S)
                began = after_a_batch(query)
                time.sleep(window_s)
                took_s, done, spent_s = (b - a for a, b in zip(began, after_a_batch(query), strict=True))
                rows.append(
                    {
                        "round": number,
                        "way": way,
                        "rows_per_s": done / took_s,
                        "rows_per_cpu_s": done / spent_s,
                        "load_average": os.getloadavg()[0],
                    }
                )
                if pilot is not None:
                    pilot.stop()
        query.stop()
        spark.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="of four windows")
    parser.add_argument("--window", type=float, default=15.0, help="seconds")
    parser.add_argument("--warm-up", type=float, default=180.0, help="seconds")
    parser.add_argument(
        "--partitions", type=int, default=200, help="state partitions; Spark's default is 200"
    )
    parser.add_argument("--save", type=Path, default=Path(".penstock/attach_overhead.jsonl"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    windows = measured(args.rounds, args.window, args.warm_up, args.partitions)
    args.save.parent.mkdir(parents=True, exist_ok=True)
    args.save.write_text("".join(json.dumps(row) + "\n" for row in windows))
    rows = by_round(windows)
    document: dict[str, Any] = {
        "windows": windows,
        **{figure: compared(rows, figure, "with", "without") for figure in FIGURES},
    }
    if args.json:
        print_json(document)
    else:
        of = {(row["round"], row["way"]): row for row in rows}
        table = [
            [n, *(of[n, way][figure] for figure in FIGURES for way in ("with", "without"))]
            for n in range(args.rounds)
        ]
        print_table(
            "",
            ["round", *(f"{way}, {unit}" for unit in FIGURES.values() for way in ("with", "without"))],
            table,
        )
        for figure, unit in FIGURES.items():
            print(
                "{}: with a pilot over without {ratio:.4f} ({low:.4f} to {high:.4f})".format(
                    unit, **document[figure]
                )
            )
    sys.exit(0 if all(document[figure]["ratio"] >= 0.99 for figure in FIGURES) else 1)


if __name__ == "__main__":
    main()
