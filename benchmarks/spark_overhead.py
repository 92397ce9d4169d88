"""What hosts and measuring cost: the same pipeline in plain PySpark and compiled, side by side.

    python benchmarks/spark_overhead.py [--rounds 20] [--rows 1000000] [--json]

Both read the same source, run the same two Arrow functions in Python and discard the result. Both queries live in one
session and take turns: in a round each runs one micro-batch, in changing order, while the other waits at its
gate. The figure is the ratio of the median throughputs; its spread comes from a bootstrap over rounds. Beside it, the
same ratio in CPU seconds of the JVM, its Python workers and the driver, which other load on the machine hardly
moves. Exit 1: the compiled one reached less than 97 % in throughput.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow import flow
from penstock.dataflow.connectors import dataframe, foreach_batch
from penstock.spark.query.compile import compile_dataflow
from penstock.spark.session import create_session

GOAL = 0.97
WARM_UP_ROUNDS = 4
COLUMNS = "value long, source_time timestamp, score double"


def scaled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("score", pc.multiply(pc.cast(batch.column("value"), pa.float64()), 0.25))


def selected(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.not_equal(pc.bit_wise_and(batch.column("value"), 7), 0))


def both(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield selected(scaled(batch))


class Gate:
    """Holds a query before each micro-batch until it is let through, and times the batch."""

    def __init__(self) -> None:
        self._arrived, self._open = threading.Semaphore(0), threading.Semaphore(0)
        self.closed = False
        self.seconds = 0.0

    def __call__(self, frame: DataFrame, batch_id: int) -> None:  # noqa: D102  # see the class
        if not self.closed:
            self._arrived.release()
            self._open.acquire()
        if self.closed:
            return
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        self.seconds = time.perf_counter() - began

    def wait(self) -> None:
        """Return when the query stands at the gate."""
        if not self._arrived.acquire(timeout=300):
            raise TimeoutError("the query did not come to its gate")

    def one_batch(self) -> float:
        """How long one micro-batch takes; afterwards the query stands at the gate again."""
        self._open.release()
        self.wait()
        return self.seconds

    def close(self) -> None:
        """Let the query go."""
        self.closed = True
        self._open.release()


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    """Exactly `rows` rows in each micro-batch."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    frame = reader.option("numPartitions", spark.sparkContext.defaultParallelism).load()
    return frame.selectExpr("value", "timestamp as source_time")


def start_plain(spark: SparkSession, rows: int, checkpoint: Path, gate: Gate) -> StreamingQuery:
    frame = numbers(spark, rows).mapInArrow(both, COLUMNS)
    return frame.writeStream.foreachBatch(gate).option("checkpointLocation", str(checkpoint)).start()


def start_compiled(spark: SparkSession, rows: int, checkpoint: Path, gate: Gate) -> StreamingQuery:
    builder = flow("overhead")
    source = builder.source("numbers", dataframe(numbers(spark, rows)))
    source.map("scaled", scaled, schema=COLUMNS).map("selected", selected).sink("out", foreach_batch(gate))
    return compile_dataflow(spark, builder.build(), checkpoint=checkpoint).start()


def cpu_seconds() -> float:
    """CPU time of this process and all below it, so far."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def measure(
    spark: SparkSession, rows: int, rounds: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Seconds and CPU seconds per micro-batch of `rows` rows, per round and way."""
    ways = {"plain": start_plain, "compiled": start_compiled}
    gates = {name: Gate() for name in ways}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        queries = [ways[name](spark, rows, Path(folder) / name, gates[name]) for name in ways]
        try:
            for gate in gates.values():
                gate.wait()
            for number in range(WARM_UP_ROUNDS + rounds):
                for name in sorted(ways, reverse=number % 2 == 0):
                    before = cpu_seconds()
                    taken = gates[name].one_batch()
                    if number >= WARM_UP_ROUNDS:
                        seconds[name].append(taken)
                        cpu[name].append(cpu_seconds() - before)
        finally:
            for gate in gates.values():
                gate.close()
            for query in queries:
                query.stop()
    arrays = [{name: np.array(values) for name, values in each.items()} for each in (seconds, cpu)]
    return arrays[0], arrays[1]


def ratio_of(values: dict[str, np.ndarray]) -> tuple[float, float, float]:
    """Median of plain over median of compiled, with its 95 % interval over resampled rounds."""
    plain, compiled = values["plain"], values["compiled"]
    drawn = np.random.default_rng(0).integers(0, len(plain), (10_000, len(plain)))
    ratios = np.median(plain[drawn], axis=1) / np.median(compiled[drawn], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(np.median(plain) / np.median(compiled)), float(low), float(high)


def compared(seconds: dict[str, np.ndarray], cpu: dict[str, np.ndarray], rows: int) -> dict[str, Any]:
    """Both ratios, and each way's own figures."""
    ratio, *interval = ratio_of(seconds)
    cpu_ratio, *cpu_interval = ratio_of(cpu)
    return {
        "rows_per_batch": rows,
        "rounds": len(seconds["plain"]),
        "ratio": ratio,
        "ratio_interval": interval,
        "cpu_ratio": cpu_ratio,
        "cpu_ratio_interval": cpu_interval,
        "goal": GOAL,
        "reached": ratio >= GOAL,
        "ways": {
            name: {
                "rows_per_s": float(rows / np.median(values)),
                "seconds_median": float(np.median(values)),
                "seconds_quartiles": [float(q) for q in np.quantile(values, [0.25, 0.75])],
                "cpu_seconds_median": float(np.median(cpu[name])),
            }
            for name, values in seconds.items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    spark = create_session("local[2]", "overhead", extra_conf={"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        result = compared(*measure(spark, given.rows, given.rounds), given.rows)
    finally:
        spark.stop()
    if given.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{'way':10} {'rows/s':>12} {'median s':>10}  {'quartiles':16} {'CPU s':>8}")
        for name, way in result["ways"].items():
            low, high = way["seconds_quartiles"]
            spread = f"{low:.3f} .. {high:.3f}"
            print(
                f"{name:10} {way['rows_per_s']:12,.0f} {way['seconds_median']:10.3f}  {spread:16} "
                f"{way['cpu_seconds_median']:8.3f}"
            )
        for what, key in (("throughput", "ratio"), ("rows per CPU second", "cpu_ratio")):
            low, high = result[f"{key}_interval"]
            print(f"{what}: compiled reaches {result[key]:.3f} of plain ({low:.3f} .. {high:.3f})")
    return 0 if result["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
