"""A stranger's query on a stock cluster: alone on three executors, and under `penstock.attach` with the same three.

    python benchmarks/attached.py [--rounds 3] [--bound 8] [--peak 300] [--last 75] [--partitions N] [--cpus 0.6]

`examples/orders.py`, unchanged, counts orders from a real Kafka on a loopback cluster of three workers with a core
each; the session sets the master, memory and the Kafka connector, nothing else, and with `--partitions` the number of
state partitions (Spark has 200, whose commits to a local checkpoint alone may take longer than the bound). With
`--cpus` each worker is a machine of so many CPUs, so that a peak needs more of them, not more of this one. The load
goes 100, `--peak`, 100 a second, the last for `--last` seconds. Latency is the same for both ways: from when a record
was due to the end of its batch, from the offsets in Spark's progress. Held is the share of 5 s intervals after the
first minute in which the mean of the last 10 s was within the bound; an interval without a finished batch counts what
waits as late as it is old. Counts at the end must be exact. With `--keep`, each run leaves its journal and Spark's
event log in DIR/attached-WAY-SEED. `--saved` adds up the rounds in the file, which may have been run one by one. Exit
1: held in less than 95 %, less often than alone by more than 2 points, not with fewer executor-seconds, or a wrong
count.
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

import numpy as np

from _alternated import compared, rounds
from penstock import staircase
from penstock.cli.output import complaints, print_json, print_table

FIRST_S, PEAK_S, LAST_S = 75.0, 120.0, 75.0
LOW_RPS = 100.0
WARM_UP_S = 60.0
INTERVAL_S, WINDOW_S = 5.0, 10.0
WORKERS = 3
PROGRAM = Path(__file__).resolve().parents[1] / "examples" / "orders.py"


def load_of(peak_rps: float, last_s: float) -> Any:
    return staircase([(FIRST_S, LOW_RPS), (PEAK_S, peak_rps), (last_s, LOW_RPS)])


def run_way(
    way: str,
    bound_s: float,
    peak_rps: float,
    last_s: float,
    partitions: int | None,
    cpus: float | None,
    keep: Path | None,
) -> dict[str, Any]:
    """One run, in this process; the figures."""
    import threading

    from pyspark.sql import SparkSession

    import penstock
    from penstock.spark.cluster.jars import kafka_connector_conf
    from penstock.spark.cluster.loopback import LoopbackCluster
    from penstock_papers.common.kafka_broker import KafkaBroker, feeding

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need what this environment has
    load, lasts_s = load_of(peak_rps, last_s), FIRST_S + PEAK_S + last_s
    folder = Path(tempfile.mkdtemp(prefix="attached-"))
    workers = LoopbackCluster(workers=WORKERS, cores=1, memory="1g", cpus=cpus)
    with KafkaBroker(folder) as broker, workers as cluster:
        topic, out = broker.create_topic("orders"), broker.create_topic("counts", partitions=1)
        builder = SparkSession.builder.master(cluster.master_url).config("spark.executor.memory", "512m")
        for name, value in kafka_connector_conf().items():
            builder = builder.config(name, value)
        if partitions is not None:
            builder = builder.config("spark.sql.shuffle.partitions", partitions)
        if keep is not None:
            for name, value in _event_log(keep).items():
                builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        sys.argv = [str(PROGRAM), broker.bootstrap, topic, out, str(folder / "checkpoint")]
        namespace: dict[str, Any] = {"__name__": "orders"}
        exec(compile(PROGRAM.read_text(), str(PROGRAM), "exec"), namespace)
        threading.Thread(target=lambda: namespace["main"](*sys.argv[1:]), daemon=True).start()
        while not spark.streams.active:
            time.sleep(0.1)
        (query,) = spark.streams.active
        pilot = (
            penstock.attach(
                spark,
                latency_ms=1e3 * bound_s,
                max_executors=WORKERS,
                journal=keep / "journal.db" if keep is not None else None,
            )
            if way == "penstock"
            else None
        )
        batches: dict[int, tuple[int, float]] = {}
        executor_s, seen = 0.0, []
        with feeding(broker.bootstrap, {topic: load}) as began_s:
            last_s = time.time()
            while (now_s := time.time()) < began_s + lasts_s:
                time.sleep(0.5)
                if not query.isActive:
                    raise SystemExit(f"the query ended: {query.exception()}")
                count = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
                executor_s += count * (time.time() - last_s)
                last_s = time.time()
                seen.append((now_s - began_s, count))
                _note(query, batches)
        deadline_s = time.time() + 120
        sent = int(load.records_until(lasts_s))
        while time.time() < deadline_s and max((n for n, _ in batches.values()), default=0) < sent - 400:
            time.sleep(0.5)
            _note(query, batches)
        time.sleep(5)
        report = pilot.report() if pilot is not None else ""
        if pilot is not None:
            pilot.stop()
        query.processAllAvailable()
        counted = _counted(spark, broker.bootstrap, out)
        produced = _produced(spark, broker.bootstrap, topic)
        query.stop()
        spark.stop()
    held, late, ended = _held(batches, load, lasts_s, began_s, bound_s)
    return {
        "held": held,
        "ended": ended,
        "latency_mean_s": late,
        "executor_seconds": executor_s,
        "executors": [n for _, n in seen[:: max(1, len(seen) // 60)]],
        "batches": len(batches),
        "records": produced,
        "exact": counted == produced,
        "counted": counted,
        "report": report,
    }


def _event_log(folder: Path) -> dict[str, str]:
    """Spark's own log of the run, as plain text."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": folder.resolve().as_uri(),
    }


