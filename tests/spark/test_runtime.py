"""A declared dataflow under control on real Spark: every record counted while controls, executors and faults change."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from pyspark.sql import SparkSession

from penstock import flow
from penstock.control import PolicyRun, Settings
from penstock.dataflow import Dataflow, alternate
from penstock.policies.actions import Pace, Scale, Shed, Switch
from penstock.policies.policy import Proposal
from penstock.spark.act.spreading import even_moves
from penstock.spark.attach import attach
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.pacing import Pacing, stop_cleanly
from penstock.spark.internals.repartition import repartition_reason
from penstock.spark.launch import launch
from penstock.spark.pilot import Pilot
from penstock.spark.query.record_hash import record_hashes
from penstock.spark.runtime import RuntimeOptions, SparkRuntime
from penstock.telemetry import MachineClass
from tests.spark.control import WHY, application, carry_out
from tests.spark.flows import KEYS, Collected, keyed_sums, numbers, record_minus, replayed
from tests.spark.streams import finished_batch, last_source, next_batch, started, wait_for
from tests.spark.streams import numbers as plain_numbers

THREE = RuntimeOptions(machine=MachineClass(name="executor", available=3))


def sums(sink: Collected, rate_rps: float = 400.0) -> Dataflow:
    """numbers -> identity or minus -> sums per key."""
    builder = flow("sums")
    source = builder.source("in", replayed(rate_rps), keep_by="number")
    signed = source.map(
        "sign",
        alternates=[alternate("plus", dict, value=1.0), alternate("minus", record_minus, value=0.5)],
        takes="record",
    )
    totals = signed.keyed(
        "sums",
        keyed_sums,
        key="key",
        state="count long, total long",
        schema="key long, count long, total long",
        takes="pandas",
        parallelism=(1, 6),
    )
    totals.sink("out", sink.connector())
    builder.constrain("sign -> sums", mean_ms=20_000)
    return builder.build()


def stopped(runtime: SparkRuntime) -> int:
    """Stop the query between two batches; the number of records it has read."""
    stop_cleanly(runtime.spark, runtime.query, timeout_s=120)
    runtime.close()
    return int(last_source(runtime.query).end["next"])


def expected(read: int) -> dict[int, tuple[int, int]]:
    frame = numbers(0, read).to_pandas()
    grouped = frame.groupby("key")["number"].agg(["count", "sum"])
    return {int(k): (int(row["count"]), int(row["sum"])) for k, row in grouped.iterrows()}


def final(sink: Collected) -> dict[int, tuple[int, int]]:
    return {row["key"]: (row["count"], row["total"]) for row in sink.rows}


def test_scale_up_and_down_is_exact_and_drains_first(cluster_spark: SparkSession, tmp_path: Path) -> None:
    executors = Executors(cluster_spark)
    sink = Collected()
    runtime = launch(cluster_spark, sums(sink), checkpoint=tmp_path / "c", options=THREE, state_partitions=6)
    finished_batch(runtime.query, 1)
    assert len(executors.list()) == 3
    down = carry_out(runtime, Scale(reason=WHY, current=3, target=1))["nodes"]
    assert down.status == "applied", down
    assert len(executors.list()) == 1
    failed_before = sum(e.failed_tasks for e in executors.list())
    next_batch(runtime.query)
    up = carry_out(runtime, Scale(reason=WHY, current=1, target=3))["nodes"]
    assert up.status == "applied", up
    # A cold executor may refuse state at first: what did not follow at once follows when asked again.
    for _ in range(4):
        moves = even_moves(runtime.moves.places(), {e.id for e in executors.list()})
        if not moves:
            break
        runtime.moves.move(moves).wait(120)
    held = Counter(runtime.moves.places().values())
    assert sorted(held.values()) == [2, 2, 2], "state is spread over the new executors"
    down = carry_out(runtime, Scale(reason=WHY, current=3, target=1))["nodes"]
    assert down.status == "applied", down
    assert sum(e.failed_tasks for e in executors.list()) == failed_before, "no task failed"
    next_batch(runtime.query)
    read = stopped(runtime)
    assert final(sink) == expected(read)
    assert executors.request_total(3)
    wait_for(lambda: len(executors.list()) == 3, what="three executors for the next test")


def test_controls_hold_for_whole_batches_and_are_confirmed(local_spark: SparkSession, tmp_path: Path) -> None:
    sink = Collected()
    builder = flow("controls")
    signed = builder.source("in", replayed(500.0), keep_by="number").map(
        "sign",
        alternates=[alternate("plus", dict, value=1.0), alternate("minus", record_minus, value=0.5)],
        takes="record",
    )
    signed.sink("out", sink.connector())
    runtime = launch(local_spark, builder.build(), checkpoint=tmp_path / "c")
    finished_batch(runtime.query, 1)
    outcomes = carry_out(
        runtime,
        Shed(reason=WHY, operator="in", keep=0.5),
        Switch(reason=WHY, operator="sign", current="plus", target="minus"),
    )
    assert {o.status for o in outcomes.values()} == {"applied"}
    batch = outcomes["in"].reason.facts["batch"]
    next_batch(runtime.query)
    snapshot = runtime.observe()
    assert snapshot.sources.keep[0] == pytest.approx(0.5, abs=0.15)
    assert snapshot.dataflow.operators[1].alternates[snapshot.operators.alternate[1]].name == "minus"
    assert snapshot.sinks.accuracy[0] == pytest.approx(0.5, abs=0.15)
    again = carry_out(runtime, Shed(reason=WHY, operator="in", keep=0.5))
    assert again["in"].status == "held", "asking twice is asking once"
    stopped(runtime)
    for number, rows in sink.batches.items():
        if rows:
            signs = {row["number"] >= 0 for row in rows if row["number"]}
            assert signs == {number < batch}, f"batch {number} mixes alternates"
    after = [abs(row["number"]) for n, rows in sink.batches.items() if n >= batch for row in rows]
    hashes = record_hashes(numbers(0, max(after) + 1), ("number",))
    kept = {i for i in range(min(after), max(after) + 1) if hashes[i] < 2**63}
    assert set(after) == kept, "the hash of the number decides, whatever batch or task it is in"


def test_number_of_state_partitions_changes_by_a_restart(local_spark: SparkSession, tmp_path: Path) -> None:
    sink = Collected()
    runtime = launch(local_spark, sums(sink), checkpoint=tmp_path / "c", state_partitions=2)
    finished_batch(runtime.query, 1)
    carry_out(runtime, Shed(reason=WHY, operator="in", keep=0.999999))
    done = carry_out(runtime, Scale(reason=WHY, operator="sums", current=2, target=4))["sums"]
    if repartition_reason(local_spark) is not None:
        assert done.status == "blocked", "an older Spark cannot, and says so"
        return
    assert done.status == "applied", done
    first = finished_batch(runtime.query, 0)
    next_batch(runtime.query)
    next_batch(runtime.query)
    assert len(runtime.moves.places()) == 4
    assert runtime.controls, "controls survive the restart"
    assert first >= 0
    read = stopped(runtime)
    assert final(sink) == expected(read)


def test_pace_changes_the_interval(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(plain_numbers(local_spark), tmp_path, every_ms=0)
    finished_batch(query, 1)
    runtime = application(local_spark)
    runtime.observe()
    (name,) = runtime.observe().queries.names
    pace = Pace(reason=WHY, query=name, deadline_s=2.0)
    assert carry_out(runtime, pace)[pace.subject].status == "applied"
    assert carry_out(runtime, pace)[pace.subject].status == "held"
    assert runtime.observe().batches.interval_s == 2.0
    runtime.close()
    assert Pacing(local_spark, query).interval_ms() == 0, "the user's own pace is back"


def test_blocked_with_a_reason_where_a_lever_is_missing(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(plain_numbers(local_spark), tmp_path)
    finished_batch(query)
    runtime = application(local_spark)
    runtime.observe()
    outcomes = carry_out(
        runtime,
        Scale(reason=WHY, current=1, target=2),
        Shed(reason=WHY, operator="source", keep=0.5),
    )
    assert {o.status for o in outcomes.values()} == {"blocked"}
    assert "local[2]" in str(outcomes["nodes"].reason.facts["cause"])
    runtime.close()


class Raising:
    """A policy that fails every time."""

    name = "raising"

    def start(self, options: Any) -> None:
        return None

    def decide(self, snapshot: Any, memory: None, options: Any) -> tuple[Proposal, None]:
        raise RuntimeError("a bug of ours")


def test_a_fault_of_ours_never_stops_the_query(local_spark: SparkSession, tmp_path: Path) -> None:
    sink = Collected()
    runtime = launch(local_spark, sums(sink), checkpoint=tmp_path / "c", state_partitions=2)
    finished_batch(runtime.query, 0)
    # A gauge that fails, besides a policy that raises.
    runtime.looks.gauges = replace(runtime.looks.gauges, tasks=_Broken())
    with Pilot(runtime, [PolicyRun(policy=Raising())], settings=Settings(interval_s=1.0)) as pilot:
        before = finished_batch(runtime.query, 0)
        wait_for(lambda: sum(pilot.loop.faults.values()) >= 3, what="three faults")
        finished_batch(runtime.query, before + 2)
        assert pilot.running
        assert pilot.loop.faults["decide-failed"] >= 3
        assert "a bug of ours" in pilot.report()
        told = [c.brief.warnings for c in pilot.journal.cycles(pilot.loop.run_id) if c.brief is not None]
        assert any("this metric is missing" in warning for warnings in told for warning in warnings)
    read = stopped(runtime)
    assert final(sink) == expected(read)


class _Broken:
    def batch(self, *_: object) -> None:
        raise RuntimeError("this metric is missing")


def test_kill_of_an_executor_keeps_results_and_controls(cluster_spark: SparkSession, tmp_path: Path) -> None:
    executors = Executors(cluster_spark)
    wait_for(lambda: len(executors.list()) == 3, what="three executors")
    sink = Collected()
    runtime = launch(cluster_spark, sums(sink), checkpoint=tmp_path / "c", options=THREE, state_partitions=3)
    finished_batch(runtime.query, 1)
    carry_out(runtime, Switch(reason=WHY, operator="sign", current="plus", target="minus"))
    known = {e.id for e in executors.list()}
    victim = _executor_pids()[0]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: {e.id for e in executors.list()} != known, what="the loss to be noticed")
    last = finished_batch(runtime.query, 0)
    finished_batch(runtime.query, last + 2)
    wait_for(lambda: len(executors.list()) == 3, what="a replacement")
    snapshot = runtime.observe()
    assert snapshot.dataflow.operators[1].alternates[snapshot.operators.alternate[1]].name == "minus"
    assert set(snapshot.nodes.ids) == {e.id for e in executors.list()}, "the snapshot says what Spark says"
    read = stopped(runtime)
    sums_with_one_switch(final(sink), read)


def sums_with_one_switch(totals: dict[int, tuple[int, int]], read: int) -> None:
    """Check counts and sums of all numbers read, where those from the switched batch on count negatively."""
    counts = {k: n for k, (n, _) in expected(read).items()}
    assert {k: n for k, (n, _) in totals.items()} == counts, "every record once"
    # Numbers enter in order, so one point of switching must explain all sums.
    of_key = np.arange(read)[:, None] * (np.arange(read)[:, None] % KEYS == np.arange(KEYS))
    before = np.vstack([np.zeros((1, KEYS), dtype=np.int64), np.cumsum(of_key, axis=0)])
    explained = np.all(2 * before - before[-1] == [totals[k][1] for k in range(KEYS)], axis=1)
    assert explained.any(), "no point of switching explains the sums"


def _executor_pids() -> list[int]:
    """The executors of this test's cluster: children of our own supervisor's workers."""
    me = psutil.Process()
    found = [
        p for p in me.children(recursive=True) if "CoarseGrainedExecutorBackend" in " ".join(_cmdline(p))
    ]
    return [p.pid for p in found]


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_attach_scales_a_query_it_did_not_build(cluster_spark: SparkSession, tmp_path: Path) -> None:
    executors = Executors(cluster_spark)
    wait_for(lambda: len(executors.list()) == 3, what="three executors")
    numbers = cluster_spark.readStream.format("rate").option("rowsPerSecond", 300).load()
    query = started(numbers.groupBy(numbers.value % 7).count(), tmp_path, mode="update", every_ms=300)
    finished_batch(query, 1)
    with attach(cluster_spark, latency_ms=60_000, max_executors=3, interval_s=1.0) as pilot:
        try:
            wait_for(lambda: len(executors.list()) == 1, timeout_s=100, what="one executor, which is enough")
        except AssertionError:
            raise AssertionError(pilot.report()) from None
        assert query.isActive
        assert "one node fewer" in pilot.report() or "scale" in pilot.report()
    assert query.isActive, "the query outlives the autopilot"
    executors.request_total(3)
    wait_for(lambda: len(executors.list()) == 3, what="three executors for the next test")


def test_snapshot_of_a_running_dataflow(local_spark: SparkSession, tmp_path: Path) -> None:
    sink = Collected()
    runtime = launch(local_spark, sums(sink, 300.0), checkpoint=tmp_path / "c", state_partitions=2)
    finished_batch(runtime.query, 2)
    runtime.observe()
    time.sleep(2)
    next_batch(runtime.query)
    next_batch(runtime.query)
    snapshot = runtime.observe()
    view, row = snapshot.by_operator, snapshot.dataflow.row
    assert view.arrived[row["sign"]] > 0
    assert view.service_s.mean[row["sign"]] > 0
    assert view.selectivity[row["sign"]] == pytest.approx(1.0)
    assert snapshot.sources.produced_rps[0] == pytest.approx(300.0, rel=0.05)
    assert snapshot.constraints.known[0]
    assert 0 < snapshot.constraints.latency_s[0] < 60
    assert len(snapshot.batches) >= 2
    assert (snapshot.tasks.operator == row["sums"]).sum() == 2, "a task for each state partition"
    assert snapshot.nodes.cores.sum() == 2
    stopped(runtime)
