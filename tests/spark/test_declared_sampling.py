"""Sampling in a declared dataflow on Spark: one hash per record, whatever happens to it on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.dataflow import flow
from penstock.spark.query.sampling import unit_hashes
from tests.spark.flows import Collected, kept_rows, numbers, record_minus
from tests.spark.test_compile import TOTAL, run, write_input

KEEP = 0.4


def join(left: Any, right: Any) -> Any:
    return left.join(right.select("number", "text", "_penstock_hash", "_penstock_weight"), "number")


@pytest.fixture(scope="module")
def expected() -> list[int]:
    return kept_rows(numbers(0, TOTAL), KEEP, ("number",)).column("number").to_pylist()


def test_a_join_of_two_streams_keeps_its_share_of_the_matches(local_spark, tmp_path: Path, expected) -> None:
    out, builder = Collected(), flow("joined")
    left = builder.source("left", write_input(tmp_path / "left"), keep_by="number", weight="weight")
    right = builder.source("right", write_input(tmp_path / "right"), keep_by="number")
    fewer = left.map(
        "fewer", lambda batch: batch.drop_columns(["text"]), schema="number long, key long, weight double"
    )
    both = builder.transform("both", join, inputs=[fewer, right])
    both.map("minus", record_minus, takes="record", schema="number long, weight double").sink(
        "out", out.connector()
    )
    controls = {"keep:left": 0.8, "keep:left->fewer": 0.5, "keep:right": KEEP, "keep:minus->out": 0.5}
    run(local_spark, builder.build(), tmp_path / "checkpoint", controls=controls, state_partitions=2)
    # Both sides kept the same 40 %, so that is what the join has, and the stream behind it keeps half of that.
    half = kept_rows(numbers(0, TOTAL), KEEP / 2, ("number",)).column("number").to_pylist()
    assert out.values() == sorted(-n for n in half)
    assert len(expected) / TOTAL == pytest.approx(KEEP, abs=4 * np.sqrt(KEEP * (1 - KEEP) / TOTAL))
    assert [row["weight"] for row in out.rows] == pytest.approx([1 / (KEEP / 2)] * len(half))


def test_a_union_of_streams_with_different_shares_goes_on_with_both(local_spark, tmp_path: Path) -> None:
    out, builder = Collected(), flow("united")
    first = builder.source("first", write_input(tmp_path / "first"), keep_by="number")
    second = builder.source("second", write_input(tmp_path / "second", first=TOTAL), keep_by="number")
    both = builder.union("both", first, second).map(
        "minus", record_minus, takes="record", wiring="spread", parallelism=3
    )
    both.sink("out", out.connector())
    controls = {"keep:first": 0.8, "keep:second": 0.4, "keep:minus->out": 0.5}
    run(local_spark, builder.build(), tmp_path / "checkpoint", controls=controls)
    kept = [
        -n
        for start, share in ((0, 0.8), (TOTAL, 0.4))
        for n in kept_rows(numbers(start, start + TOTAL), share * 0.5, ("number",))
        .column("number")
        .to_pylist()
    ]
    assert out.values() == sorted(kept)


def test_results_of_a_key_inherit_the_hash_of_its_records(local_spark, tmp_path: Path) -> None:
    """Kept by key at the source and again after the state: the same keys, in the product."""
    out, builder = Collected(), flow("keyed")
    source = builder.source("in", write_input(tmp_path / "in"), keep_by="key")
    counts = source.keyed(
        "counts",
        lambda key, rows, state: ([{"key": key[0]}] * len(rows), (len(rows),)),
        key="key",
        state="n long",
        schema="key long",
        takes="record",
    )
    counts.sink("out", out.connector())
    controls = {"keep:in": 0.8, "keep:counts->out": 0.7}
    run(local_spark, builder.build(), tmp_path / "checkpoint", controls=controls, state_partitions=2)
    keys = pa.RecordBatch.from_pydict({"key": pa.array(range(7), pa.int64())})
    kept = np.flatnonzero(unit_hashes(keys, ("key",)) < 0.8 * 0.7).tolist()
    assert 0 < len(kept) < 7
    assert sorted({row["key"] for row in out.rows}) == kept
