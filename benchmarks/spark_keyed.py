"""What a keyed operator costs: Spark's own per-key Python interfaces and Penstock's buckets, side by side.

    python benchmarks/spark_keyed.py [--rounds 8] [--rows 20000] [--keys 1000] [--json]

Every way counts and sums the same rows per key, emits a row per key and batch, and keeps count and sum as state in
RocksDB with two partitions. All queries live in one session and take turns, as in `spark_overhead.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from penstock.dataflow import flow
from penstock.dataflow.connectors import dataframe, foreach_batch
from penstock.spark.query.compile import compile_dataflow
from penstock.spark.session import create_session
from spark_overhead import Gate

WARM_UP_ROUNDS = 2
OUT, STATE = "key long, count long, total long", "count long, total long"


def numbers(spark: SparkSession, rows: int, keys: int) -> DataFrame:
    reader = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    )
    return reader.load().selectExpr(f"value % {keys} as key", "value", "timestamp as source_time")


def added(frames: Iterator[pd.DataFrame], state: tuple[int, int]) -> tuple[int, int]:
    count, total = state
    for frame in frames:
        count, total = count + len(frame), total + int(frame["value"].sum())
    return count, total


def apply_in_pandas(frame: DataFrame) -> DataFrame:
    def fold(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        count, total = added(frames, state.get if state.exists else (0, 0))
        state.update((count, total))
        yield pd.DataFrame({"key": [key[0]], "count": [count], "total": [total]})

    return frame.groupBy("key").applyInPandasWithState(fold, OUT, STATE, "append", "NoTimeout")


class InPandas(StatefulProcessor):
    """Sums with `transformWithStateInPandas`."""

    def init(self, handle: Any) -> None:  # noqa: D102  # as Spark documents
        self.state = handle.getValueState("sums", STATE)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: D102, N802
        count, total = added(rows, self.state.get() or (0, 0))
        self.state.update((count, total))
        yield pd.DataFrame({"key": [key[0]], "count": [count], "total": [total]})

    def close(self) -> None:  # noqa: D102
        pass


class InRows(InPandas):
    """Sums with `transformWithState`."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: D102, N802
        count, total = self.state.get() or (0, 0)
        for row in rows:
            count, total = count + 1, total + row["value"]
        self.state.update((count, total))
        yield Row(key=key[0], count=count, total=total)


def sums_of_frames(key: tuple[int], rows: pd.DataFrame, state: tuple[int, int] | None) -> tuple[Any, Any]:
    count, total = added(iter([rows]), state or (0, 0))
    return pd.DataFrame({"key": [key[0]], "count": [count], "total": [total]}), (count, total)


def sums_of_records(
    key: tuple[int], rows: list[dict[str, Any]], state: tuple[int, int] | None
) -> tuple[Any, Any]:
    count, total = state or (0, 0)
    count, total = count + len(rows), total + sum(row["value"] for row in rows)
    return [{"key": key[0], "count": count, "total": total}], (count, total)


Start = Callable[[DataFrame, Path, Gate], StreamingQuery]


def native(make: Callable[[DataFrame], DataFrame]) -> Start:
    def start(frame: DataFrame, checkpoint: Path, gate: Gate) -> StreamingQuery:
        writer = make(frame).writeStream.foreachBatch(gate)
        return writer.option("checkpointLocation", str(checkpoint)).start()

    return start


def buckets(function: Callable[..., Any], takes: Any) -> Start:
    def start(frame: DataFrame, checkpoint: Path, gate: Gate) -> StreamingQuery:
        builder = flow(takes)
        sums = builder.source("in", dataframe(frame)).keyed(
            "sums", function, key="key", state=STATE, takes=takes, schema=OUT
        )
        sums.sink("out", foreach_batch(gate))
        made = compile_dataflow(
            frame.sparkSession, builder.build(), checkpoint=checkpoint, state_partitions=2
        )
        return made.start()

    return start


WAYS: dict[str, Start] = {
    "applyInPandasWithState": native(apply_in_pandas),
    "transformWithStateInPandas": native(
        lambda frame: frame.groupBy("key").transformWithStateInPandas(InPandas(), OUT, "append", "none")
    ),
    "transformWithState": native(
        lambda frame: frame.groupBy("key").transformWithState(InRows(), OUT, "append", "none")
    ),
    "buckets, pandas": buckets(sums_of_frames, "pandas"),
    "buckets, record": buckets(sums_of_records, "record"),
}


def measure(spark: SparkSession, rows: int, keys: int, rounds: int) -> dict[str, np.ndarray]:
    """Seconds per micro-batch, per round and way."""
    gates = {name: Gate() for name in WAYS}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        queries = []
        try:
            for i, (name, start) in enumerate(WAYS.items()):
                queries.append(start(numbers(spark, rows, keys), Path(folder) / str(i), gates[name]))
                gates[name].wait()
            for number in range(WARM_UP_ROUNDS + rounds):
                for name in WAYS if number % 2 else reversed(WAYS):
                    taken = gates[name].one_batch()
                    if number >= WARM_UP_ROUNDS:
                        seconds[name].append(taken)
        finally:
            for gate in gates.values():
                gate.close()
            for query in queries:
                query.stop()
    return {name: np.array(values) for name, values in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    spark = create_session("local[2]", "keyed", extra_conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        seconds = measure(spark, given.rows, given.keys, given.rounds)
    finally:
        spark.stop()
    best = min(float(np.median(values)) for name, values in seconds.items() if not name.startswith("buckets"))
    result = {
        name: {
            "seconds_median": float(np.median(values)),
            "seconds_quartiles": [float(q) for q in np.quantile(values, [0.25, 0.75])],
            "times_faster_than_best_per_key": best / float(np.median(values)),
        }
        for name, values in seconds.items()
    }
    if given.json:
        print(
            json.dumps(
                {"rows": given.rows, "keys": given.keys, "rounds": given.rounds, "ways": result}, indent=2
            )
        )
        return 0
    print(f"{given.rows} rows of {given.keys} keys a batch, {given.rounds} rounds")
    print(f"{'way':28} {'median s':>9}  {'quartiles':16} {'against the best per key':>8}")
    for name, way in result.items():
        low, high = way["seconds_quartiles"]
        spread = f"{low:.3f} .. {high:.3f}"
        print(
            f"{name:28} {way['seconds_median']:9.3f}  {spread:16} {way['times_faster_than_best_per_key']:8.1f}x"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
