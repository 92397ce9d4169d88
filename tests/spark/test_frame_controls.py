"""A pilot over plain PySpark queries with `penstock.shed` and `penstock.alternates`: what it sees and does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.control.plan import NotReadyError, Plan, Planned
from penstock.dataflow import OperatorId
from penstock.policies.actions import Shed, Switch
from penstock.policies.reasons import Reason
from penstock.spark.application import ApplicationRuntime
from penstock.spark.goals import Goals
from penstock.spark.internals.controls import get_control
from penstock.spark.query.frame_points import first_sheds
from penstock.spark.query.sampling import WEIGHT, unit_hashes
from penstock.spark.runtime import RuntimeOptions
from tests.spark.flows import Collected
from tests.spark.streams import ROWS_PER_BATCH, numbers, wait_for

ROWS = 400
"""Records of a batch, one batch a second: a source whose batches do not grow however late they are."""
ROUNDS = 100_000
"""Of a loop in Python for each record: some milliseconds, so that two threads cannot do ROWS of them in a second."""


def burn(folder: Path) -> Any:
    """A function of the user's that computes for every record while there is a file `busy`."""
    busy = folder / "busy"

    def score(values: pd.Series) -> pd.Series:
        rounds = ROUNDS if busy.exists() else 0

        def one(value: int) -> int:
            total = value
            for i in range(rounds):
                total = (total * 31 + i) & 0xFFFF
            return total

        return values.map(one)

    # Annotations are texts in this file; Spark wants the types.
    score.__annotations__ = {"values": pd.Series, "return": pd.Series}
    return sql.pandas_udf(score, "long")  # type: ignore[call-overload]


def query_of(frame: DataFrame, name: str, folder: Path, out: Collected) -> StreamingQuery:
    writer = frame.writeStream.queryName(name).foreachBatch(out)
    return writer.option("checkpointLocation", str(folder / name)).trigger(processingTime="1 second").start()


def overloaded(spark: SparkSession, folder: Path, out: Collected) -> StreamingQuery:
    """A plain query that cannot keep pace as long as `busy` is there."""
    (folder / "busy").touch()
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    numbered = rate.option("numPartitions", 2).option("startTimestamp", 1000).load()
    orders = penstock.shed(numbered, keep_by="value", name="orders")
    score = burn(folder)
    return query_of(orders.select("value", WEIGHT, score("value").alias("score")), "scores", folder, out)


def shedding_began(query: StreamingQuery, out: Collected) -> None:
    wait_for(lambda: (get_control(query, "keep:orders") or 1.0) < 0.9, timeout_s=240, what="shedding")
    wait_for(lambda: any(row[WEIGHT] > 1 for row in out.rows), timeout_s=240, what="a batch with less")


def is_exact(out: Collected) -> None:
    """Batch i has the next ROWS values, of which its share, by their hash, is kept."""
    shares = {i: batch[0][WEIGHT] for i, batch in out.batches.items() if batch}
    kept = {i: sorted(row["value"] for row in out.batches[i]) for i in shares}
    assert kept == {i: kept_of(ROWS * i, ROWS * (i + 1), 1 / w) for i, w in shares.items()}
    assert min(shares.values()) == 1.0
    assert max(shares.values()) > 1.0


