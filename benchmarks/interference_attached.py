"""Live on Spark: CPU hogs beside one of three unpinned executors of a native query, alone and with `penstock.attach`.

    python benchmarks/interference_attached.py [--rounds 3] [--most N] [--hogs 3] [--save FILE] [--json]
    python benchmarks/interference_attached.py --control MINUTES

A loopback cluster of three workers, each with a core and a limit of CPUs (control groups: three machines on one
computer; this needs root). The query is Spark's own: `dropDuplicates` (or with --query a count by key), then hashes of
each record in the same stage; no Python runs in its tasks. Spark has its defaults, `spark.locality.wait` included
unless --locality-wait is given, but for the number of state partitions. All batches have as many records. After some
quiet batches processes that only count join the control group of one executor; then they end. Each phase is judged by
the median of its last batches. A round runs both ways in a drawn order, each in a process and on a cluster of its own.

An executor that keeps a share 1/s of its speed leaves (2 + 1/s) / 3 of the computing: the best placement gets back
1 - (3 / (2 + 1/s) - 1) / (s - 1) of what was lost, if all of a batch is computing. With --control there are no hogs:
any move is a false one. Exit 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import penstock
from _alternated import rounds
from penstock.cli.output import print_json, print_table
from penstock.control import Cycle, PolicyRun
from penstock.policies.interference import Interference, InterferenceOptions
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock.spark.cluster.supervisor import bound_to_parent
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.gateway import context
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.internals.state import StatePartitions
from penstock.spark.internals.tasks import TaskMetrics
from penstock.telemetry import Snapshot

WORKERS, CPUS, PARTITIONS = 3, 0.6, 30
ROWS, ROUNDS = 3_000, 250
WARM_UP, QUIET, HOGGED, AFTER, JUDGED = 10, 10, 16, 12, 5
"""Batches of each phase, and of each the last that are judged."""
HOGS = 3
ASKED = 0.7
MODES = {"distinct": "append", "count": "update"}


def started(spark: SparkSession, query: str, rows: int, checkpoint: str) -> Any:
    """The query: records that were not seen before, or keys with a count, each hashed many times where its state is."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    numbers = source.option("numPartitions", WORKERS).load()
    if query == "distinct":
        frame = numbers.dropDuplicates(["value"])
    else:
        frame = numbers.groupBy((col("value") % rows).alias("value")).count()
    hashes = f"aggregate(sequence(1, {ROUNDS}), cast(value as string), (text, i) -> sha2(text, 256)) as hash"
    # All columns are used: Spark counts nothing that nobody asks for.
    writer = frame.selectExpr("*", hashes).writeStream.format("noop").outputMode(MODES[query])
    return writer.option("checkpointLocation", checkpoint).start()


def held(spark: SparkSession, query: str, checkpoint: str) -> int:
    """Records that the state at the end knows of."""
    state = spark.read.format("statestore").load(checkpoint)
    return int(
        state.count() if query == "distinct" else state.selectExpr("sum(value.count) as n").head()["n"]
    )


def told_ms(metrics: TaskMetrics, spark: SparkSession, query: Any) -> dict[str, float]:
    """Run time of the tasks of the newest batch, as the listener adds it up and as Spark's own stages have it."""
    table = metrics.batch(str(query.runId), int(query.lastProgress["batchId"]))
    store = context(spark).statusStore()
    stages = [store.stageAttempt(s.id, s.attempt, False, None, False, None)._1() for s in table.stages]
    return {
        "tasks": float(len(table)),
        "listener_ms": float(table.run_ms.sum()),
        "spark_ms": float(sum(s.executorRunTime() for s in stages)),
    }


