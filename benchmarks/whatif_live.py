"""What-if against the truth: calibrate on one executor at a low rate, predict other sizes and loads, then run those.

    python benchmarks/whatif_live.py [--seconds 240] [--rounds 1] [--most N] [--save FILE] [--keep FOLDER] [--json]

A query reads a real Kafka on a loopback cluster of workers with a core each and groups by key, in Python that computes
or that waits. Workers that compute have six tenths of a CPU each, by control groups: three of them on two processors
are then three machines. `penstock.attach` only observes and keeps the journal. `whatif` learns from two runs, one of
each kind; ten others (more executors, higher rates, other shapes) are predicted from them alone and then compared with
what their own journals say. Exit 1: in more than 2 of the 10, mean or p95 latency is off by more than 15 %, batches or
executor-seconds by more than 10 %, or the stated interval misses the truth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from _alternated import rounds
from penstock.cli.output import complaints, print_json, print_table
from penstock.dataflow import Load, constant, sine, staircase

KINDS = ("compute", "wait")
WAIT_S = 0.004
HASHES = 8000
"""What a record costs: a wait, or so many rounds of SHA-256, some 3.5 ms of CPU."""
CPUS = {"compute": 0.6, "wait": None}
RATE = {"compute": 0.55, "wait": 1.0}
"""A worker that computes a record takes longer for it than one that waits, so rates are lower."""
WARM_UP_RPS = 20.0
LIMITS = {"latency_ms.mean": 0.15, "latency_ms.p95": 0.15, "batch_ms": 0.10, "executor_seconds": 0.10}
MUST = 0.8
"""Share of the held-out runs that must be within the limits, and within the intervals."""


def cases(kind: str, seconds: float) -> dict[str, tuple[int, Load]]:
    """Name to executors and load: `learn` is what is learnt from, the others are held out."""
    third = seconds / 3
    found = {
        "learn": (1, staircase([(third, 40), (third, 110), (third, 70)])),
        "two-steady": (2, constant(220)),
        "three-steady": (3, constant(400)),
        "three-wave": (3, sine(330, 150, seconds / 2)),
        "two-steps": (2, staircase([(third, 80), (third, 260), (third, 120)])),
        "three-steps": (3, staircase([(third, 150), (third, 480), (third, 200)])),
    }
    return {name: (count, load.scaled(rate=RATE[kind])) for name, (count, load) in found.items()}


def run_way(way: str, seconds: float, journal: str) -> dict[str, Any]:
    """One live run, in this process; its journal is the result."""
    from pyspark.sql import SparkSession, functions
    from pyspark.sql.types import LongType

    import penstock
    from penstock.spark.cluster.jars import kafka_connector_conf
    from penstock.spark.cluster.loopback import LoopbackCluster
    from penstock_papers.common.kafka_broker import KafkaBroker, feeding

    kind, _, name = way.partition(":")
    executors, load = cases(kind, seconds)[name]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(tempfile.mkdtemp(prefix="whatif-"))

    def cost(numbers: pd.Series) -> pd.Series:
        import hashlib
        import time as clock

        for number in numbers:
            if kind == "wait":
                clock.sleep(WAIT_S)
            else:
                hashlib.pbkdf2_hmac("sha256", str(number).encode(), b"salt", HASHES)
        return numbers % 64

    workers = LoopbackCluster(workers=executors, cores=1, memory="1g", cpus=CPUS[kind])
    with KafkaBroker(folder) as broker, workers as cluster:
        topic = broker.create_topic("numbers", partitions=6)
        builder = SparkSession.builder.master(cluster.master_url).config("spark.executor.memory", "512m")
        builder = builder.config("spark.sql.shuffle.partitions", "6")
        for key, value in kafka_connector_conf().items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        numbers = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", topic)
            .load()
            .selectExpr("cast(get_json_object(cast(value as string), '$.number') as long) as number")
        )
        costly = functions.pandas_udf(cost, LongType())
        query = (
            numbers.groupBy(costly("number").alias("key"))
            .count()
            .writeStream.queryName(name)
            .outputMode("update")
            .format("noop")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        with feeding(broker.bootstrap, {topic: constant(WARM_UP_RPS)}):
            time.sleep(30.0)  # code is loaded, executors are there
        query.processAllAvailable()
        pilot = penstock.attach(spark, latency_ms=5000.0, mode="observe", journal=journal)
        with feeding(broker.bootstrap, {topic: load}):
            time.sleep(seconds)
        pilot.stop()
        query.stop()
        spark.stop()
    return {"journal": journal, "executors": executors}


def judged(journal: str, learnt: str, way: str, seconds: float) -> dict[str, Any]:
    """A held-out run beside what was predicted of it from another."""
    import penstock

    kind, _, name = way.partition(":")
    executors, load = cases(kind, seconds)[name]
    found = penstock.whatif(learnt, rate_trace=played(load, seconds), executors=(executors, executors))
    truth = penstock.whatif(journal, draws=2)
    happened = _flat(truth["actual"], truth["duration_s"])
    predicted = _flat(found["predicted"], seconds)
    off = {key: predicted[key] / happened[key] - 1 for key in LIMITS}
    ranges = {
        **found["interval"],
        "executor_seconds": [x / seconds for x in found["interval"]["executor_seconds"]],
    }
    # Executors of a fixed size are known exactly: their interval has no width to judge.
    judged_by = [key for key in LIMITS if key != "executor_seconds"]
    return {
        "off": off,
        "within": all(abs(off[key]) <= most for key, most in LIMITS.items()),
        "covered": all(ranges[key][0] <= happened[key] <= ranges[key][1] for key in judged_by),
        "replay_error": found["error"],
    }


def played(load: Load, seconds: float) -> Load:
    """What a load produces in that time, second by second."""
    times = [float(t) for t in range(int(seconds))]
    return Load(tuple(times), tuple(float(load.rate_at(t)) for t in times), float(seconds))


def _flat(figures: dict[str, Any], seconds: float) -> dict[str, float]:
    """The figures that are compared; executor-seconds for each second, as runs are cut at batches."""
    return {
        "latency_ms.mean": figures["latency_ms"]["mean"],
        "latency_ms.p95": figures["latency_ms"]["p95"],
        "batch_ms": figures["batch_ms"],
        "executor_seconds": figures["executor_seconds"] / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=240.0, help="length of each run")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--most", type=int, help="runs now; the next call goes on from the file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path(".penstock/whatif_live.jsonl"))
    parser.add_argument(
        "--keep", type=Path, default=Path(".penstock/whatif_live"), help="folder of the journals"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--journal", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        print(json.dumps(run_way(args.way, args.seconds, args.journal)))
        return
    args.keep.mkdir(parents=True, exist_ok=True)

    def run(way: str, seed: int) -> dict[str, Any]:
        journal = args.keep / f"{way.replace(':', '-')}-{seed}-{int(time.time())}.sqlite"
        command = [sys.executable, __file__, "--way", way, "--journal", str(journal)]
        command += ["--seconds", str(args.seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
        if done.returncode:
            raise SystemExit(f"{way} failed:\n{done.stderr[-3000:]}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    ways = [f"{kind}:{name}" for kind in KINDS for name in cases(kind, args.seconds)]
    found = rounds(
        ways,
        run,
        count=args.rounds,
        seed=args.seed,
        save=args.save,
        tell=complaints.print,
        most=args.most,
    )
    if (missing := args.rounds * len(ways) - len(found)) > 0:
        complaints.print(f"{missing} runs are missing; the same command goes on with them")
        return
    journals = {(r["round"], r["way"]): r["journal"] for r in found}
    results = []
    for (number, way), journal in sorted(journals.items()):
        kind, _, name = way.partition(":")
        if name != "learn":
            learnt = journals[number, f"{kind}:learn"]
            results.append({"round": number, "way": way, **judged(journal, learnt, way, args.seconds)})
    within = sum(r["within"] for r in results) / len(results)
    covered = sum(r["covered"] for r in results) / len(results)
    if args.json:
        print_json({"within": within, "covered": covered, "runs": results})
    else:
        rows = [
            [r["round"], r["way"], *(100 * r["off"][key] for key in LIMITS), r["within"], r["covered"]]
            for r in results
        ]
        heads = ["mean off %", "p95 off %", "batches off %", "executors off %"]
        print_table("", ["round", "run", *heads, "within", "covered"], rows)
        print(f"\nwithin the limits: {within:.0%}, covered by the interval: {covered:.0%}")
    sys.exit(0 if within >= MUST and covered >= MUST else 1)


if __name__ == "__main__":
    main()
