"""Taxi drives and KNN on real Spark: every answer is that of the plain function, shed or not."""

from pathlib import Path

import pyarrow as pa

from penstock.dataflow import constant
from penstock.spark.internals.controls import seeded
from penstock.spark.internals.task_controls import ControlDocument
from penstock.spark.query.compile import compile_dataflow
from penstock.spark.query.sampling import keep_control
from penstock_papers.quality_of_data.knn import Neighbours, Points, knn
from penstock_papers.quality_of_data.taxi_drives import dropoffs, pickups, taxi_drives, with_stands, with_zone
from tests.spark.flows import Collected, kept_rows

RATE_RPS, BATCH, ENOUGH = 2000.0, 150, 400


def run(spark, dataflow, checkpoint: Path, done, controls: dict[str, float] | None = None) -> None:
    """Until `done` says that enough has come."""
    compiled = compile_dataflow(spark, dataflow, checkpoint=checkpoint)
    with seeded(spark, ControlDocument(current=controls or {})):
        query = compiled.start()
    for _ in range(300):
        if done() or query.exception() is not None:
            break
        query.awaitTermination(0.1)
    query.stop()
    assert query.exception() is None
    assert done()


def test_both_queries_of_taxi_drives_answer_every_event_and_shed_by_record(local_spark, tmp_path):
    zones, stands = Collected(), Collected()
    drives = taxi_drives(
        load=constant(RATE_RPS), sinks=(zones.connector(), stands.connector()), max_rows_per_batch=BATCH
    )
    share = 0.5
    run(
        local_spark,
        drives,
        tmp_path / "checkpoint",
        lambda: len(stands.rows) >= ENOUGH and len(zones.rows) >= ENOUGH / 2,
        {keep_control("drives->zones"): share},
    )
    count = 1 + max(row["id"] for row in stands.rows)
    events = pa.Table.from_batches([pickups(0, count), dropoffs(0, count)]).combine_chunks().to_batches()[0]
    for collected, answer in ((stands, with_stands), (zones, with_zone)):
        expected = {(r["topic"], r["id"]): r for r in answer(events).to_pylist()}
        told = {(r["topic"], r["id"]): r for r in collected.rows}
        assert len(told) == len(collected.rows), "no event twice"
        for key, row in told.items():
            assert {c: row[c] for c in expected[key]} == expected[key]
    asked = {(r["topic"], r["id"]) for r in stands.rows}
    answered = {(r["topic"], r["id"]) for r in zones.rows}
    assert answered < asked
    assert abs(len(answered) / len(asked) - share) < 0.12
    complete = min(max(r["id"] for r in stands.rows if r["topic"] == t) for t in ("pickup", "dropoff"))
    assert {(t, i) for t in ("pickup", "dropoff") for i in range(complete + 1)} <= asked


def test_knn_finds_the_neighbours_among_what_was_kept(local_spark, tmp_path):
    guesses, share, reservoir = Collected(), 0.6, 50
    run(
        local_spark,
        knn(load=constant(RATE_RPS), tasks=2, reservoir=reservoir, sink=guesses.connector(), max_rows_per_batch=BATCH),
        tmp_path / "checkpoint",
        lambda: len(guesses.rows) >= ENOUGH,
        {keep_control("points"): share},
    )  # fmt: skip
    told = {row["id"]: row for row in guesses.rows}
    points = kept_rows(Points(parts=2)(0, 1 + max(told)), share, ("id",))
    for part in (0, 1):
        mine = points.filter(pa.array([p == part for p in points.column("part").to_pylist()]))
        expected, _ = Neighbours(reservoir=reservoir)((part,), mine, None)
        for row in expected.to_pylist():
            assert {c: told[row["id"]][c] for c in row} == row
    assert set(told) == set(points.column("id").to_pylist())
