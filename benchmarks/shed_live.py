"""Three plain queries at twice the capacity: alone, and with `penstock.shed` under `penstock.attach`.

    python benchmarks/shed_live.py [--rounds 3] [--executors] [--keep DIR] [--save FILE] [--json]

Real Kafka, a loopback cluster of three workers with a core each. Every query scores its records with a function that
computes. The first run of a round measures the capacity: the same three queries, plain, catch up with full topics. The
load is half of that, then twice, then half again; `batch` has half of the records, `reports` three tenths, `alerts` two
tenths, with the priorities 1, 2, 3 and the minima 0.2, 0.5, 0.8. What is read and what is kept is counted by Spark's
`observe` in every batch, before and after the shed, for both ways alike. Lag is the age of the oldest record that was
due and not read.

Exit 1, for the runs with Penstock: lag does not settle under 3 s in the last third of the overload; a 30 s window with
less than a minimum; `alerts` loses something while another has more than 0.05 above its minimum; not all kept within
three intervals after the fall; sums estimated from what was kept in the overload are off by 1 % or more.

With `--executors` the workers have two fifths of a core each (a CPU quota: this needs cgroups and root), and the
queries begin on one of them, of which the capacity is measured. One way has shedding only, the other may have all
three. Exit 1: with executors shedding begins later than two intervals after the rise, or ends later than three after
the last one worked, or more than a tenth of what shedding alone loses is lost.

`--keep` has a folder for each run, with its journal, Spark's event log and what every batch told.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from _alternated import rounds
from penstock import staircase
from penstock.cli.output import complaints, print_json, print_table

QUERIES = {"batch": (1, 0.2, 0.5), "reports": (2, 0.5, 0.3), "alerts": (3, 0.8, 0.2)}
"""Priority, minimum, and share of the load."""
STEPS_S = {"alone": (20.0, 70.0, 30.0), "penstock": (20.0, 70.0, 30.0)}
STEPS_S |= {"shedding": (20.0, 180.0, 20.0), "executors": (20.0, 180.0, 20.0)}
FACTORS = (0.5, 2.0, 0.5)
INTERVAL_S, WINDOW_S, SETTLED_S = 5.0, 30.0, 3.0
WORKERS, ROUNDS, QUOTA = 3, 400, 0.4
LATENCY_MS = 3000.0
CATCH_UP = 40_000
"""Records a second that fill the topics with which the capacity is measured, for two seconds."""


def load_of(way: str, capacity_rps: float, share: float) -> Any:
    return staircase([(s, f * capacity_rps * share) for s, f in zip(STEPS_S[way], FACTORS, strict=True)])


def session(cluster: Any, keep: Path) -> Any:
    from pyspark.sql import SparkSession

    from penstock.spark.cluster.jars import kafka_connector_conf

    builder = SparkSession.builder.master(cluster.master_url).config("spark.executor.memory", "512m")
    builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "2000")
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", keep.as_uri())
    for name, value in kafka_connector_conf().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def started(
    spark: Any, name: str, brokers: str, topic: str, folder: Path, *, sheds: bool, limit: int | None = None
) -> Any:
    """A plain query; with `sheds`, two lines more."""
    import hashlib

    from pyspark.sql import functions as F  # noqa: N812  # Spark's own habit
    from pyspark.sql.pandas.functions import pandas_udf

    import penstock

    def score(number: pd.Series) -> pd.Series:
        def worked_out(value: int) -> int:
            digest = str(value).encode()
            for _ in range(ROUNDS):
                digest = hashlib.sha256(digest).digest()
            return digest[0]

        return number.map(worked_out)

    reader = spark.readStream.format("kafka")
    reader = reader if limit is None else reader.option("maxOffsetsPerTrigger", limit)
    orders = (
        reader.option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.get_json_object(F.col("value").cast("string"), "$.number").cast("long").alias("number"))
        .withColumn("amount", 1 + F.col("number") % 7)
        .observe("read", F.count("*").alias("count"), F.sum("amount").alias("sum"))
    )
    weight = F.lit(1.0)
    if sheds:
        orders = penstock.shed(orders, keep_by="number", name=name)
        weight = F.coalesce(F.col("_penstock_weight"), F.lit(1.0))
    scored = orders.withColumn("score", pandas_udf(score, "long")("number"))
    counted = scored.observe(
        "kept", F.count("*").alias("count"), F.sum(weight * F.col("amount")).alias("sum")
    )
    writer = counted.writeStream.queryName(name).format("noop")
    return writer.option("checkpointLocation", str(folder / f"{topic}-checkpoint")).start()


def run_way(way: str, capacity_rps: float | None, keep: Path) -> dict[str, Any]:
    """One run, in this process; the figures."""
    import penstock
    from penstock.spark.cluster.loopback import LoopbackCluster
    from penstock_papers.common.kafka_broker import KafkaBroker, feeding

    folder, one = Path(tempfile.mkdtemp(prefix="shed-live-")), way in ("shedding", "executors")
    keep.mkdir(parents=True, exist_ok=True)
    with (
        KafkaBroker(folder) as broker,
        LoopbackCluster(workers=WORKERS, cores=1, memory="1g", cpus=QUOTA if one else None) as cluster,
    ):
        spark = session(cluster, keep)
        if one:
            leave_one(spark)
        capacity_rps = capacity_rps or calibrated(
            spark, broker, folder, limit=3000 if one else 8000, seconds=12 if one else 6
        )
        complaints.print(f"capacity: {capacity_rps:.0f} records a second")
        topics = {name: broker.create_topic(name) for name in QUERIES}
        queries = {
            name: started(spark, name, broker.bootstrap, topic, folder, sheds=way != "alone")
            for name, topic in topics.items()
        }
        goals = {
            name: penstock.Goals(priority=p, min_accuracy=m, latency_ms=LATENCY_MS if one else None)
            for name, (p, m, _) in QUERIES.items()
        }
        most = {"shedding": 1, "executors": WORKERS}.get(way)
        journal = keep / "journal.sqlite"
        pilot = (
            penstock.attach(spark, goals=goals, interval_s=INTERVAL_S, journal=journal, max_executors=most)
            if way != "alone"
            else None
        )
        warmed(queries, broker.bootstrap, topics)
        loads = {name: load_of(way, capacity_rps, share) for name, (_, _, share) in QUERIES.items()}
        with feeding(broker.bootstrap, {topics[name]: load for name, load in loads.items()}) as began_s:
            there = executors_until(spark, began_s, began_s + sum(STEPS_S[way]))
        report = pilot.report() if pilot is not None else ""
        batches = {name: [told(p, began_s) for p in q.recentProgress] for name, q in queries.items()}
        batches = {name: [b for b in rows if b["began_s"] >= 0] for name, rows in batches.items()}
        if pilot is not None:
            pilot.stop()
        for query in queries.values():
            query.stop()
        spark.stop()
    (keep / "batches.json").write_text(json.dumps(batches))
    (keep / "report.txt").write_text(report)
    found = {**figures(way, batches, loads), "capacity_rps": capacity_rps, "executors": there}
    return {**found, "shed_s": shed_times(way, batches)}


def warmed(queries: dict[str, Any], servers: str, topics: dict[str, str]) -> None:
    """Workers have started and code is compiled: each query has ended batches with records, and none waits."""
    from penstock_papers.common.kafka_broker import feeding

    def warm() -> bool:
        return all(sum(p.numInputRows > 0 for p in q.recentProgress) >= 3 for q in queries.values())

    with feeding(servers, {topic: staircase([(300.0, 20.0)]) for topic in topics.values()}):
        wait_until(warm, seconds=180)
    for query in queries.values():
        query.processAllAvailable()


def leave_one(spark: Any) -> None:
    """All executors but one go."""
    from penstock.spark.internals.executors import Executors

    executors = Executors(spark)
    wait_until(lambda: len(executors.list()) == WORKERS)
    executors.request_total(1)
    executors.kill([e.id for e in executors.list()][1:])
    wait_until(lambda: len(executors.list()) == 1)


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline_s = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"it did not come within {seconds:g} s")
        time.sleep(0.2)


def executors_until(spark: Any, began_s: float, end_s: float) -> list[tuple[float, int]]:
    """How many executors there were, each time that the number changed."""
    seen: list[tuple[float, int]] = []
    while (now_s := time.time()) < end_s:
        count = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        if not seen or seen[-1][1] != count:
            seen.append((round(now_s - began_s, 1), count))
        time.sleep(0.5)
    return seen


def calibrated(spark: Any, broker: Any, folder: Path, *, limit: int, seconds: float) -> float:
    """Records per second that the three queries, plain, score when there is always more.

    Topics are full at the beginning; the first batches, in which workers start, are left out.
    """
    from penstock_papers.common.kafka_broker import feeding

    topics = {name: broker.create_topic(f"{name}-full") for name in QUERIES}
    loads = {
        topics[name]: staircase([(2.0, CATCH_UP * share), (1.0, 0.0)])
        for name, (*_, share) in QUERIES.items()
    }
    with feeding(broker.bootstrap, loads):
        time.sleep(3)
    queries = {
        name: started(
            spark,
            name,
            broker.bootstrap,
            topic,
            folder,
            sheds=False,
            limit=int(limit * QUERIES[name][2]),
        )
        for name, topic in topics.items()
    }
    wait_until(lambda: all(len(q.recentProgress) >= 2 for q in queries.values()), seconds=180)
    time.sleep(seconds)
    batches = [[told(p, 0.0) for p in q.recentProgress][1:] for q in queries.values()]
    for query in queries.values():
        query.stop()
    assert all(rows and rows[-1]["read"] for rows in batches), "there was not always more"
    return sum(sum(b["read"] for b in rows) / (rows[-1]["ended_s"] - rows[0]["began_s"]) for rows in batches)


def told(progress: Any, began_s: float) -> dict[str, float]:
    """What a progress document says of its batch."""
    progress = json.loads(progress.json)
    at_s = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp() - began_s
    read, kept = (progress["observedMetrics"].get(k, {"count": 0, "sum": 0}) for k in ("read", "kept"))
    return {
        "began_s": at_s,
        "ended_s": at_s + progress["durationMs"]["triggerExecution"] / 1e3,
        "read": float(read["count"] or 0),
        "read_sum": float(read["sum"] or 0),
        "kept": float(kept["count"] or 0),
        "kept_sum": float(kept["sum"] or 0),
    }


def shed_times(way: str, batches: dict[str, list[dict[str, float]]]) -> dict[str, float | None]:
    """Seconds after the rise at which the first and the last batch of the overload dropped something."""
    rise_s, fall_s = STEPS_S[way][0], sum(STEPS_S[way][:2])
    ended = [b["ended_s"] for rows in batches.values() for b in rows if b["kept"] < b["read"]]
    inside = [t - rise_s for t in ended if rise_s <= t <= fall_s]
    return {"first": min(inside, default=None), "last": max(inside, default=None)}


def figures(way: str, batches: dict[str, list[dict[str, float]]], loads: dict[str, Any]) -> dict[str, Any]:
    """The least accuracy in a window, the lag, when all was kept again, and the error of the sums, by query."""
    steps = STEPS_S[way]
    peak_s, fall_s, end_s = steps[0], sum(steps[:2]), sum(steps)
    found: dict[str, Any] = {}
    shares: dict[str, list[float]] = {}
    for name, rows in batches.items():
        table = {key: np.array([row[key] for row in rows if row["read"]]) for key in rows[0]}
        ended, read, kept = table["ended_s"], table["read"], table["kept"]
        windows = np.arange(WINDOW_S, end_s + 0.1, INTERVAL_S)
        inside = [(ended > t - WINDOW_S) & (ended <= t) & (read > 0) for t in windows]
        shares[name] = [float(kept[i].sum() / read[i].sum()) if i.any() else 1.0 for i in inside]
        times = np.linspace(0.0, end_s, 20_000)
        due = np.array([loads[name].records_until(t) for t in times])
        looks = np.arange(fall_s - (fall_s - peak_s) / 3, fall_s, 1.0)
        lag_s = [t - float(np.interp(read[ended <= t].sum(), due, times)) for t in looks]
        all_s = [
            t - float(np.interp(read[ended <= t].sum(), due, times)) for t in np.arange(peak_s, end_s, 0.5)
        ]
        peak = (ended > peak_s) & (ended <= fall_s)
        less = ended[(kept < read) & (ended > fall_s)]
        found[name] = {
            "least_accuracy": min(shares[name]),
            "settled_lag_s": max(lag_s),
            "highest_lag_s": max(all_s),
            "kept_again_s": float(less.max() - fall_s) if len(less) else 0.0,
            "sum_error": float(abs(table["kept_sum"][peak].sum() / table["read_sum"][peak].sum() - 1)),
            "lost": float((read - kept).sum()),
            "read": float(read.sum()),
        }
    gives = [
        max(shares["batch"][i] - 0.25, shares["reports"][i] - 0.55) for i in range(len(shares["alerts"]))
    ]
    out_of_turn = sum(1 for i, gave in enumerate(gives) if shares["alerts"][i] < 0.999 and gave > 0)
    return {"queries": found, "out_of_turn": out_of_turn}


def complaint_of_executors(alone: dict[str, Any], result: dict[str, Any]) -> list[str]:
    """What a run with executors did not hold, beside one of the same round that only sheds."""
    wrong, shed_s = [], result["shed_s"]
    rise_s = STEPS_S["executors"][0]
    worked_s = max((t for t, n in result["executors"] if n > 1), default=float("inf")) - rise_s
    if shed_s["first"] is None or shed_s["first"] > 2 * INTERVAL_S:
        wrong.append(f"shedding began {shed_s['first']} s after the rise")
    if shed_s["last"] is not None and shed_s["last"] > worked_s + 3 * INTERVAL_S:
        wrong.append(
            f"shedding ended {shed_s['last']:.0f} s after the rise, the last executor came after {worked_s:.0f} s"
        )
    lost = [sum(q["lost"] for q in r["queries"].values()) for r in (alone, result)]
    if lost[1] > 0.1 * lost[0]:
        wrong.append(f"{lost[1]:.0f} records lost, shedding alone {lost[0]:.0f}")
    return wrong


def complaint(result: dict[str, Any]) -> list[str]:
    """What a run with Penstock did not hold."""
    wrong = (
        [f"alerts lost something out of turn in {result['out_of_turn']} windows"]
        if result["out_of_turn"]
        else []
    )
    for name, (_, minimum, _) in QUERIES.items():
        f = result["queries"][name]
        if f["settled_lag_s"] >= SETTLED_S:
            wrong.append(f"{name}: lag of {f['settled_lag_s']:.1f} s")
        if f["least_accuracy"] < minimum:
            wrong.append(f"{name}: {f['least_accuracy']:.3f} in a window, minimum {minimum}")
        if f["kept_again_s"] > 3 * INTERVAL_S:
            wrong.append(f"{name}: all kept only {f['kept_again_s']:.0f} s after the fall")
        if f["sum_error"] >= 0.01:
            wrong.append(f"{name}: sum off by {100 * f['sum_error']:.2f} %")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--executors", action="store_true", help="begin with one executor, of three")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path(".penstock/shed_live"))
    parser.add_argument("--save", type=Path, default=Path(".penstock/shed_live.jsonl"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--capacity", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if args.way:
        print(json.dumps(run_way(args.way, args.capacity, args.keep.resolve())))
        return
    capacity: dict[int, float] = {}

    def run(way: str, seed: int) -> dict[str, Any]:
        command = [sys.executable, __file__, "--way", way, "--keep", str(args.keep / f"{way}-{seed}")]
        command += ["--capacity", str(capacity[seed])] if seed in capacity else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=1200)
        if done.returncode:
            raise SystemExit(f"{way} failed")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        capacity[seed] = result["capacity_rps"]
        return result

    ways = ["shedding", "executors"] if args.executors else ["alone", "penstock"]
    found = rounds(ways, run, count=args.rounds, seed=args.seed, save=args.save, tell=complaints.print)
    if args.executors:
        beside = {r["round"]: r for r in found if r["way"] == "shedding"}
        wrong = {
            r["round"]: complaint_of_executors(beside[r["round"]], r)
            for r in found
            if r["way"] == "executors"
        }
    else:
        wrong = {r["round"]: complaint(r) for r in found if r["way"] == "penstock"}
    if args.json:
        print_json({"wrong": wrong, "runs": found})
    else:
        columns = [
            "least_accuracy",
            "settled_lag_s",
            "highest_lag_s",
            "kept_again_s",
            "sum_error",
            "lost",
            "read",
        ]
        rows = [
            [r["round"], r["way"], name, *(r["queries"][name][c] for c in columns)]
            for r in found
            for name in QUERIES
        ]
        print_table("", ["round", "way", "query", *columns], rows)
        for r in found:
            print(
                f"round {r['round']}, {r['way']}: capacity {r['capacity_rps']:.0f}/s, executors {r['executors']}, "
                f"shed {r['shed_s']}"
            )
        for number, texts in wrong.items():
            for text in texts:
                print(f"round {number}: {text}")
    sys.exit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main()
