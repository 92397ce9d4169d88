"""A restart with another number of state partitions, cut short at its steps: it is told, and the query comes back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.policies.actions import Scale
from penstock.spark import launch as launching
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.internals.repartition import finish_repartition, repartition_reason, repartition_state
from penstock.spark.launch import launch
from tests.spark.control import WHY, carry_out
from tests.spark.flows import Collected
from tests.spark.streams import finished_batch, next_batch
from tests.spark.test_runtime import expected, final, stopped, sums

WIDER = Scale(reason=WHY, operator="sums", current=2, target=4)


@pytest.fixture(autouse=True)
def can_repartition(local_spark: SparkSession) -> None:
    if reason := repartition_reason(local_spark):
        pytest.skip(reason)


def test_a_repartitioning_that_fails_is_told_and_the_query_goes_on(
    local_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise SparkInternalsError("state repartition", "no room")

    monkeypatch.setattr(launching, "repartition_state", fails)
    sink = Collected()
    runtime = launch(local_spark, sums(sink), checkpoint=tmp_path / "c", state_partitions=2)
    finished_batch(runtime.query, 1)
    done = carry_out(runtime, WIDER)["sums"]
    assert done.status == "failed"
    assert "no room" in str(done.reason.facts)
    assert runtime.query_is_active()
    assert runtime.failure() is None
    next_batch(runtime.query)
    assert len(runtime.moves.places()) == 2
    read = stopped(runtime)
    assert final(sink) == expected(read)


def test_a_restart_that_fails_is_the_failure_of_the_run(
    local_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = launch(local_spark, sums(Collected()), checkpoint=tmp_path / "c", state_partitions=2)
    finished_batch(runtime.query, 1)

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("the sink is gone")

    monkeypatch.setattr("penstock.spark.query.compile.CompiledDataflow.start", fails)
    assert carry_out(runtime, WIDER)["sums"].status == "failed"
    assert not runtime.query_is_active()
    assert "the sink is gone" in str(runtime.failure())
    runtime.close()


@pytest.mark.parametrize("written", [True, False], ids=["after its state", "before its state"])
def test_a_kill_in_a_repartitioning_leaves_a_checkpoint_that_the_next_start_brings_to_its_end(
    local_spark: SparkSession, tmp_path: Path, *, written: bool
) -> None:
    """What a kill leaves: the batch is in the log of offsets, not in that of commits, its state is there or not."""
    checkpoint, sink = tmp_path / "c", Collected()
    runtime = launch(local_spark, sums(sink), checkpoint=checkpoint, state_partitions=2)
    finished_batch(runtime.query, 1)
    last = stop_cleanly(local_spark, runtime.query, timeout_s=120)
    runtime.close()
    before = tmp_path / "state"
    shutil.copytree(checkpoint / "state", before)
    repartition_state(local_spark, checkpoint, 4)
    for name in (f"{last + 1}", f".{last + 1}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    if not written:
        shutil.rmtree(checkpoint / "state")
        shutil.copytree(before, checkpoint / "state")
    runtime = launch(local_spark, sums(sink), checkpoint=checkpoint)
    finished_batch(runtime.query, last + 3)
    assert len(runtime.moves.places()) == 4
    read = stopped(runtime)
    assert final(sink) == expected(read)
    assert finish_repartition(local_spark, checkpoint) is None