def process_of(application: str, executor: str) -> psutil.Process:
    """The JVM of an executor of this application."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        pairs = set(pairwise(words))
        if {("--executor-id", executor), ("--app-id", application)} <= pairs:
            return process
    raise SystemExit(f"no process of executor {executor}")


@contextmanager
def hogs(count: int, beside: psutil.Process) -> Iterator[None]:
    """So many processes that count, in the control group of another; they end with this one, whatever happens."""
    lines = Path(f"/proc/{beside.pid}/cgroup").read_text().splitlines()
    found = {c: path for _, cs, path in (line.split(":", 2) for line in lines) for c in cs.split(",")}
    root = Path("/sys/fs/cgroup/cpu" if "cpu" in found else "/sys/fs/cgroup")
    group = root / found.get("cpu", found.get("", "/")).lstrip("/") / "cgroup.procs"
    running = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=bound_to_parent(None))
        for _ in range(count)
    ]
    try:
        for process in running:
            group.write_text(str(process.pid))
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def wait_for(query: Any, batch: int) -> None:
    """Return when a batch has ended."""
    while (query.lastProgress or {"batchId": -1})["batchId"] < batch:
        if not query.isActive:
            raise SystemExit(f"the query failed: {query.exception()}")
        time.sleep(0.1)


def lengths_s(query: Any) -> dict[int, float]:
    """Of the batches that Spark still remembers: the newest hundred."""
    return {p["batchId"]: p["durationMs"]["triggerExecution"] / 1e3 for p in query.recentProgress}


class Notes:
    """What the loop saw and did."""

    def __init__(self) -> None:
        self.moves: list[tuple[float, str, str]] = []
        self.speeds: list[dict[str, float]] = []

    def __call__(self, cycle: Cycle, snapshot: Snapshot | None) -> None:
        """A subscriber of the loop."""
        now_s = round(time.monotonic(), 1)
        self.moves += [(now_s, o.action.subject, o.status) for o in cycle.outcomes if o.action.kind == "move"]
        if snapshot is not None:
            speeds = snapshot.nodes.speed.round(2).tolist()
            self.speeds.append(dict(zip(snapshot.nodes.ids, speeds, strict=True)))


def run(way: str, args: argparse.Namespace) -> dict[str, Any]:
    """One life of the query; what came of it."""
    hog_count, control_min, quiet = args.hogs, args.control, args.warm_up + QUIET
    with (
        tempfile.TemporaryDirectory() as folder,
        LoopbackCluster(workers=WORKERS, cores=1, memory="1g", cpus=CPUS) as cluster,
    ):
        builder = SparkSession.builder.master(cluster.master_url).config("spark.executor.memory", "512m")
        builder = builder.config("spark.sql.shuffle.partitions", PARTITIONS)
        if args.locality_wait:
            builder = builder.config("spark.locality.wait", args.locality_wait)
        spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        while len(Executors(spark).list()) < WORKERS:
            time.sleep(0.2)
        checkpoint, seen, pilot = f"{folder}/checkpoint", Notes(), None
        query = started(spark, args.query, args.rows, checkpoint)
        metrics = TaskMetrics(spark, str(query.runId))
        wait_for(query, 0)
        if way == "penstock":
            policies = [PolicyRun(policy=Interference(), options=InterferenceOptions())]
            pilot = penstock.attach(spark, policies=policies, subscribers=[seen])
        wait_for(query, quiet)
        told = told_ms(metrics, spark, query)
        metrics.close()
        took = lengths_s(query)
        placed = {"quiet": places(spark, query)}
        marks = {"quiet": int(query.lastProgress["batchId"])}
        if control_min:
            until_s = time.monotonic() + 60 * control_min
            while time.monotonic() < until_s:
                wait_for(query, int(query.lastProgress["batchId"]) + 1)
        else:
            victim = sorted(placed["quiet"], key=int)[-1]
            with hogs(hog_count, process_of(spark.sparkContext.applicationId, victim)):
                wait_for(query, marks["quiet"] + 1 + HOGGED)
                placed["hogged"], marks["hogged"] = places(spark, query), marks["quiet"] + 1 + HOGGED
            wait_for(query, marks["hogged"] + 1 + AFTER)
            placed["after"], marks["after"] = places(spark, query), marks["hogged"] + 1 + AFTER
        report = pilot.report() if pilot is not None else ""
        if pilot is not None:
            pilot.stop()
        took |= lengths_s(query)
        stop_cleanly(spark, query, timeout_s=120)
        last, known = int(query.lastProgress["batchId"]), held(spark, args.query, checkpoint)
        spark.stop()
    return {
        **{
            f"{phase}_s": float(np.median([took[b] for b in range(end - JUDGED + 1, end + 1)]))
            for phase, end in marks.items()
        },
        "batches_s": [round(took[b], 2) for b in sorted(took)],
        "placed": placed,
        "moves": seen.moves,
        "speeds": seen.speeds,
        "told": told,
        # Each is kept, or counted, once whatever moved.
        "exact": known == args.rows * (last + 1),
        "report": report,
    }


def places(spark: SparkSession, query: Any) -> dict[str, int]:
    """State partitions on each executor."""
    found = Counter({e.id: 0 for e in Executors(spark).list()})
    found.update(e for e in StatePartitions(spark, query).where(0).values() if e is not None)
    return dict(found)


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """What came back of what was lost, in each round, and over all."""
    by = {(r["round"], r["way"]): r for r in results}
    back, bound = [], []
    for number in sorted({r["round"] for r in results}):
        alone, steered = by.get((number, "alone")), by.get((number, "penstock"))
        if alone is None or steered is None:
            continue
        lost_s, still_s = (r["hogged_s"] - r["quiet_s"] for r in (alone, steered))
        s = alone["hogged_s"] / alone["quiet_s"]
        back.append(1.0 - still_s / lost_s)
        bound.append(1.0 - (3.0 / (2.0 + 1.0 / s) - 1.0) / (s - 1.0))
    drawn = np.random.default_rng(0).choice(back, size=(4000, len(back))) if back else np.zeros((1, 1))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return {
        "back": back,
        "bound": bound,
        "median": float(np.median(back)) if back else None,
        "interval": [float(low), float(high)],
        "returned": [
            by[n, w]["placed"]["after"] for n, w in by if w == "penstock" and "after" in by[n, w]["placed"]
        ],
    }


def main() -> int:
    """Run it, print the table and the goals."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, help="runs at most now; what the file has is taken from there")
    parser.add_argument("--hogs", type=int, default=HOGS)
    parser.add_argument("--query", choices=sorted(MODES), default="distinct")
    parser.add_argument("--rows", type=int, default=ROWS, help="of a batch")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="batches")
    parser.add_argument("--locality-wait", help="as spark.locality.wait; Spark's default if not given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--control", type=float, default=0.0, help="minutes without hogs")
    parser.add_argument("--save", type=Path, default=Path(".penstock/interference_attached.jsonl"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way or args.control:
        result = run(args.way or "penstock", args)
        print(json.dumps(result))
        return int(bool(args.control) and bool(result["moves"]))

    def one(way: str, seed: int) -> dict[str, Any]:
        command = [sys.executable, __file__, "--way", way, "--hogs", str(args.hogs), "--query", args.query]
        command += ["--rows", str(args.rows), "--warm-up", str(args.warm_up)]
        command += ["--locality-wait", args.locality_wait] if args.locality_wait else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
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
    found = summary(results)
    exact = all(r["exact"] for r in results)
    if args.json:
        print_json({"runs": results, "summary": found, "exact": exact})
    else:
        phases = ("quiet_s", "hogged_s", "after_s")
        print_table(
            f"Seconds a batch on {WORKERS} executors, {args.hogs} hogs beside one",
            ["round", "way", "quiet", "hogged", "after", "moves", "partitions while hogged"],
            [
                (
                    r["round"] + 1,
                    r["way"],
                    *(f"{r[p]:.1f}" for p in phases),
                    sum(status == "applied" for _, _, status in r["moves"]),
                    str(r["placed"]["hogged"]),
                )
                for r in results
            ],
        )
        print(f"Back of what was lost: {found['back']}, at best {found['bound']}; exact: {exact}")
    return 0 if exact and found["median"] is not None and found["median"] >= ASKED else 1


if __name__ == "__main__":
    sys.exit(main())
