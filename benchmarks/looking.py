"""What it costs to look: CPU of all threads of Penstock beside a native query with many state partitions.

    python benchmarks/looking.py [--partitions 200 1000 5000] [--seconds 60] [--interference] [--json]

Local Spark; for each number of partitions a process of its own with a count by key. The CPU of the Python process (in
which nothing else runs) and of the JVM's threads that serve it (Py4J's, and the queue of listeners) is read before and
after some time without and then with `penstock.attach` at an interval of 5 s; the difference is the cost. CPU time is
that of the threads, so neighbours on the machine hardly change it. Exit 1: more than 0.5 % of a core with the fewest
partitions, or more than twice as much for each partition with the most as with the fewest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from typing import Any

import psutil
from pyspark.sql import SparkSession

import penstock
from penstock.cli.output import print_json, print_table
from penstock.control import PolicyRun
from penstock.policies.interference import Interference, InterferenceOptions

INTERVAL_S = 5.0
ASKED = 0.005
THREADS = ("Thread-", "spark-listener-group-shared", "gateway")
"""How names of the JVM's threads begin that work for us: Py4J's connections, and the queue of our listeners."""


def cpu_s(spark: SparkSession) -> dict[str, float]:
    """CPU so far, of Python and of the JVM's threads by the beginnings of their names."""
    beans = spark._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    found = dict.fromkeys(("python", *THREADS), 0.0)
    for id_ in list(beans.getAllThreadIds()):
        about, spent_ns = beans.getThreadInfo(id_), beans.getThreadCpuTime(id_)
        kind = next((t for t in THREADS if about is not None and about.getThreadName().startswith(t)), None)
        if kind is not None and spent_ns > 0:
            found[kind] += spent_ns / 1e9
    own = psutil.Process().cpu_times()
    found["python"] = own.user + own.system
    return found


def spent(spark: SparkSession, seconds: float) -> dict[str, float]:
    """CPU of each kind in a second of the time from now on."""
    before, began_s = cpu_s(spark), time.monotonic()
    time.sleep(seconds)
    after = cpu_s(spark)
    return {kind: (after[kind] - before[kind]) / (time.monotonic() - began_s) for kind in after}


def run(partitions: int, seconds: float, interference: bool) -> dict[str, Any]:
    """One query; what looking at it cost."""
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
        builder = builder.config("spark.sql.shuffle.partitions", partitions).config(
            "spark.ui.enabled", "false"
        )
        spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2 * partitions).load()
        writer = source.groupBy("value").count().writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
        while query.lastProgress is None:
            time.sleep(0.5)
        alone = spent(spark, seconds)
        policies = [PolicyRun(policy=Interference(), options=InterferenceOptions())] if interference else None
        cycles = list[int]()
        pilot = penstock.attach(
            spark,
            latency_ms=None if interference else 60_000.0,
            policies=policies,
            interval_s=INTERVAL_S,
            subscribers=[lambda cycle, _: cycles.append(cycle.number)],
        )
        while len(cycles) < 3:
            time.sleep(0.5)
        first, batch = len(cycles), int(query.lastProgress["batchId"])
        steered = spent(spark, seconds)
        result = {
            "partitions": partitions,
            "cycles": len(cycles) - first,
            "batches": int(query.lastProgress["batchId"]) - batch,
            "of_a_core": sum(steered.values()) - sum(alone.values()),
            "parts": {kind: steered[kind] - alone[kind] for kind in alone},
        }
        pilot.stop()
        query.stop()
        spark.stop()
    return result


def main() -> int:
    """Run it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[200, 1000, 5000])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--interference", action="store_true", help="with that policy instead of elasticity")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run(args.one, args.seconds, args.interference)))
        return 0
    results = []
    for partitions in args.partitions:
        print(f"{partitions} partitions", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--one", str(partitions), "--seconds", str(args.seconds)]
        command += ["--interference"] if args.interference else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results.append(json.loads(done.stdout.strip().splitlines()[-1]))
    load = [round(x, 1) for x in psutil.getloadavg()]
    if args.json:
        print_json({"runs": results, "load_average": load})
    else:
        print_table(
            f"CPU of looking every {INTERVAL_S:g} s, % of a core (load average {load})",
            ["partitions", "cycles", "batches", "all", "Python", "Py4J", "listeners"],
            [
                (
                    r["partitions"],
                    r["cycles"],
                    r["batches"],
                    100 * r["of_a_core"],
                    100 * r["parts"]["python"],
                    100 * (r["parts"]["Thread-"] + r["parts"]["gateway"]),
                    100 * r["parts"]["spark-listener-group-shared"],
                )
                for r in results
            ],
        )
    fewest, most = (min(results, key=lambda r: r["partitions"]), max(results, key=lambda r: r["partitions"]))
    linear = most["of_a_core"] / most["partitions"] <= 2 * fewest["of_a_core"] / fewest["partitions"]
    return 0 if fewest["of_a_core"] <= ASKED and linear else 1


if __name__ == "__main__":
    sys.exit(main())
