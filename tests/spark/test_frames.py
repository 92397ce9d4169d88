"""`penstock.shed` and `penstock.alternates` on ordinary DataFrames: what is kept, what runs, and who can tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import penstock
from penstock.spark.frames import FrameError
from penstock.spark.internals.controls import seeded
from penstock.spark.internals.task_controls import ControlDocument
from penstock.spark.query.frame_points import AlternatesPoint, ShedPoint, frame_measures, frames_of
from penstock.spark.query.sampling import HASH, SAMPLE, WEIGHT
from tests.spark.flows import Collected, kept_rows, numbers
from tests.spark.test_compile import COLUMNS, FILES, TOTAL, write_input

ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture
def stream(local_spark: SparkSession, tmp_path: Path) -> DataFrame:
    return reading(local_spark, tmp_path / "in")


def reading(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    write_input(folder, **options)
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder))


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    yield
    spark.conf.set(name, str(before))


def run(
    frame: DataFrame, checkpoint: Path, controls: dict[str, Any], mode: str = "append"
) -> tuple[Any, Collected]:
    """All of the input, under these controls: the query and what it gave."""
    out = Collected()
    writer = (
        frame.writeStream.foreachBatch(out).outputMode(mode).option("checkpointLocation", str(checkpoint))
    )
    with seeded(frame.sparkSession, ControlDocument(current=controls)):
        query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(250)
    return query, out


def kept(share: float) -> list[int]:
    return sorted(kept_rows(numbers(0, TOTAL), share, ("number",)).column("number").to_pylist())


def test_a_share_passes_and_carries_its_weight(stream: DataFrame, tmp_path: Path) -> None:
    frame = penstock.shed(stream, keep_by="number", name="orders")
    assert frame.columns == [*stream.columns, *SAMPLE]
    _, out = run(frame, tmp_path / "c", {"keep:orders": 0.4})
    assert out.values() == kept(0.4)
    assert {row[WEIGHT] for row in out.rows} == {2.5}


def test_without_controls_and_in_batches_everything_passes(
    local_spark, stream: DataFrame, tmp_path: Path
) -> None:
    _, out = run(penstock.shed(stream, keep_by="number", name="orders"), tmp_path / "c", {})
    assert out.values() == list(range(TOTAL))
    batch = local_spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    rows = penstock.shed(batch, keep_by="number", name="orders").collect()
    assert sorted(row["number"] for row in rows) == list(range(TOTAL))
    assert {(row[HASH], row[WEIGHT]) for row in rows} == {(None, 1.0)}
    switched = penstock.alternates(batch, {"same": lambda b: b, "minus": minus}, name="sign", schema=COLUMNS)
    assert sorted(row["number"] for row in switched.collect()) == list(range(TOTAL))


@pytest.mark.parametrize(("partitions", "arrow_rows"), [(1, "10000"), (5, "7")])
def test_partitions_and_arrow_batches_change_nothing(
    local_spark, stream: DataFrame, tmp_path: Path, partitions: int, arrow_rows: str
) -> None:
    frame = penstock.shed(stream.repartition(partitions), keep_by="number", name="orders", utility=useful())
    controls = {"keep:orders": 0.4, "cutoff:orders": 0.3}
    with setting(local_spark, ARROW_ROWS, arrow_rows):
        _, out = run(frame, tmp_path / "c", controls)
    chance = {n: min(1.0, 0.3 / (0.05 if n % 10 == 0 else 0.8)) for n in range(TOTAL)}
    assert {row["number"]: row[WEIGHT] for row in out.rows} == pytest.approx(
        {n: 1 / c for n, c in chance.items() if n in set(kept(c))}
    )


@pytest.mark.parametrize("files", [1, 3, 100])
def test_batch_boundaries_change_nothing(local_spark, tmp_path: Path, files: int) -> None:
    write_input(tmp_path / "in")
    stream = local_spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", files)
    frame = penstock.shed(stream.parquet(str(tmp_path / "in")), keep_by="number", name="orders")
    _, out = run(frame, tmp_path / "c", {"keep:orders": 0.4})
    assert len(out.batches) == -(-FILES // files)
    assert out.values() == kept(0.4)


def test_a_batch_that_runs_again_keeps_the_same(stream: DataFrame, tmp_path: Path) -> None:
    """A batch fails behind the shed; the query starts again on its checkpoint."""
    broken, seen = tmp_path / "broken", tmp_path / "seen"
    broken.touch()
    seen.mkdir()

    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = batch.column("number").to_pylist()
        if numbers and max(numbers) >= TOTAL // 2:
            (seen / f"{min(numbers)} {broken.exists()}").write_text(str(numbers))
            if broken.exists():
                raise RuntimeError("lost")
        return batch

    shed = penstock.shed(stream, keep_by="number", name="orders")
    frame = penstock.alternates(shed, {"one": fails}, name="check", schema=COLUMNS)
    with pytest.raises(Exception, match="lost"):
        run(frame, tmp_path / "c", {"keep:orders": 0.4})
    broken.unlink()
    _, out = run(frame, tmp_path / "c", {"keep:orders": 0.4})
    assert out.values() == [n for n in kept(0.4) if n >= out.values()[0]]
    (first,) = seen.glob("* True")
    assert first.read_text() == (seen / first.name.replace("True", "False")).read_text()


def useful() -> Any:
    return sql.when(sql.col("number") % 10 == 0, 0.95).otherwise(0.2)


def test_a_utility_function_does_the_same_and_its_counts_are_told(
    local_spark, stream: DataFrame, tmp_path: Path
) -> None:
    def matters(batch: pa.RecordBatch) -> Any:
        return np.where(batch.column("number").to_numpy() % 10 == 0, 0.95, 0.2)

    controls = {"keep:orders": 0.4, "cutoff:orders": 0.3}
    query, by_function = run(
        penstock.shed(stream, "number", name="orders", utility=matters), tmp_path / "c", controls
    )
    _, by_column = run(
        penstock.shed(stream, "number", name="orders", utility=useful()), tmp_path / "d", controls
    )
    assert by_function.values() == by_column.values()
    records = frame_measures(local_spark).take(range(10), run_id=str(query.runId))
    counted = sum(counts.records.sum() for record in records for _, counts in record.utilities)
    assert counted == TOTAL


def test_a_join_of_two_shed_streams_keeps_its_share_of_the_matches(local_spark, tmp_path: Path) -> None:
    orders = penstock.shed(reading(local_spark, tmp_path / "orders"), keep_by="number", name="orders")
    payments = reading(local_spark, tmp_path / "payments").select(sql.col("number").alias("paid_for"))
    payments = penstock.shed(payments, keep_by="paid_for", name="payments")
    joined = orders.join(payments, orders["number"] == payments["paid_for"])
    again = penstock.shed(joined, name="again")
    assert again.columns.count(HASH) == again.columns.count(WEIGHT) == 1
    controls = {"keep:orders": 0.4, "keep:payments": 0.4, "keep:again": 0.5}
    _, out = run(again, tmp_path / "c", controls)
    assert out.values() == kept(0.2), (
        "the join keeps 0.4 of the matches, not 0.16, and what follows half of those"
    )
    assert [row[WEIGHT] for row in out.rows] == pytest.approx([5.0] * len(out.rows))
    assert len(kept(0.4)) / TOTAL == pytest.approx(0.4, abs=4 * np.sqrt(0.24 / TOTAL))


def test_shares_multiply_over_several_sheds_and_functions(stream: DataFrame, tmp_path: Path) -> None:
    first = penstock.shed(stream, keep_by="number", name="first")
    middle = penstock.alternates(
        first,
        {"few": lambda b: b.filter(pc.greater_equal(b.column("number"), 100))},
        name="middle",
        schema=COLUMNS,
    )
    last = penstock.shed(middle.withColumnRenamed("number", "renamed"), name="last")
    _, out = run(last, tmp_path / "c", {"keep:first": 0.8, "keep:last": 0.5})
    assert out.values("renamed") == [n for n in kept(0.4) if n >= 100]
    assert [row[WEIGHT] for row in out.rows] == pytest.approx([2.5] * len(out.rows))


def test_a_watermark_outlives_both(stream: DataFrame, tmp_path: Path) -> None:
    marked = stream.withWatermark("source_time", "1 second")
    frame = penstock.shed(marked, keep_by="number", name="orders")
    frame = penstock.alternates(frame, {"same": lambda b: b}, name="same", schema=COLUMNS)
    counts = frame.groupBy(sql.window("source_time", "100 milliseconds")).count()
    query, _ = run(counts, tmp_path / "c", {})  # append mode, which needs the watermark
    assert query.exception() is None


def minus(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "number", pc.negate(batch.column("number")))


def test_a_control_chooses_the_alternate_and_others_are_measured(
    local_spark, stream: DataFrame, tmp_path: Path
) -> None:
    frame = penstock.alternates(
        stream, {"same": lambda b: b, "minus": minus}, name="sign", values={"minus": 0.5}, schema=COLUMNS
    )
    query, out = run(frame, tmp_path / "c", {"alternate:sign": "minus", "audit": 1.0})
    assert out.values() == sorted(-n for n in range(TOTAL))
    records = frame_measures(local_spark).take(range(10), run_id=str(query.runId))
    found: dict[str, Any] = {}
    for record in records:
        for one in record.operators:
            rows, probed, agreed, compared = found.get(one.alternate, (0, 0, 0.0, 0))
            found[one.alternate] = (
                rows + one.rows_in, probed + one.probe_rows, agreed + one.agreed, compared + one.compared,
            )  # fmt: skip
    assert found == {"minus": (TOTAL, 0, 1.0, TOTAL), "same": (0, TOTAL, 0.0, 0)}


def test_frames_of_tells_which_query_has_what(local_spark, stream: DataFrame, tmp_path: Path) -> None:
    shed = penstock.shed(stream, keep_by="number", name="orders", utility=sql.lit(0.5))
    both = penstock.alternates(
        shed, {"full": lambda b: b, "quick": lambda b: b}, name="score", values={"full": 1.0, "quick": 0.7},
        schema=COLUMNS,
    )  # fmt: skip

    def inside(frame: DataFrame, batch_id: int) -> None:
        penstock.shed(frame, keep_by="number", name="inside").collect()

    plain = stream.writeStream.format("noop").start()
    query = both.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    nested = stream.writeStream.foreachBatch(inside).start()
    for each in (plain, query, nested):
        each.processAllAvailable()
    assert frames_of(plain) == ()
    found = frames_of(query)
    assert found == (
        ShedPoint(name="orders", keep_by=("number",), has_utility=True),
        AlternatesPoint(name="score", values={"full": 1.0, "quick": 0.7}),
    )
    assert [point.control for point in found] == ["keep:orders", "alternate:score"]
    assert [point.name for point in frames_of(nested)] == ["inside"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda f: penstock.shed(f, keep_by="order", name="orders"),
            "there is no column 'order'; there are number",
        ),
        (lambda f: penstock.alternates(f, {}, name="a", schema=COLUMNS), "there is no function"),
        (
            lambda f: penstock.alternates(f, {"a": minus}, name="a", schema=COLUMNS, values={"b": 1.0}),
            "'b' has a value and no function",
        ),
        (
            lambda f: penstock.alternates(f, {"a": minus}, name="a", schema=COLUMNS, values={"a": 2.0}),
            r"must lie in 0..1, not 2",
        ),
        (lambda f: penstock.shed(f, name=""), "the name must be a text, not ''"),
        (lambda f: penstock.shed("orders", name="orders"), "must be a DataFrame, not str"),
        (
            lambda f: penstock.shed(penstock.shed(f, "number", name="a"), name="a"),
            "shed 'a': there is one of this name before it",
        ),
        (lambda f: penstock.shed(f, "number", name="a", utility="worth"), "there is no column 'worth'"),
        (
            lambda f: penstock.shed(f, "number", name="a", utility="source_time"),
            "the utility must be a number in 0..1, not timestamp",
        ),
        (
            lambda f: penstock.shed(f, "number", name="a", utility=0.5),
            "the utility must be a column, an expression or a function, not float",
        ),
        (
            lambda f: penstock.alternates(f, {"a": "minus"}, name="a", schema=COLUMNS),
            "'a' is no function but str",
        ),
        (
            lambda f: penstock.alternates(f, {"a": minus}, name="a", schema="number lung"),
            "'number lung' is no schema such as",
        ),
        (
            lambda f: penstock.alternates(f, {"a": minus}, name="a", schema=COLUMNS, takes="rows"),
            "takes must be one of",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(stream: DataFrame, call: Any, message: str) -> None:
    with pytest.raises(FrameError, match=message) as caught:
        call(stream)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (
            lambda f: penstock.shed(f, "number", name="orders", utility=lambda batch: batch["price"]),
            "in the utility of shed 'orders'",
        ),
        (
            lambda f: penstock.shed(f, "number", name="orders", utility=lambda batch: [0.5]),
            "a utility gives a number for each of",
        ),
        (
            lambda f: penstock.alternates(
                f, {"a": lambda b: b.drop_columns(["text"])}, name="score", schema=COLUMNS
            ),
            "column 'text' is missing; there are number",
        ),
    ],
)
def test_what_fails_later_says_where(stream: DataFrame, tmp_path: Path, build: Any, told: str) -> None:
    with pytest.raises(Exception, match="Error") as caught:
        run(build(stream), tmp_path / "c", {"keep:orders": 0.4})
    assert told in str(caught.value)
