"""Live on Spark: CPU hogs slow one of two executors; batch times before them, with them, and under the policy.

    python benchmarks/interference_live.py [--hogs 4] [--json]

A loopback cluster of two workers with a core each, every worker and its executor on a CPU of its own. A keyed operator
hashes; batches have the same number of records throughout. One run of one query in three phases: quiet; then processes
that do nothing but count start on the CPU of the second worker, without Penstock; then with it. Each phase is judged by
its last batches. If the slowed host keeps a share of 1/s, no placement on two executors gets back more than s/(s+1) of
what was lost: its work has to be done somewhere. Five minutes or so. Exit 1: a goal was missed.
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

from penstock import flow
from penstock.cli.output import print_json, print_table
from penstock.control import Cycle, PolicyRun, Settings
from penstock.dataflow import Dataflow, constant
from penstock.dataflow.connectors import memory, replay
from penstock.policies.interference import Interference, InterferenceOptions
from penstock.policies.interference.demand import node_slowness
from penstock.runtimes.spark.autopilot import Autopilot
from penstock.runtimes.spark.cluster import LoopbackCluster
from penstock.runtimes.spark.internals.executors import Executors
from penstock.runtimes.spark.internals.pacing import stop_cleanly
from penstock.runtimes.spark.launch import have_executors, launch
from penstock.runtimes.spark.runtime import SparkRuntime
from penstock.runtimes.spark.session import create_session
from penstock.runtimes.spark.supervisor import bound_to_parent
from penstock.telemetry import Snapshot

WORKERS, PARTITIONS = 2, 10
ROWS_PER_BATCH, KEYS = 200, 1_000
ROUNDS = 40_000
"""Of hashing for each record: about 12 ms of CPU."""
TRIGGER_S, INTERVAL_S = 2.0, 5.0
WARM_UP, QUIET, ALONE, STEERED, JUDGED = 4, 4, 5, 12, 3
"""Batches: not counted, before the hogs, with them, with them and the policy; and of each the last that are judged."""
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
    running = [subprocess.Popen(command, preexec_fn=bound_to_parent({cpu})) for _ in range(count)]
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


def run(*, hog_count: int, quiet: int, alone: int, steered: int) -> dict[str, Any]:
    """The whole run; what came of it."""
    cpus = sorted(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory() as folder,
        LoopbackCluster(workers=WORKERS, cores=1, memory="1g", pin=True) as cluster,
    ):
        conf = {
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.locality.wait": "3s",  # Spark's own default; longer than a task on a hogged CPU
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
        }
        spark = create_session(cluster.master_url, "hogs", extra_conf=conf)
        spark.sparkContext.setLogLevel("OFF")
        have_executors(spark, WORKERS, given=WORKERS)
        runtime = launch(
            spark,
            hashing(),
            checkpoint=Path(folder) / "checkpoint",
            trigger_s=TRIGGER_S,
            state_partitions=PARTITIONS,
        )
        seen = Notes()
        policy = PolicyRun(policy=Interference(), options=InterferenceOptions())
        pilot = Autopilot(runtime, [policy], settings=Settings(interval_s=INTERVAL_S), subscribers=[seen])
        ends = np.cumsum([WARM_UP, quiet, alone, steered]).tolist()
        wait_for(runtime.query, ends[1])
        before = places(runtime)
        with hogs(hog_count, cpus[1 % len(cpus)]):
            wait_for(runtime.query, ends[2])
            pilot.start()
            wait_for(runtime.query, ends[3])
        after = places(runtime)
        pilot.stop()
        stop_cleanly(spark, runtime.query, timeout_s=120)
        progress = runtime.query.recentProgress
        exact = is_exact(spark, sum(p["numInputRows"] for p in progress))
        spark.stop()
    took = {p["batchId"]: p["durationMs"]["triggerExecution"] / 1e3 for p in progress}
    phases = {
        name: float(np.median([took[b] for b in range(end - min(JUDGED, count) + 1, end + 1)]))
        for name, count, end in zip(
            ("quiet", "alone", "steered"), (quiet, alone, steered), ends[1:], strict=True
        )
        if count
    }
    return {
        "batch_s": phases,
        "batches_s": [round(took[b], 3) for b in sorted(took)],
        "placed_before": before,
        "placed_after": after,
        "moves": seen.moves,
        "hosts": seen.hosts,
        "loop_cpu_share": seen.share if len(seen.notes) > 3 else None,
        "exact": exact,
    }


def places(runtime: SparkRuntime) -> dict[str, int]:
    """State partitions on each host."""
    hosts = {e.id: e.host for e in Executors(runtime.spark).list()}
    return dict(Counter(hosts[e] for e in runtime.steering.places().values() if e in hosts))


def is_exact(spark: Any, read: int) -> bool:
    """Whether every record was counted once, whatever moved."""
    query = "select key, max(count) as count, max(total) as total from hashing group by key"
    found = {r["key"]: (r["count"], r["total"]) for r in spark.sql(query).collect()}
    expected = {k: (len(range(k, read, KEYS)), sum(range(k, read, KEYS))) for k in range(min(KEYS, read))}
    return found == expected


def recovered(batch_s: dict[str, float]) -> float:
    """The share of the batch time lost to the hogs that came back."""
    return (batch_s["alone"] - batch_s["steered"]) / (batch_s["alone"] - batch_s["quiet"])


def main() -> int:
    """Run it, print the table and the goals."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hogs", type=int, default=4, help="processes that count")
    for name, count in (("quiet", QUIET), ("alone", ALONE), ("steered", STEERED)):
        parser.add_argument(f"--{name}", type=int, default=count, help=f"batches of the phase '{name}'")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = run(hog_count=options.hogs, quiet=options.quiet, alone=options.alone, steered=options.steered)
    back = recovered(found["batch_s"]) if options.quiet and options.alone else None
    goals = [
        ("lost batch time that came back", back, ASKED, back is None or back >= ASKED),
        ("results exact", float(found["exact"]), 1.0, found["exact"]),
    ]
    if options.json:
        rows = [{"goal": g, "figure": f, "asked": a, "holds": h} for g, f, a, h in goals]
        print_json({**found, "goals": rows})
    else:
        print_table(
            f"Hashing on {WORKERS} executors, {options.hogs} hogs on the CPU of the second",
            ["phase", "seconds a batch"],
            found["batch_s"].items(),
        )
        moves = sum(status == "applied" for _, _, status in found["moves"])
        placed = ", ".join(f"{host}: {n}" for host, n in sorted(found["placed_after"].items()))
        print(f"{moves} moves; partitions on {placed}; loop: {found['loop_cpu_share']:.2%} of a core")
        print_table("\nGoals", ["goal", "figure", "asked", "holds"], goals)
    return 0 if all(holds for *_, holds in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
