"""What it costs to look: CPU of all threads of Penstock beside a native query with many state partitions.

    python benchmarks/looking.py [--partitions 200 1000 5000] [--seconds 60] [--interference] [--json]

Local Spark; for each number of partitions a process of its own with a count by key. The CPU of the Python process (in
which nothing else runs) and of the JVM's threads that serve it (Py4J's, and the queue of listeners) is read before and
after some time without and then with `penstock.attach` at an interval of 5 s; the difference is the cost. The time goes
from the end of a batch to the end of one, `--seconds` later at the earliest: what a batch tells is read in it, however
long batches are. CPU time is that of the threads, so neighbours on the machine hardly change it; they change how many
batches there are, and each costs. Exit 1: more than 0.5 % of a core with the fewest partitions, more than twice as much
for each partition with the most as with the fewest, or a time without a whole batch.
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
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.cli.output import print_json, print_table

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


def ended(query: StreamingQuery, batch: int) -> int:
    """The newest batch that has ended, once it is a later one."""
    while (last := query.lastProgress) is None or int(last["batchId"]) <= batch:
        time.sleep(0.5)
    return int(last["batchId"])


def spent(spark: SparkSession, query: StreamingQuery, seconds: float) -> tuple[dict[str, float], float, int]:
    """(CPU of each kind in a second, seconds, batches) of whole batches from now on."""
    first = ended(query, int(query.lastProgress["batchId"]))
    # A look reads a batch up to an interval after its end: as many of them on this side as on the other.
    before, began_s = cpu_s(spark), time.monotonic()
    time.sleep(seconds)
    last = ended(query, int(query.lastProgress["batchId"]))
    after, lasted_s = cpu_s(spark), time.monotonic() - began_s
    return {kind: (after[kind] - before[kind]) / lasted_s for kind in after}, lasted_s, last - first


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
        ended(query, -1)
        alone, _, _ = spent(spark, query, seconds)
        cycles = list[int]()
        pilot = penstock.attach(
            spark,
            latency_ms=60_000.0,
            interference=interference,
            interval_s=INTERVAL_S,
            subscribers=[lambda cycle, _: cycles.append(cycle.number)],
        )
        while len(cycles) < 3:
            time.sleep(0.5)
        first = len(cycles)
        steered, lasted_s, batches = spent(spark, query, seconds)
        result = {
            "partitions": partitions,
            "cycles": len(cycles) - first,
            "batches": batches,
            "seconds": lasted_s,
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
    parser.add_argument("--interference", action="store_true", help="with that policy beside elasticity")
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
    whole = all(r["batches"] for r in results)
    return 0 if fewest["of_a_core"] <= ASKED and linear and whole else 1


if __name__ == "__main__":
    sys.exit(main())
