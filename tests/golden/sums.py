"""The dataflow behind `checkpoint.tar.gz`: sums per key of numbers from files, half of them shed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import flow
from penstock.dataflow import Dataflow
from penstock.dataflow.connectors import files, files_sink
from tests.spark.flows import keyed_sums, numbers

ROWS = 300
COLUMNS = "number long, key long, text string, source_time timestamp"
START_US = 1_700_000_000_000_000


def write_input(folder: Path, first: int) -> None:
    """One file of ROWS numbered records, from `first` on."""
    folder.mkdir(exist_ok=True)
    stamps = pa.array(START_US + np.arange(first, first + ROWS) * 1000).view(pa.timestamp("us", tz="UTC"))
    rows = numbers(first, first + ROWS).append_column("source_time", stamps)
    pq.write_table(pa.Table.from_batches([rows]), folder / f"{first}.parquet")


def sums_flow(source: Path, results: Path) -> Dataflow:
    """Count and total per key, kept in Spark's state store."""
    builder = flow("golden-sums")
    numbers_in = builder.source(
        "in", files(str(source), "parquet", COLUMNS, max_files_per_batch=1), keep_by="number"
    )
    totals = numbers_in.keyed(
        "sums", keyed_sums, key="key", state="count long, total long", schema="key long, count long, total long",
        takes="pandas",
    )  # fmt: skip
    totals.sink("out", files_sink(str(results)))
    return builder.build()
