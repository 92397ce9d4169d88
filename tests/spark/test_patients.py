"""Thorax and ECG on Spark: every result is that of the plain function over the whole stream."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import penstock_papers.neptune.ecg as ecg
import penstock_papers.neptune.thorax as thorax
from penstock.dataflow import flow
from penstock.dataflow.connectors import files
from penstock.spark.query.compile import compile_dataflow
from tests.spark.flows import Collected

FILES = 3
START_US = 1_700_000_000_000_000


def write(folder: Path, batch: pa.RecordBatch) -> None:
    """The batch in FILES files, one a micro-batch, cut at odd places."""
    folder.mkdir()
    stamps = pa.array(START_US + np.arange(batch.num_rows) * 10)
    batch = batch.append_column("source_time", stamps.view(pa.timestamp("us", tz="UTC")))
    cuts = [batch.num_rows * k // FILES + 7 * (0 < k < FILES) for k in range(FILES + 1)]
    for i in range(FILES):
        part = batch.slice(cuts[i], cuts[i + 1] - cuts[i])
        file = folder / f"{i}.parquet"
        pq.write_table(pa.Table.from_batches([part]), file)
        os.utime(file, (i, i))  # Spark reads files by age; those of one millisecond in no order


def whole(function, batch: pa.RecordBatch, key: str) -> list[dict]:
    """What the function gives for all rows of each key at once."""
    found = []
    for value in np.unique(batch.column(key).to_numpy()).tolist():
        rows = batch.filter(pa.compute.equal(batch.column(key), value))
        result, _ = function((value,), rows, None)
        found += [] if result is None else result.to_pylist()
    return found


def test_beats_and_breathing_are_exact_across_batches(local_spark: SparkSession, tmp_path: Path) -> None:
    samples = ecg.made_samples(0, 48 * 1500)
    samples = samples.filter(pa.compute.less(samples.column("patient"), 12))
    readings = thorax.made_readings(0, 144 * 60)
    write(tmp_path / "ecg", samples)
    write(tmp_path / "thorax", readings)
    app, beats, breathing = flow("patients"), Collected(), Collected()
    time = ", source_time timestamp"
    app.source(
        "samples", files(str(tmp_path / "ecg"), "parquet", ecg.COLUMNS + time, max_files_per_batch=1)
    ).keyed("ecg", ecg.find_beats, key="patient", state="detector binary", schema=ecg.BEATS).sink(
        "beats", beats.connector()
    )
    app.source(
        "readings", files(str(tmp_path / "thorax"), "parquet", thorax.COLUMNS + time, max_files_per_batch=1)
    ).keyed("thorax", thorax.follow_ward, key="ward", state="patients binary", schema=thorax.RESULTS).sink(
        "breathing", breathing.connector()
    )
    compiled = compile_dataflow(
        local_spark, app.build(), checkpoint=tmp_path / "checkpoint", state_partitions=2
    )
    query = compiled.start(available_now=True)
    assert query.awaitTermination(100)
    assert query.exception() is None

    def sorted_rows(rows: list[dict], *columns: str) -> list[tuple]:
        return sorted(tuple(row[c] for c in columns) for row in rows)

    columns = ("patient", "beat")
    assert sorted_rows(beats.rows, *columns) == sorted_rows(
        whole(ecg.find_beats, samples, "patient"), *columns
    )
    assert len(beats.rows) >= 12 * 2
    columns = ("ward", "patient", "sample", "mean", "lowest", "highest", "breath")
    assert sorted_rows(breathing.rows, *columns) == sorted_rows(
        whole(thorax.follow_ward, readings, "ward"), *columns
    )
    assert len(breathing.rows) == readings.num_rows
