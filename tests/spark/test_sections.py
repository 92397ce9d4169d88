"""Constraints that end inside a dataflow: what Penstock measures and what the user's own functions stamp by hand."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from penstock import flow
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.launch import launch
from tests.spark.flows import Collected, replayed
from tests.spark.streams import finished_batch

AGREES = 0.05
BATCHES = 8


def now_us() -> int:
    return time.time_ns() // 1000


def hashed(frame: pd.DataFrame) -> pd.DataFrame:
    """A millisecond of computing for each record, then the age of all."""
    for number in frame["number"]:
        text = str(number).encode()
        for _ in range(1500):
            text = hashlib.sha256(text).digest()
    ages = now_us() - frame["source_time"].to_numpy("datetime64[us]").astype("int64")
    return pd.DataFrame({"key": frame["key"], "left_us": ages})


def summed(key: tuple[int], rows: pd.DataFrame, state: tuple[int] | None) -> tuple[Any, Any]:
    came = (now_us() - rows["source_time"].to_numpy("datetime64[us]").astype("int64")).sum()
    made = pd.DataFrame({"rows": [len(rows)], "left_us": [rows["left_us"].sum()], "came_us": [came]})
    return made, (0 if state is None else state[0] + 1,)


def test_latencies_of_sequences_are_those_that_functions_stamp(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    sink = Collected()
    builder = flow("sections")
    ages = builder.source("in", replayed(150.0)).map(
        "hash", hashed, takes="pandas", schema="key long, left_us long"
    )
    sums = ages.keyed(
        "sum",
        summed,
        key="key",
        state="batches long",
        schema="rows long, left_us long, came_us long",
        takes="pandas",
    )
    sums.sink("out", sink.connector())
    every = {"mean_ms": 60_000, "window_s": 3600.0}
    builder.constrain("hash", name="left", **every)
    builder.constrain("hash ->", name="came", **every)
    builder.constrain("hash -> sum", name="whole", **every)
    runtime = launch(local_spark, builder.build(), checkpoint=tmp_path / "c", state_partitions=2)
    finished_batch(runtime.query, BATCHES)
    stop_cleanly(local_spark, runtime.query, timeout_s=120)
    table = runtime.observe().constraints
    runtime.close()
    rows = sum(row["rows"] for row in sink.rows)
    by_hand = {name: sum(row[f"{name}_us"] for row in sink.rows) / rows / 1e6 for name in ("left", "came")}
    measured = dict(zip(("left", "came", "whole"), table.latency_s.tolist(), strict=True))
    assert table.known.all()
    assert measured["left"] == pytest.approx(by_hand["left"], rel=AGREES)
    assert measured["came"] == pytest.approx(by_hand["came"], rel=AGREES)
    # At the sink there is one result for each key and batch, as old as its newest record.
    assert len({round(seconds, 3) for seconds in measured.values()}) == 3, "three ends, three numbers"