def test_overload_sheds_just_the_shares_and_a_pilot_that_leaves_puts_all_back(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    out = Collected()
    query = overloaded(local_spark, tmp_path, out)
    goals = {"scores": Goals(min_accuracy=0.05)}
    with penstock.attach(local_spark, goals=goals, interval_s=1.0) as pilot:
        shedding_began(query, out)
        assert not pilot.loop.faults
        assert "keep" in pilot.report()
    assert get_control(query, "keep:orders") == 1.0, "put back"
    query.stop()
    is_exact(out)


@pytest.mark.live
def test_all_is_kept_again_when_the_load_falls(local_spark: SparkSession, tmp_path: Path) -> None:
    """On a machine with idle CPU: what other processes use is theirs, so beside them nothing rises."""
    out = Collected()
    query = overloaded(local_spark, tmp_path, out)
    with penstock.attach(local_spark, goals={"scores": Goals(min_accuracy=0.05)}, interval_s=1.0):
        shedding_began(query, out)
        (tmp_path / "busy").unlink()
        wait_for(lambda: get_control(query, "keep:orders") == 1.0, timeout_s=240, what="everything kept")
        last = max(out.batches)
        wait_for(lambda: max(out.batches) > last + 1, timeout_s=120, what="two more batches")
    query.stop()
    is_exact(out)


def kept_of(start: int, stop: int, share: float) -> list[int]:
    values = pa.RecordBatch.from_pydict({"value": np.arange(start, stop)})
    hashes = unit_hashes(values, ["value"])
    return (start + np.flatnonzero(hashes < share)).tolist()


def minus(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "value", pc.negate(batch.column("value")))


def test_alternates_are_seen_with_cost_and_value_and_switched(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    frame = penstock.shed(numbers(local_spark), keep_by="value", name="all", weights=False)
    frame = penstock.alternates(
        frame,
        {"same": lambda batch: batch, "minus": minus},
        name="sign",
        values={"same": 1.0, "minus": 0.5},
        schema="value long, key long",
    )
    out = Collected()
    query = query_of(frame, "signs", tmp_path, out)
    wait_for(lambda: out.batches, what="a batch")
    runtime = ApplicationRuntime(
        local_spark,
        goals=lambda name: Goals(priority=7, min_accuracy=0.3),
        options=RuntimeOptions(),
        interval_s=1.0,
    )
    runtime.acts = lambda: False
    wait_for(lambda: observed(runtime), what="the query under control")
    sign = OperatorId("signs.sign")
    assert [a.name for a in runtime.dataflow.operator(sign).alternates] == ["same", "minus"]
    snapshot = seen(runtime, lambda s: s.sources.known[0] and s.tasks.cpu.sum() > 0)
    assert (snapshot.sinks.priority[0], snapshot.sinks.min_accuracy[0], snapshot.sources.keep[0]) == (
        7,
        0.3,
        1.0,
    )
    switch = Switch(operator=sign, current="same", target="minus", reason=Reason(code="test"))
    plan = Plan(time_s=snapshot.time_s, actions=(Planned(action=switch, policy="test"),))
    (outcome,) = runtime.apply(plan)
    assert outcome.status == "deferred"
    wait_for(lambda: min(row["value"] for row in list(out.rows)) < 0, what="the other function")
    row = runtime.dataflow.row[sign]
    both = seen(runtime, lambda s: s.alternates.service_s.count[s.alternates.operator == row].min() > 0)
    assert both.operators.alternate[row] == 1
    runtime.close()
    assert get_control(query, "alternate:sign") == "same", "put back"
    query.stop()


@pytest.mark.live
def test_alternates_of_a_plain_query_are_switched_both_ways_by_attach(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    """Under a load that computes; Spark's own state behind them goes on, and every record counts once."""
    busy = tmp_path / "busy"

    def full(batch: pa.RecordBatch) -> pa.RecordBatch:
        for value in batch.column("value").to_pylist() if busy.exists() else ():
            for i in range(ROUNDS):
                value = (value * 31 + i) & 0xFFFF
        return pa.RecordBatch.from_pydict({"value": batch.column("value"), "by": ["full"] * batch.num_rows})

    def quick(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"value": batch.column("value"), "by": ["quick"] * batch.num_rows})

    rate = local_spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    numbered = rate.option("numPartitions", 2).option("startTimestamp", 1000).load()
    frame = penstock.alternates(
        numbered.select("value"),
        {"full": full, "quick": quick},
        name="score",
        values={"full": 1.0, "quick": 0.7},
        schema="value long, by string",
        score=lambda best, output: 0.7,
    )
    key = (sql.col("value") % 5).alias("key")
    counts = frame.groupBy(key, "by").agg(sql.count("*").alias("count"), sql.sum("value").alias("sum"))
    out = Collected()
    writer = counts.writeStream.queryName("scores").outputMode("complete").foreachBatch(out)
    query = (
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="1 second").start()
    )
    with penstock.attach(local_spark, interval_s=2.0) as pilot:
        wait_for(lambda: out.batches, what="a batch")
        for there, name in ((True, "quick"), (False, "full")):
            busy.touch() if there else busy.unlink()
            try:
                wait_for(lambda name=name: get_control(query, "alternate:score") == name, timeout_s=240)
            except AssertionError:
                raise AssertionError(f"{name}: {pilot.report()}") from None
            last = max(out.batches)
            wait_for(lambda last=last: max(out.batches) > last + 2, timeout_s=120, what="more batches")
        assert not pilot.loop.faults
    query.stop()
    whole = max(out.batches)
    rows = out.batches[whole]
    assert {row["by"] for row in rows} == {"full", "quick"}
    totals = {k: [0, 0] for k in range(5)}
    for row in rows:
        totals[row["key"]][0] += row["count"]
        totals[row["key"]][1] += row["sum"]
    read = np.arange(ROWS * (whole + 1))
    assert totals == {k: [int((read % 5 == k).sum()), int(read[read % 5 == k].sum())] for k in range(5)}


def observed(runtime: ApplicationRuntime) -> Any:
    """A snapshot; None while Spark does not answer or no query is under control."""
    try:
        return runtime.observe()
    except NotReadyError:
        return None


def seen(runtime: ApplicationRuntime, wanted: Any) -> Any:
    """The first snapshot that is as wanted."""
    found: list[Any] = []

    def look() -> bool:
        found.append(observed(runtime))
        return found[-1] is not None and bool(wanted(found[-1]))

    wait_for(look, what="such a snapshot")
    return found[-1]


def test_a_query_without_a_shed_must_have_all_of_its_input(local_spark: SparkSession, tmp_path: Path) -> None:
    out = Collected()
    query = query_of(numbers(local_spark), "plain", tmp_path, out)
    wait_for(lambda: out.batches, what="a batch")
    with penstock.attach(local_spark, interval_s=1.0) as pilot:
        wait_for(lambda: "plain.sink" in pilot.runtime.dataflow.row, what="the query under control")
        assert pilot.runtime.dataflow.operator("plain.sink").min_accuracy == 1.0
    query.stop()


@pytest.mark.parametrize("utility", [True, False])
def test_only_the_first_shed_of_a_way_is_steered(
    local_spark: SparkSession, tmp_path: Path, utility: bool
) -> None:
    useful = sql.lit(0.5) if utility else None
    first = penstock.shed(numbers(local_spark), keep_by="value", name="first", utility=useful)
    other = penstock.shed(numbers(local_spark), keep_by="value", name="other")
    last = penstock.shed(first.unionByName(other), name="last")
    query = query_of(last, "ways", tmp_path, Collected())
    wait_for(lambda: query.lastProgress, what="a batch")
    assert {point.name for point in first_sheds(query)} == {"first", "other"}
    query.stop()


def test_the_useless_go_first_and_the_share_asked_for_passes(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    """A tenth of the records is very useful: at a share of 0.3 nearly all of those stay, and 0.3 in all."""
    useful = sql.when(sql.col("value") % 10 == 0, 0.99).otherwise(0.2)
    out = Collected()
    query = query_of(
        penstock.shed(numbers(local_spark), keep_by="value", name="all", utility=useful),
        "useful",
        tmp_path,
        out,
    )
    wait_for(lambda: out.batches, what="a batch")
    runtime = ApplicationRuntime(
        local_spark, goals=lambda name: Goals(), options=RuntimeOptions(), interval_s=1.0
    )
    runtime.acts = lambda: False
    wait_for(lambda: observed(runtime), what="the query under control")
    seen(runtime, lambda s: s.sources.known[0] and s.tasks.cpu.sum() > 0)
    shed = Shed(operator=OperatorId("useful.source"), keep=0.3, reason=Reason(code="test"))
    plan = Plan(time_s=0.0, actions=(Planned(action=shed, policy="test"),))

    def settled() -> bool:
        observed(runtime)
        runtime.apply(plan)
        return get_control(query, "cutoff:all") is not None

    wait_for(settled, what="a cutoff")
    began = max(out.batches) + 2
    wait_for(lambda: max(out.batches) >= began + 10, what="ten more batches")
    query.stop()
    rows = [row["value"] for i in range(began, began + 10) for row in out.batches[i]]
    offered = 10 * ROWS_PER_BATCH
    assert len(rows) / offered == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / offered))
    kept = sum(1 for value in rows if value % 10 == 0)
    assert kept > 0.95 * offered / 10
