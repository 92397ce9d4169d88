"""Shedding with a user's utility function, live: the useful stay, and weights give back what the whole would give."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.dataflow import constant, flow
from penstock.policies.shedding import count, total
from penstock.spark.internals.controls import seeded
from penstock.spark.internals.task_controls import ControlDocument
from penstock.spark.observe.utility_counts import UtilityCounts
from penstock.spark.query.compile import compile_dataflow
from penstock.spark.query.sampling import cutoff_control, keep_control
from tests.spark.flows import Collected, record_minus, replayed
from tests.spark.streams import wait_for

SHARE, ON_STREAM, ROWS = 0.3, 0.7, 3000


def matters(batch: pa.RecordBatch) -> np.ndarray:
    """Every tenth record matters more."""
    return np.where(batch.column("number").to_numpy() % 10 == 0, 0.95, 0.2)


def test_weights_reach_the_sink_through_operators_and_two_shedders(local_spark, tmp_path: Path):
    results, builder = Collected(), flow("weighed")
    events = builder.source(
        "in", replayed(load=constant(1500.0)), keep_by=("number",), utility=matters, weight="weight"
    )
    minus = events.map("minus", record_minus, takes="record")
    minus.sink("out", results.connector())
    compiled = compile_dataflow(local_spark, builder.build(), checkpoint=tmp_path / "checkpoint")
    known = UtilityCounts.of(
        np.where(np.arange(1000) % 10 == 0, 0.05, 0.8)
    )  # what earlier batches would have told
    controls = {
        keep_control("in"): SHARE,
        cutoff_control("in"): known.cutoff(SHARE),
        keep_control("minus->out"): ON_STREAM,
    }
    with seeded(local_spark, ControlDocument(current=controls)):
        query = compiled.start()
    wait_for(lambda: sum(p["numInputRows"] for p in query.recentProgress) >= ROWS, what="enough records")
    query.stop()
    read = sum(p["numInputRows"] for p in query.recentProgress)
    assert query.exception() is None
    batches = {p["batchId"] for p in query.recentProgress}
    rows = [row for batch, rows in results.batches.items() if batch in batches for row in rows]
    numbers, weights = -np.array([r["number"] for r in rows]), np.array([r["weight"] for r in rows])

    useful = numbers % 10 == 0
    assert np.mean(weights[~useful]) > 1.5 * np.mean(weights[useful])
    assert abs(len(rows) / read - SHARE * ON_STREAM) < 0.04
    for estimate, truth in (
        (count(weights, confidence=0.999), read),
        (total(numbers, weights, confidence=0.999), read * (read - 1) / 2),
    ):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low <= truth <= estimate.high
