"""What an earlier version wrote must still mean the same: hashes, labels, and a checkpoint with pickled state."""

from __future__ import annotations

import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.spark.internals.controls import seeded
from penstock.spark.internals.task_controls import ControlDocument
from penstock.spark.query.compile import compile_dataflow
from penstock.spark.query.record_hash import record_hashes
from penstock.spark.query.shuffle_messages import bucket_labels, partition_labels
from tests.golden.sums import ROWS, sums_flow, write_input
from tests.spark.flows import kept_rows, numbers

GOLDEN = Path(__file__).parents[1] / "golden"
WRITTEN_S = 1_794_837_965
"""When the file that the checkpoint has seen was written; Spark ignores files that are a week older."""


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return dict(json.loads((GOLDEN / "checkpoint.json").read_text()))


def test_hashes_and_labels_are_those_of_old(golden: dict[str, Any]) -> None:
    rows = numbers(0, len(golden["hashes"]))
    assert [str(h) for h in record_hashes(rows, ("number",))] == golden["hashes"]
    assert [str(h) for h in record_hashes(rows, ("key", "text"), salt=1)] == golden["salted"]
    for count, labels in golden["buckets"].items():
        assert bucket_labels(int(count)).tolist() == labels
    for count, labels in golden["partitions"].items():
        assert partition_labels(int(count)).tolist() == labels


def test_a_checkpoint_of_old_goes_on(
    local_spark: SparkSession, tmp_path: Path, golden: dict[str, Any]
) -> None:
    with tarfile.open(GOLDEN / "checkpoint.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    write_input(tmp_path / "in", ROWS)
    # Spark notes whole paths: of the files it has read, and of the schema of its state. The folder is another one now.
    checkpoint = tmp_path / "checkpoint"
    for note in (checkpoint / "sources/0/0", checkpoint / "state/0/_metadata/v2/0"):
        moved = re.sub(r"file:(//)?/[^\"]*?/(in|checkpoint)/", rf"file:\1{tmp_path}/\2/", note.read_text())
        note.write_text(moved)
        (note.parent / f".{note.name}.crc").unlink()
    write_input(tmp_path / "in", 0)
    os.utime(tmp_path / "in" / f"{ROWS}.parquet", (WRITTEN_S + 60, WRITTEN_S + 60))
    dataflow = sums_flow(tmp_path / "in", tmp_path / "out")
    compiled = compile_dataflow(local_spark, dataflow, checkpoint=checkpoint, state_partitions=3)
    with seeded(local_spark, ControlDocument(current={"keep:in": 0.5})):
        query = compiled.start(available_now=True)
    assert query.awaitTermination(250)
    assert query.exception() is None

    sums = {key: (count, total) for key, count, total in golden["rows"]}
    for row in kept_rows(numbers(ROWS, 2 * ROWS), 0.5, ("number",)).to_pylist():
        count, total = sums.get(row["key"], (0, 0))
        sums[row["key"]] = count + 1, total + row["number"]
    written = [
        row
        for file in sorted((tmp_path / "out").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    assert {row["key"]: (row["count"], row["total"]) for row in written} == sums
