"""Batches of records with their source times, as hosts get them."""

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string()), ("source_time", pa.timestamp("us", tz="UTC"))])
START_US = 1_700_000_000_000_000


def a_batch(rows: int = 6, start: int = 0) -> pa.RecordBatch:
    n = np.arange(start, start + rows)
    times = pa.array(START_US + n * 1000).view(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([pa.array(n), pa.array([f"x{i % 3}" for i in n]), times], schema=SCHEMA)
