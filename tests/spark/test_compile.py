"""Dataflows on real Spark: every record counted."""

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow, DataflowError, FlowBuilder, Output, alternate, flow
from penstock.dataflow.connectors import discard, files, files_sink, memory
from penstock.dataflow.graph import Connector
from penstock.spark.internals.controls import seeded
from penstock.spark.internals.task_controls import ControlDocument
from penstock.spark.observe.task_measures import TaskRecord
from penstock.spark.query.compile import CompiledDataflow, compile_dataflow
from tests.spark.flows import (
    KEYS,
    Collected,
    arrow_even,
    kept_rows,
    keyed_sums,
    numbers,
    pandas_square,
    record_minus,
    record_twice,
)

ROWS, FILES = 300, 3
COLUMNS = "number long, key long, text string, source_time timestamp"
START_US = 1_700_000_000_000_000


def write_input(folder: Path, *, first: int = 0) -> Connector:
    """FILES files of ROWS records each, one file a batch, a millisecond between two records."""
    folder.mkdir()
    for i in range(FILES):
        start = first + i * ROWS
        rows = numbers(start, start + ROWS)
        stamps = pa.array(START_US + np.arange(start, start + ROWS) * 1000)
        rows = rows.append_column("source_time", stamps.view(pa.timestamp("us", tz="UTC")))
        pq.write_table(pa.Table.from_batches([rows]), folder / f"{i}.parquet")
    return files(str(folder), "parquet", COLUMNS, max_files_per_batch=1)


@pytest.fixture
def source(tmp_path: Path) -> tuple[FlowBuilder, Output]:
    builder = flow("test")
    return builder, builder.source("in", write_input(tmp_path / "in"))


