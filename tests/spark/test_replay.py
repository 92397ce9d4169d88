"""The replay source on real Spark: nothing lost, nothing twice, true times, also after a restart."""

import time
from pathlib import Path

import pytest

from penstock.dataflow import constant, flow
from penstock.dataflow.connectors import replay
from penstock.spark.query.compile import compile_dataflow
from penstock.spark.query.replay_source import ADMISSION_CONTROL, backlog
from tests.spark.flows import Collected, record_minus, replayed
from tests.spark.streams import finished_batch, last_source, wait_for

RATE_RPS = 400.0


def test_a_restart_continues_on_the_same_clock(local_spark, tmp_path: Path):
    out, most = Collected(), 700
    builder = flow("replayed")
    source = builder.source("in", replayed(RATE_RPS, partitions=3, max_rows_per_batch=most))
    source.map("minus", record_minus, takes="record").sink("out", out.connector())
    dataflow = builder.build()
    clocks = set()
    for stop_after in (2, 5):
        query = compile_dataflow(local_spark, dataflow, checkpoint=tmp_path / "checkpoint").start()
        finished_batch(query, stop_after)
        seen = last_source(query).end
        clocks.add(seen["started_us"])
        query.stop()  # in the middle of whatever runs
    assert len(clocks) == 1
    (started_us,) = clocks
    values = sorted(-row["number"] for row in out.rows)
    assert values == list(range(len(values)))
    assert len(values) >= seen["next"]
    for row in out.rows:
        due_us = started_us + round((-row["number"] + 1) / RATE_RPS * 1e6)
        assert abs(round(row["source_time"].timestamp() * 1e6) - due_us) <= 1
    assert all(len(rows) <= most for rows in out.batches.values())
    now_s = time.time()
    waiting = backlog(constant(RATE_RPS), seen, now_s)
    assert waiting.records == pytest.approx((now_s - started_us / 1e6) * RATE_RPS - seen["next"], abs=2)


@pytest.mark.skipif(not ADMISSION_CONTROL, reason="before 4.2 Spark does not ask a Python source for it")
def test_progress_tells_what_is_due(local_spark, tmp_path: Path):
    builder, out = flow("due"), Collected()
    builder.source("in", replayed(5000.0, max_rows_per_batch=50)).sink("out", out.connector())
    query = compile_dataflow(local_spark, builder.build(), checkpoint=tmp_path / "checkpoint").start()
    finished_batch(query, 2)
    source = last_source(query)
    due, read = source.latest["next"], source.end["next"]
    assert due > read >= len(out.rows) - 50
    assert max(len(rows) for rows in out.batches.values()) == 50


def test_a_file_is_played_once_and_then_it_is_over(local_spark, tmp_path: Path):
    path = tmp_path / "trips.csv"
    path.write_text("trip,zone\n" + "".join(f"{i},z{i % 4}\n" for i in range(500)))
    out = Collected()
    builder = flow("trips")
    builder.source("in", replay(str(path), load=constant(1000.0), loop=False)).sink("out", out.connector())
    query = compile_dataflow(local_spark, builder.build(), checkpoint=tmp_path / "checkpoint").start()
    wait_for(lambda: len(out.rows) >= 500, timeout_s=200, what="the end of the file")
    time.sleep(1.0)
    assert query.isActive
    assert out.values("trip") == list(range(500))
    assert {row["zone"] for row in out.rows} == {"z0", "z1", "z2", "z3"}
