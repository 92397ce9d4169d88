"""The fixed cost of a micro-batch: Spark's own settings against those that `penstock doctor` advises.

    python benchmarks/fixed_cost.py [--rounds 3] [--seconds 20] [--seed 1] [--cluster] [--save FILE] [--json]

Three queries with few records on a local checkpoint: native and stateless, a Python function, a count by key. Each run
is a process of its own with a new checkpoint; a round runs every query in both ways, in an order drawn by the seed. The
advised settings are what the doctor's own function says of such a query; its prediction, from the phases of the stock
runs, stands beside what came. `--cluster`: on a loopback cluster of two workers instead of local mode. Exit 1: a
query's batch is not at least 30 % shorter as advised.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

from _alternated import compared, rounds
from penstock.api.histories import find_history
from penstock.cli.doctor import cost_of
from penstock.cli.output import print_json, print_table
from penstock.telemetry.fixed_cost import Advice, FixedCost, advice

QUERIES = ("native", "python", "keyed")
PARTITIONS = 4
ROWS = 100
ASKED = 0.7
STOCK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.driver.memory": "1g",
}
"""Nothing of ours: a small driver, as many state partitions as a small query has, and no page."""


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """A Python function that costs nothing itself."""
    yield from batches


def streaming(spark: SparkSession, query: str) -> DataFrame:
    """One of the queries."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    if query == "native":
        return source.selectExpr("value * 2 AS value")
    if query == "python":
        return source.mapInArrow(same, "timestamp TIMESTAMP, value LONG")
    return source.selectExpr("value % 50 AS key").groupBy("key").count()


def advised(query: str, parts_ms: dict[str, float], total_ms: float) -> tuple[Advice, ...]:
    """What the doctor says of a query whose batches are like this in stock settings."""
    cost = FixedCost(
        query=query,
        batches=1,
        total_ms=total_ms,
        parts_ms=parts_ms,
        stateful=query == "keyed",
        partitions=PARTITIONS,
    )
    return advice(cost, STOCK, store="local", python=query == "python", slots=2)


def run(query: str, conf: dict[str, str], seconds: float, master: str) -> FixedCost:
    """The usual batch of one run in this process."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master)
    for key, value in {**STOCK, **conf}.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryDirectory() as folder:
        spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        writer = streaming(spark, query).writeStream.format("noop").outputMode("update").queryName(query)
        running = writer.option("checkpointLocation", f"file:{folder}/checkpoint").start()
        while running.lastProgress is None or running.lastProgress["batchId"] < 10:
            assert running.isActive, running.exception()
            time.sleep(0.2)
        first = running.lastProgress["batchId"]
        time.sleep(seconds)
        told = [p.json for p in running.recentProgress if p.batchId > first]
        running.stop()
        spark.stop()
        progress = Path(folder) / "progress.json"
        progress.write_text("\n".join(told) + "\n")
        return cost_of(find_history(progress).queries[0])


def measured(query: str, conf: dict[str, str], seconds: float, cluster: bool) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps([query, conf]), "--seconds", str(seconds)]
    command += ["--cluster"] if cluster else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def one(given: str, seconds: float, cluster: bool) -> None:
    """What `measured` starts."""
    query, conf = json.loads(given)
    if cluster:
        from penstock.spark.cluster.loopback import LoopbackCluster

        with LoopbackCluster(workers=2, cores=1, memory="1g") as loopback:
            own = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", **conf}
            cost = run(query, own, seconds, loopback.master_url)
    else:
        cost = run(query, conf, seconds, "local[2]")
    figures = {"batch_ms": cost.total_ms, "fixed_ms": cost.fixed_ms, "batches": cost.batches}
    print(json.dumps(figures | {"parts_ms": dict(cost.parts_ms)}))


def main() -> int:
    """Run it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--save", type=Path, default=Path(".penstock/fixed_cost.jsonl"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one, args.seconds, args.cluster)
        return 0

    def run_way(way: str, _: int) -> dict[str, Any]:
        query, how = way.split(" ")
        conf = {a.setting: a.value for a in advised(query, {}, 0.0)} if how == "advised" else {}
        return measured(query, conf, args.seconds, args.cluster) | {"settings": conf}

    ways = [f"{query} {how}" for query in QUERIES for how in ("stock", "advised")]
    tell = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    results = rounds(ways, run_way, count=args.rounds, seed=args.seed, save=args.save, tell=tell)
    rows, passed = [], True
    for query in QUERIES:
        stock, better = ([r for r in results if r["way"] == f"{query} {how}"] for how in ("stock", "advised"))
        ratio = compared(results, "batch_ms", f"{query} advised", f"{query} stock")
        saved = [sum(a.saves_ms or 0.0 for a in advised(query, r["parts_ms"], r["batch_ms"])) for r in stock]
        predicted = sorted(r["batch_ms"] - s for r, s in zip(stock, saved, strict=True))
        passed &= ratio["ratio"] <= ASKED
        rows.append(
            [
                query,
                _middle(stock, "batch_ms"),
                _middle(better, "batch_ms"),
                predicted[len(predicted) // 2],
                _middle(stock, "fixed_ms"),
                _middle(better, "fixed_ms"),
                f"{ratio['ratio']:.2f}"
                + (f" ({ratio['low']:.2f} to {ratio['high']:.2f})" if args.rounds > 1 else ", one round"),
            ]
        )
    load = [round(x, 1) for x in psutil.getloadavg()]
    if args.json:
        print_json({"runs": results, "load_average": load})
    else:
        where = "loopback cluster of two" if args.cluster else "local[2]"
        print_table(
            f"A micro-batch in ms, {where}, {args.rounds} rounds (load average {load})",
            [
                "query",
                "stock",
                "advised",
                "predicted",
                "fixed, stock",
                "fixed, advised",
                "advised / stock (95 %)",
            ],
            rows,
        )
    return 0 if passed else 1


def _middle(results: list[dict[str, Any]], figure: str) -> float:
    ordered = sorted(float(r[figure]) for r in results)
    return ordered[len(ordered) // 2]


if __name__ == "__main__":
    sys.exit(main())
