"""Live on Spark: CPU hogs slow one of two executors; batch times before and with them, without Penstock and with it.

    python benchmarks/interference_live.py [--hogs 7] [--batches 12] [--wait 10] [--json]

A loopback cluster of two workers with a core each, every worker and its executor on a CPU of its own. A keyed operator
hashes; batches have the same number of records throughout, and state is spread evenly at first. The same query twice:
alone, then under the policy. In each, after some quiet batches, processes that do nothing but count start on the CPU of
the second worker. Quiet and hogged are judged by their last batches. If the slowed host keeps a share of 1/s, no
placement on two executors gets back more than s/(s+1) of what was lost: its work has to be done somewhere. Takes about
seven minutes. Exit 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock import flow
from penstock.cli.output import print_json, print_table
from penstock.control import Cycle, PolicyRun, Settings
from penstock.dataflow import Dataflow, constant
from penstock.dataflow.connectors import memory, replay
from penstock.policies.interference import Interference, InterferenceOptions
from penstock.policies.interference.demand import node_slowness
from penstock.spark.act.spreading import even_moves
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock.spark.cluster.supervisor import bound_to_parent
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.internals.state import StatePartitions
from penstock.spark.launch import have_executors, launch
from penstock.spark.pilot import Pilot
from penstock.spark.runtime import SparkRuntime
from penstock.spark.session import create_session
from penstock.telemetry import Snapshot

WORKERS, PARTITIONS = 2, 10
ROWS_PER_BATCH, KEYS = 200, 1_000
ROUNDS = 25_000
"""Of hashing for each record: about 8 ms of CPU."""
WAIT_S = 10.0
"""How long Spark lets tasks wait for the executor of their state, in both runs. With its default of 3 s it takes state
to idle executors by itself, where stages are as long as they are here; in short ones it leaves it where it is."""
TRIGGER_S, INTERVAL_S = 2.0, 5.0
WARM_UP, QUIET, HOGGED, JUDGED = 6, 6, 12, 4
"""Batches that are not counted, those before the hogs and with them, and of each the last that are judged."""
HOGS = 7
ASKED = 0.7


def numbers(start: int, stop: int) -> pa.RecordBatch:
    """Records `start` to `stop`."""
    n = np.arange(start, stop)
    return pa.RecordBatch.from_pydict({"number": n, "key": n % KEYS})


def hashed(key: tuple[int], rows: pa.RecordBatch, state: tuple[int, int] | None) -> tuple[Any, Any]:
    """Count and sum of what a key has had; each record costs CPU."""
    count, total = state or (0, 0)
    for number in rows.column("number").to_pylist():
        hashlib.pbkdf2_hmac("sha256", str(number).encode(), b"penstock", ROUNDS)
        count, total = count + 1, total + number
    return pa.RecordBatch.from_pydict({"key": [key[0]], "count": [count], "total": [total]}), (count, total)


def hashing() -> Dataflow:
    """More is always due than a batch may take, so that all batches are alike."""
    app = flow("hashing")
    source = replay(
        generator=numbers, load=constant(ROWS_PER_BATCH), max_rows_per_batch=ROWS_PER_BATCH, partitions=2
    )
    keyed = app.source("numbers", source).keyed(
        "hashed", hashed, key="key", state="count long, total long", schema="key long, count long, total long"
    )
    keyed.sink("out", memory("hashing"))
    return app.build()


@contextmanager
def hogs(count: int, cpu: int) -> Iterator[None]:
    """So many processes that keep one CPU busy; they end with this one, whatever happens."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [
        # A session each: Linux shares a CPU among sessions first, so that hogs of one session count as one.
        subprocess.Popen(command, preexec_fn=bound_to_parent({cpu}), start_new_session=True)
        for _ in range(count)
    ]
    try:
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


class Notes:
    """What the loop saw and did, and the CPU seconds of its thread."""

    def __init__(self) -> None:
        self.notes: list[tuple[float, float]] = []
        self.moves: list[tuple[int, str, str]] = []
        self.hosts: list[dict[str, tuple[float, float, float]]] = []
        """Of each cycle, by host: own cores, foreign cores, and how many times slower it was."""

    def __call__(self, cycle: Cycle, snapshot: Snapshot | None) -> None:
        """A subscriber of the loop."""
        self.notes.append((time.monotonic(), time.thread_time()))
        if snapshot is not None:
            nodes = snapshot.nodes
            seen = np.stack([nodes.own_cpu, nodes.foreign_cpu, node_slowness(snapshot)], axis=1)
            self.hosts.append(
                {host: tuple(row) for host, row in zip(nodes.hosts, seen.round(3).tolist(), strict=True)}
            )
        self.moves += [
            (cycle.number, o.action.subject, o.status) for o in cycle.outcomes if o.action.kind == "move"
        ]

    @property
    def share(self) -> float:
        """Of one core, from the third cycle on: before, code is loaded."""
        (began, before), (ended, after) = self.notes[2], self.notes[-1]
        return (after - before) / (ended - began)