def _note(query: Any, batches: dict[int, tuple[int, float]]) -> None:
    """Records read so far and the end of each batch that Spark remembers."""
    from datetime import datetime

    for progress in query.recentProgress:
        if not progress["numInputRows"]:
            continue
        end = progress["sources"][0]["endOffset"]
        offsets = json.loads(end) if isinstance(end, str) else end
        read = sum(n for topic in offsets.values() for n in topic.values())
        began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        batches[progress["batchId"]] = (read, began + progress["durationMs"]["triggerExecution"] / 1e3)


def _counted(spark: Any, brokers: str, topic: str) -> int:
    """Orders that the newest count of every region adds up to."""
    rows = _all(spark, brokers, topic)
    newest: dict[str, tuple[int, int]] = {}
    for row in rows:
        key = row["key"].decode()
        if key not in newest or row["offset"] > newest[key][0]:
            newest[key] = (row["offset"], json.loads(row["value"])["orders"])
    return sum(orders for _, orders in newest.values())


def _produced(spark: Any, brokers: str, topic: str) -> int:
    return len(_all(spark, brokers, topic))


def _all(spark: Any, brokers: str, topic: str) -> list[Any]:
    read = spark.read.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
    return read.load().select("key", "value", "offset").collect()


def _held(
    batches: dict[int, tuple[int, float]], load: Any, lasts_s: float, began_s: float, bound_s: float
) -> tuple[float, float, list[tuple[float, float]]]:
    """(share of intervals in which the bound was held, mean latency over the run, each batch's end and latency)."""
    times = np.linspace(0.0, lasts_s, 20_000)
    due = np.array([load.records_until(t) for t in times])
    ends, firsts, lasts = [], [], []
    before = 0
    for _, (read, ended_s) in sorted(batches.items()):
        ends.append(ended_s - began_s)
        firsts.append(float(np.interp(before, due, times)))
        lasts.append(float(np.interp(read, due, times)))
        before = read
    end, first, last = np.array(ends), np.array(firsts), np.array(lasts)
    mean = end - (first + last) / 2
    held = []
    for now_s in np.arange(WARM_UP_S, lasts_s + 0.1, INTERVAL_S):
        recent = (end > now_s - WINDOW_S) & (end <= now_s)
        waiting = first[end > now_s]
        oldest_s = now_s - waiting[0] if len(waiting) else 0.0
        figure = max(float(mean[recent].mean()) if recent.any() else 0.0, oldest_s / 2)
        held.append(figure <= bound_s)
    ended = [(round(float(e), 2), round(float(m), 2)) for e, m in zip(end, mean, strict=True)]
    return float(np.mean(held)), float(mean.mean()), ended


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bound", type=float, default=8.0, help="seconds")
    parser.add_argument("--peak", type=float, default=300.0, help="records a second")
    parser.add_argument("--last", type=float, default=LAST_S, help="seconds of the low load after the peak")
    parser.add_argument("--partitions", type=int, help="state partitions; default: as Spark has it")
    parser.add_argument("--cpus", type=float, help="CPUs of each worker; default: no limit")
    parser.add_argument("--keep", type=Path, help="folder for journals and event logs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path(".penstock/attached.jsonl"))
    parser.add_argument("--saved", action="store_true", help="run nothing, tell what was saved")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        given = (args.bound, args.peak, args.last, args.partitions, args.cpus, args.keep)
        print(json.dumps(run_way(args.way, *given)))
        return

    def run(way: str, seed: int) -> dict[str, Any]:
        command = [
            sys.executable,
            __file__,
            "--way",
            way,
            "--bound",
            str(args.bound),
            "--peak",
            str(args.peak),
            "--last",
            str(args.last),
            *(["--partitions", str(args.partitions)] if args.partitions else []),
            *(["--cpus", str(args.cpus)] if args.cpus else []),
            *(["--keep", str(args.keep / f"attached-{way}-{seed}")] if args.keep else []),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
        if done.returncode:
            raise SystemExit(f"{way} failed:\n{done.stderr[-3000:]}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    if args.saved:
        found = [json.loads(line) for line in args.save.read_text().splitlines()]
        found = [{**r, "round": r["seed"]} for r in found]
    else:
        found = rounds(
            ["alone", "penstock"],
            run,
            count=args.rounds,
            seed=args.seed,
            save=args.save,
            tell=complaints.print,
        )
    ratio = compared(found, "executor_seconds", "penstock", "alone")
    ours = [r for r in found if r["way"] == "penstock"]
    alone = [r for r in found if r["way"] == "alone"]
    document = {
        "held": float(np.mean([r["held"] for r in ours])),
        "held_alone": float(np.mean([r["held"] for r in alone])),
        "executor_seconds": ratio,
        "exact": all(r["exact"] for r in found),
        "runs": [{k: v for k, v in r.items() if k not in ("report", "ended")} for r in found],
    }
    if args.json:
        print_json(document)
    else:
        rows = [
            [r["round"], r["way"], 100 * r["held"], r["latency_mean_s"], r["executor_seconds"], r["exact"]]
            for r in found
        ]
        print_table("", ["round", "way", "held %", "mean latency s", "executor-seconds", "exact"], rows)
        print(
            f"\nexecutor-seconds, penstock over alone: {ratio['ratio']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
        )
    good = (
        document["exact"]
        and document["held"] >= 0.95
        and document["held"] >= document["held_alone"] - 0.02
        and ratio["ratio"] < 1.0
    )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
