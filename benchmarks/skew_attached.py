"""Live on Spark: keys with a Zipf exponent of 1.2 in a native stream-stream join on three executors.

    python benchmarks/skew_attached.py [--rounds 3] [--most N] [--save FILE] [--json]

Alone and with `penstock.attach` and the interference policy, in a drawn order, each in a process and on a loopback
cluster of its own whose workers have a limit of CPUs (needs root). Every record of the skewed side meets one of the
other and is then hashed many times in the same stage, so a partition takes time by its records. Judged by the slowest
task of the stage with state, median over the last batches. A join does not aggregate before its shuffle: the largest
key stays whole, and `penstock state --keys` counts it in the checkpoint. Exit 1: the slowest task is not 30 % shorter,
and the state doctor does not name the share of the largest key, within 10 % of what was sent.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr

import penstock
from _alternated import rounds
from interference_attached import CPUS, WORKERS, Notes, places, wait_for
from penstock.cli.output import print_json, print_table
from penstock.control import PolicyRun
from penstock.policies.interference import Interference, InterferenceOptions
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.internals.tasks import TaskMetrics
from penstock.spark.observe.checkpoint_files import state_of_checkpoint
from penstock.spark.state_keys import with_largest_keys
from penstock.telemetry.state_report import advice

KEYS, EXPONENT, ROWS, PARTITIONS, ROUNDS = 1000, 1.2, 3000, 30, 250
BATCHES, JUDGED = 40, 10
ASKED, AGREES = 0.3, 0.1
# The inverse of the distribution, at a number between 0 and 1 that each value hashes to.
UNIFORM = "pmod(hash(value), 1000003) / 1000003"
SKEWED = f"cast(pow((pow({KEYS}, 1 - {EXPONENT}) - 1) * {UNIFORM} + 1, 1 / (1 - {EXPONENT})) as int)"


def started(spark: SparkSession, checkpoint: str) -> Any:
    """The query: each record of the left meets the one of its key that the right has at the same time."""

    def side(name: str, rows: int, key: str) -> Any:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        frame = source.option("numPartitions", WORKERS).option("startTimestamp", 1000).load()
        frame = frame.select(
            expr(key).alias(name), col("timestamp").alias(f"t{name}"), col("value").alias(f"v{name}")
        )
        return frame.withWatermark(f"t{name}", "1 second")

    left, right = side("a", ROWS, SKEWED), side("b", KEYS + 1, f"value % {KEYS + 1}")
    both = left.join(right, expr("a = b and ta <= tb and ta >= tb"))
    hashes = f"aggregate(sequence(1, {ROUNDS}), cast(va as string), (text, i) -> sha2(text, 256)) as hash"
    return (
        both.selectExpr("*", hashes)
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .start()
    )


def run(way: str) -> dict[str, Any]:
    """One life of the query; what came of it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LoopbackCluster(workers=WORKERS, cores=1, memory="1g", cpus=CPUS) as cluster,
    ):
        builder = SparkSession.builder.master(cluster.master_url).config("spark.executor.memory", "512m")
        builder = builder.config("spark.sql.shuffle.partitions", PARTITIONS)
        spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        while len(Executors(spark).list()) < WORKERS:
            time.sleep(0.2)
        query, seen = started(spark, f"{folder}/checkpoint"), Notes()
        metrics, slowest_ms = TaskMetrics(spark, str(query.runId)), dict[int, float]()
        pilot = None
        if way == "penstock":
            policies = [PolicyRun(policy=Interference(), options=InterferenceOptions())]
            pilot = penstock.attach(spark, policies=policies, subscribers=[seen])
        for batch in range(1, BATCHES + 1):
            wait_for(query, batch)
            table = metrics.batch(str(query.runId), int(query.lastProgress["batchId"]))
            stateful = np.array([bool(s.states) for s in table.stages], np.bool_)
            if len(table) and stateful.any():
                slowest_ms[batch] = float(table.run_ms[stateful[table.stage_row]].max())
        placed = places(spark, query)
        if pilot is not None:
            pilot.stop()
        stop_cleanly(spark, query, timeout_s=120)
        # What was sent in the last two batches, which the watermark keeps, beside what the doctor counts.
        last = int(query.lastProgress["batchId"])
        sent = spark.range((last - 1) * ROWS, (last + 1) * ROWS).withColumnRenamed("id", "value")
        most = (
            sent.select(expr(SKEWED).alias("k"))
            .groupBy("k")
            .count()
            .selectExpr("max(count) as n")
            .head()["n"]
        )
        checkpoint = Path(folder) / "checkpoint"
        report = with_largest_keys(spark, checkpoint, state_of_checkpoint(checkpoint, now_unix=time.time()))
        spark.stop()
    (state,) = report.operators
    return {
        "slowest_ms": float(np.median(list(slowest_ms.values())[-JUDGED:])),
        "placed": placed,
        "moves": seen.moves,
        "sent_share": (most + 2) / (2 * (ROWS + KEYS + 1)),
        "doctor_share": state.largest_key_share,
        "doctor": list(advice(state, executors=WORKERS, partitions=4 * PARTITIONS)),
    }


def main() -> int:
    """Run it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, help="runs at most now; what the file has is taken from there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path(".penstock/skew_attached.jsonl"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        print(json.dumps(run(args.way)))
        return 0

    def one(way: str, seed: int) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, __file__, "--way", way], stdout=subprocess.PIPE, text=True, check=True
        )
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))

    results = rounds(
        ("alone", "penstock"),
        one,
        count=args.rounds,
        seed=args.seed,
        save=args.save,
        most=args.most,
        tell=lambda text: print(text, file=sys.stderr, flush=True),
    )
    by = {(r["round"], r["way"]): r for r in results}
    pairs = [(by[n, "alone"], by[n, "penstock"]) for n, way in by if way == "alone" and (n, "penstock") in by]
    saved = [1.0 - steered["slowest_ms"] / alone["slowest_ms"] for alone, steered in pairs]
    if args.json:
        print_json({"runs": results, "saved": saved})
    else:
        columns = ["round", "way", "slowest task ms", "moves", "largest key sent", "as the doctor counts"]
        print_table(
            f"Slowest task of the stage with state, {WORKERS} executors",
            columns,
            [
                (
                    r["round"] + 1,
                    r["way"],
                    r["slowest_ms"],
                    len(r["moves"]),
                    r["sent_share"],
                    r["doctor_share"],
                )
                for r in results
            ],
        )
        print(f"Shorter by: {saved}")
        for line in results[-1]["doctor"] if results else ():
            print(line)
    said = all(abs((r["doctor_share"] or 0.0) / r["sent_share"] - 1.0) <= AGREES for r in results)
    return 0 if saved and (float(np.median(saved)) >= ASKED or said) else 1


if __name__ == "__main__":
    sys.exit(main())