def run(
    spark: SparkSession,
    dataflow: Dataflow,
    checkpoint: Path,
    *,
    controls: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[CompiledDataflow, list[TaskRecord]]:
    """The dataflow run over all of its input, and what its tasks measured."""
    compiled = compile_dataflow(spark, dataflow, checkpoint=checkpoint, **options)
    with seeded(spark, ControlDocument(current=controls or {})):
        query = compiled.start(available_now=True)
    assert query.awaitTermination(250)
    assert query.exception() is None
    return compiled, list(compiled.measures.take(compiled.measures.waiting()))


def rows_in(records: list[TaskRecord]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in records:
        counts.update({o.operator: o.rows_in for o in record.operators})
    return counts


def rows_at_sinks(records: list[TaskRecord]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in records:
        counts.update({s.sink: s.rows for s in record.sinks})
    return counts


TOTAL = ROWS * FILES


def stamp_us(row: dict[str, Any]) -> int:
    return round(row["source_time"].timestamp() * 1e6)


def test_a_chain_of_all_forms_shares_one_stage(local_spark, source, tmp_path):
    builder, stream = source
    out = Collected()
    (
        stream.map("even", arrow_even)
        .map("square", pandas_square, takes="pandas", schema="number long, key long, square long")
        .map("twice", record_twice, takes="record", schema="number long, copy int")
        .sink("out", out.connector())
    )
    compiled, records = run(local_spark, builder.build(), tmp_path / "checkpoint")
    assert out.values() == sorted([*range(0, TOTAL, 2), *range(0, TOTAL, 2)])
    assert all(stamp_us(row) == START_US + 1000 * row["number"] for row in out.rows)
    assert compiled.hosts == ("in=>sinks",)
    assert rows_in(records) == {"in": TOTAL, "even": TOTAL, "square": TOTAL // 2, "twice": TOTAL // 2}
    assert rows_at_sinks(records) == {"out": TOTAL}
    assert {r.batch_id for r in records} == set(range(FILES))
    assert {r.executor for r in records} == {"driver"}


def test_two_sinks_are_served_by_one_pass(local_spark, source, tmp_path):
    builder, stream = source
    shared = stream.map("minus", record_minus, takes="record")
    shared.map("square", pandas_square, takes="pandas", schema="number long, key long, square long").sink(
        "squares", files_sink(str(tmp_path / "squares"))
    )
    shared.sink("all", memory("everything"))
    shared.sink("same", discard())
    _, records = run(local_spark, builder.build(), tmp_path / "checkpoint")
    squares = local_spark.read.parquet(str(tmp_path / "squares")).collect()
    assert sorted(row.square for row in squares) == [n * n for n in range(TOTAL)]
    everything = local_spark.table("everything").collect()
    assert sorted(-row.number for row in everything) == list(range(TOTAL))
    assert rows_in(records) == {"in": TOTAL, "minus": TOTAL, "square": TOTAL}
    assert rows_at_sinks(records) == {"squares": TOTAL, "all": TOTAL, "same": TOTAL}


def test_two_sources_meet_in_a_union(local_spark, source, tmp_path):
    builder, stream = source
    other = builder.source("more", write_input(tmp_path / "more", first=10_000))
    out = Collected()
    builder.union("both", stream.map("even", arrow_even), other).map(
        "minus", record_minus, takes="record"
    ).sink("out", out.connector())
    compiled, records = run(local_spark, builder.build(), tmp_path / "checkpoint")
    assert out.values() == sorted(
        [*(-n for n in range(0, TOTAL, 2)), *(-n for n in range(10_000, 10_000 + TOTAL))]
    )
    assert compiled.hosts == ("in=>sinks", "more=>sinks")
    assert rows_in(records)["minus"] == rows_in(records)["both"] == TOTAL + TOTAL // 2


def expected_sums(values: range) -> dict[int, tuple[int, int]]:
    return {
        key: (len(mine), sum(mine)) for key in range(KEYS) if (mine := [n for n in values if n % KEYS == key])
    }


def last_per_key(out: Collected) -> dict[int, tuple[int, int]]:
    return {row["key"]: (row["count"], row["total"]) for row in out.rows}


def negated(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(total=-rows["total"])


def counted_again(key: tuple[int], rows: list[dict[str, Any]], state: tuple[int] | None) -> tuple[Any, Any]:
    seen = (state[0] if state else 0) + len(rows)
    return [{"parity": key[0], "updates": seen}], (seen,)


def parity(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("parity", pc.bit_wise_and(batch.column("key"), 1))


def stored_state(spark: SparkSession, checkpoint: Path, operator: int) -> str:
    """The columns of a keyed operator's state, as its buckets in the checkpoint tell."""
    reader = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", "keys")
    (columns,) = {pickle.loads(row.value["keys"])[1] for row in reader.load(str(checkpoint)).collect()}
    return columns


def test_keyed_sums_are_exact_and_a_second_keyed_operator_follows(local_spark, source, tmp_path):
    builder, stream = source
    sums, updates = Collected(), Collected()
    totals = stream.map("even", arrow_even).keyed(
        "sums",
        keyed_sums,
        key="key",
        state="n long, total long",
        takes="pandas",
        schema="key long, count long, total long",
    )
    totals.map("negated", negated, takes="pandas").sink("sums_out", sums.connector())
    (
        totals.map("parity", parity, schema="key long, count long, total long, parity long")
        .keyed(
            "again",
            counted_again,
            key="parity",
            state="n long",
            takes="record",
            schema="parity long, updates long",
        )
        .sink("updates_out", updates.connector())
    )
    compiled, records = run(local_spark, builder.build(), tmp_path / "checkpoint", state_partitions=2)
    wanted = {key: (count, -total) for key, (count, total) in expected_sums(range(0, TOTAL, 2)).items()}
    assert last_per_key(sums) == wanted
    assert {row["parity"]: row["updates"] for row in updates.rows} == {0: 4 * FILES, 1: 3 * FILES}
    # Both keyed operators see each record once, though the first's output takes two ways.
    assert rows_in(records) == {
        "in": TOTAL,
        "even": TOTAL,
        "sums": TOTAL // 2,
        "negated": KEYS * FILES,
        "parity": KEYS * FILES,
        "again": KEYS * FILES,
    }
    assert compiled.hosts == ("in=>sinks", "sums", "stage 1=>sinks", "again", "stage 2=>sinks")
    # Spark counts stateful operators from the sinks back.
    assert [stored_state(local_spark, tmp_path / "checkpoint", i) for i in range(2)] == [
        "n long",
        "n long, total long",
    ]
    latest = {row["key"]: stamp_us(row) for row in sums.rows}
    for key in range(KEYS):
        newest = max(n for n in range(0, TOTAL, 2) if n % KEYS == key)
        assert latest[key] == START_US + 1000 * newest


def test_controls_choose_alternates_and_shares(local_spark, source, tmp_path):
    builder, stream = source
    out = Collected()
    stream.map(
        "sign",
        takes="record",
        alternates=[alternate("same", lambda r: r), alternate("minus", record_minus, value=0.5)],
    ).sink("out", out.connector())
    controls = {"alternate:sign": "minus", "keep:in": 0.6, "keep:in->sign": 0.5}
    _, records = run(local_spark, builder.build(), tmp_path / "checkpoint", controls=controls)
    whole = pa.Table.from_batches([numbers(0, TOTAL)]).combine_chunks().to_batches()[0]
    stamps = pa.array(START_US + np.arange(TOTAL) * 1000).view(pa.timestamp("us", tz="UTC"))
    whole = whole.append_column("source_time", stamps)
    left = kept_rows(whole, 0.6 * 0.5).column("number").to_pylist()
    assert out.values() == sorted(-n for n in left)
    shed = sum(s.rows_shed for r in records for s in r.streams if s.stream == "in->sign")
    assert rows_in(records) == {"in": TOTAL, "sign": len(left)}
    assert shed == kept_rows(whole, 0.6).num_rows - len(left)


def counted_by_key(frame: Any) -> Any:
    return frame.groupBy("key").count()


def without_duplicates(left: Any, right: Any) -> Any:
    return left.union(right).dropDuplicates(["number"])


def test_native_operators_join_in(local_spark, source, tmp_path):
    builder, stream = source
    out = Collected()
    even = stream.map("even", arrow_even)
    builder.transform("distinct", without_duplicates, inputs=[even, stream]).sink("out", out.connector())
    run(local_spark, builder.build(), tmp_path / "checkpoint", state_partitions=2)
    assert out.values() == list(range(TOTAL))
    assert all(stamp_us(row) == START_US + 1000 * row["number"] for row in out.rows)


def test_native_aggregations_run_in_update_mode(local_spark, source, tmp_path):
    builder, stream = source
    out = Collected()
    stream.transform("counts", counted_by_key).sink("out", out.connector())
    _, records = run(
        local_spark, builder.build(), tmp_path / "checkpoint", state_partitions=2, output_mode="update"
    )
    counts = {row["key"]: row["count"] for row in out.rows}
    assert counts == {key: count for key, (count, _) in expected_sums(range(TOTAL)).items()}
    assert {row["source_time"] for row in out.rows} == {None}
    assert rows_at_sinks(records) == {"out": len(out.rows)}


def test_a_branch_before_a_shuffle_is_counted_once(local_spark, source, tmp_path):
    builder, stream = source
    raw, sums = Collected(), Collected()
    even = stream.map("even", arrow_even)
    even.sink("raw", raw.connector())
    even.keyed(
        "sums",
        keyed_sums,
        key="key",
        state="n long, total long",
        takes="pandas",
        schema="key long, count long, total long",
    ).sink("sums_out", sums.connector())
    _, records = run(local_spark, builder.build(), tmp_path / "checkpoint", state_partitions=2)
    assert raw.values() == list(range(0, TOTAL, 2))
    assert last_per_key(sums) == expected_sums(range(0, TOTAL, 2))
    assert rows_in(records) == {"in": TOTAL, "even": TOTAL, "sums": TOTAL // 2}


def test_spread_and_key_wiring_shuffle(local_spark, source, tmp_path):
    builder, stream = source
    out = Collected()
    (
        stream.map("minus", record_minus, takes="record", wiring="spread", parallelism=4)
        .map(
            "square",
            pandas_square,
            takes="pandas",
            schema="number long, key long, square long",
            wiring="key",
            key="key",
            parallelism=3,
        )
        .sink("out", out.connector())
    )
    compiled, records = run(local_spark, builder.build(), tmp_path / "checkpoint")
    assert out.values("square") == [n * n for n in range(TOTAL)]
    assert compiled.hosts == ("in=>sinks", "stage 1=>sinks", "stage 2=>sinks")
    tasks = {stage: {r.partition for r in records if r.host.startswith(f"stage {stage}")} for stage in (1, 2)}
    assert (len(tasks[1]), len(tasks[2])) == (4, 3)
    assert rows_in(records) == {"in": TOTAL, "minus": TOTAL, "square": TOTAL}


class FailsOnce(Collected):
    """Fails in batch 1 the first time, after it has seen the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first: list[dict[str, Any]] | None = None

    def __call__(self, frame: Any, batch_id: int) -> None:
        super().__call__(frame, batch_id)
        if batch_id == 1 and self.first is None:
            self.first = self.batches.pop(1)
            raise RuntimeError("lost")


def test_a_retried_batch_sheds_the_same_records(local_spark, source, tmp_path):
    builder, stream = source
    out = FailsOnce()
    stream.map("minus", record_minus, takes="record").sink("out", out.connector())
    dataflow, controls = builder.build(), ControlDocument(current={"keep:in": 0.5})
    for attempt in range(2):
        compiled = compile_dataflow(local_spark, dataflow, checkpoint=tmp_path / "checkpoint")
        with seeded(local_spark, controls):
            query = compiled.start(available_now=True)
        if attempt == 0:
            with pytest.raises(Exception, match="lost"):
                query.awaitTermination(250)
        else:
            assert query.awaitTermination(250)
    assert out.first is not None
    assert sorted(r["number"] for r in out.first) == sorted(r["number"] for r in out.batches[1])
    assert 0 < len(out.first) < ROWS
    assert len(set(out.values())) == len(out.values())


def test_what_cannot_run_is_told_before_anything_starts(local_spark, source, tmp_path):
    builder, stream = source
    stream.wired("broadcast").sink("out", discard())
    with pytest.raises(DataflowError, match="only map operators can read a broadcast"):
        compile_dataflow(local_spark, builder.build(), checkpoint=tmp_path / "checkpoint")


def test_broadcast_reaches_every_task_once(local_spark, source, tmp_path):
    builder, stream = source
    out = Collected()
    both = builder.map(
        "minus",
        record_minus,
        takes="record",
        inputs=[stream.wired("spread"), stream.map("even", arrow_even).wired("broadcast")],
        parallelism=3,
    )
    both.sink("out", out.connector())
    _, records = run(local_spark, builder.build(), tmp_path / "checkpoint")
    wanted = Counter(-n for n in range(TOTAL)) + Counter({-n: 3 for n in range(0, TOTAL, 2)})
    assert Counter(out.values("number")) == wanted
    assert rows_in(records)["minus"] == wanted.total()


def test_a_function_from_anywhere_reaches_a_cluster(cluster_spark, source, tmp_path):
    builder, stream = source
    out = Collected()
    stream.map("even", arrow_even).keyed(
        "sums",
        keyed_sums,
        key="key",
        state="n long, total long",
        takes="pandas",
        schema="key long, count long, total long",
    ).sink("out", out.connector())
    _, records = run(cluster_spark, builder.build(), tmp_path / "checkpoint", state_partitions=3)
    assert last_per_key(out) == expected_sums(range(0, TOTAL, 2))
    assert rows_in(records) == {"in": TOTAL, "even": TOTAL, "sums": TOTAL // 2}
    assert {r.executor for r in records} <= {"0", "1", "2"}