def session(cluster: LoopbackCluster, folder: str) -> SparkSession:
    """Spark on both workers."""
    conf = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    spark = create_session(cluster.master_url, "hogs", extra_conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    have_executors(spark, WORKERS, given=WORKERS)
    return spark


def warm_up(spark: SparkSession, checkpoint: Path) -> None:
    """A first life that nobody judges: the JVMs compile what both others will run."""
    runtime = launch(
        spark, hashing(), checkpoint=checkpoint, trigger_s=TRIGGER_S, state_partitions=PARTITIONS
    )
    wait_for(runtime.query, WARM_UP)
    runtime.close()
    stop_cleanly(spark, runtime.query, timeout_s=120)


def run(
    spark: SparkSession, checkpoint: Path, *, steered: bool, hog_count: int, hogged: int, wait_s: float
) -> dict[str, Any]:
    """One life of the query; what came of it."""
    runtime = launch(
        spark, hashing(), checkpoint=checkpoint, trigger_s=TRIGGER_S, state_partitions=PARTITIONS
    )
    query, seen = runtime.query, Notes()
    policy = PolicyRun(policy=Interference(), options=InterferenceOptions())
    pilot = Pilot(runtime, [policy], settings=Settings(interval_s=INTERVAL_S), subscribers=[seen])
    wait_for(query, 0)
    executors = {e.id for e in Executors(runtime.spark).list()}
    runtime.moves.move(even_moves(runtime.moves.places(), executors)).wait(120)
    StatePartitions(spark, query).wait_for_places(wait_s)  # moves have set another
    if steered:
        pilot.start()
    wait_for(query, QUIET)
    before = places(runtime)
    first = int(query.lastProgress["batchId"]) + 2  # the one under way is quiet and hogged
    with hogs(hog_count, sorted(os.sched_getaffinity(0))[-1]):
        wait_for(query, first + hogged - 1)
        after = places(runtime)
    if steered:
        pilot.stop()
        print(pilot.report(), file=sys.stderr)
    else:
        runtime.close()
    stop_cleanly(spark, query, timeout_s=120)
    progress = query.recentProgress
    took = {p["batchId"]: p["durationMs"]["triggerExecution"] / 1e3 for p in progress}
    return {
        "quiet_s": float(np.median([took[b] for b in range(first - 1 - JUDGED, first - 1)])),
        "hogged_s": float(np.median([took[b] for b in range(first + hogged - JUDGED, first + hogged)])),
        "batches_s": [round(took[b], 3) for b in sorted(took)],
        "placed_before": before,
        "placed_after": after,
        "moves": seen.moves,
        "hosts": seen.hosts,
        "loop_cpu_share": seen.share if len(seen.notes) > 3 else None,
        "exact": is_exact(spark, sum(p["numInputRows"] for p in progress)),
    }


def places(runtime: SparkRuntime) -> dict[str, int]:
    """State partitions on each host."""
    hosts = {e.id: e.host for e in Executors(runtime.spark).list()}
    return dict(Counter(hosts[e] for e in runtime.moves.places().values() if e in hosts))


def is_exact(spark: Any, read: int) -> bool:
    """Whether every record was counted once, whatever moved."""
    query = "select key, max(count) as count, max(total) as total from hashing group by key"
    found = {r["key"]: (r["count"], r["total"]) for r in spark.sql(query).collect()}
    expected = {k: (len(range(k, read, KEYS)), sum(range(k, read, KEYS))) for k in range(min(KEYS, read))}
    return found == expected


def main() -> int:
    """Run it, print the table and the goals."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hogs", type=int, default=HOGS, help=f"processes that count (default {HOGS})")
    parser.add_argument("--batches", type=int, default=HOGGED, help=f"hogged batches (default {HOGGED})")
    parser.add_argument(
        "--wait", type=float, default=WAIT_S, help=f"spark.locality.wait in both runs, s (default {WAIT_S:g})"
    )
    parser.add_argument("--only-steered", action="store_true", help="leave out the run without Penstock")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs: dict[str, dict[str, Any]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        LoopbackCluster(workers=WORKERS, cores=1, memory="1g", pin=True) as cluster,
    ):
        spark = session(cluster, folder)
        warm_up(spark, Path(folder) / "warm-up")
        for name in ("steered",) if options.only_steered else ("alone", "steered"):
            print(f"{name}: {QUIET} quiet batches, then {options.batches} hogged ones", file=sys.stderr)
            runs[name] = run(
                spark,
                Path(folder) / name,
                steered=name == "steered",
                hog_count=options.hogs,
                hogged=options.batches,
                wait_s=options.wait,
            )
        spark.stop()
    goals: list[tuple[str, float, float, bool]] = []
    if "alone" in runs:
        lost_s, still_s = (runs[r]["hogged_s"] - runs[r]["quiet_s"] for r in ("alone", "steered"))
        back = 1.0 - still_s / lost_s
        goals.append(("lost batch time that came back", back, ASKED, back >= ASKED))
    exact = all(r["exact"] for r in runs.values())
    goals.append(("results exact", float(exact), 1.0, exact))
    if options.json:
        rows = [{"goal": g, "figure": f, "asked": a, "holds": h} for g, f, a, h in goals]
        print_json({**runs, "goals": rows})
    else:
        print_table(
            f"Seconds a batch: hashing on {WORKERS} executors, {options.hogs} hogs on the CPU of the second",
            ["run", "quiet", "hogged", "moves", "partitions at the end"],
            [
                (
                    name,
                    f"{r['quiet_s']:.1f}",
                    f"{r['hogged_s']:.1f}",
                    sum(status == "applied" for _, _, status in r["moves"]),
                    ", ".join(f"{host}: {n}" for host, n in sorted(r["placed_after"].items())),
                )
                for name, r in runs.items()
            ],
        )
        print(f"The loop's thread: {runs['steered']['loop_cpu_share']:.2%} of a core")
        print_table("\nGoals", ["goal", "figure", "asked", "holds"], goals)
    return 0 if all(holds for *_, holds in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
