"""`penstock state`, of a recorded run and of a checkpoint."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from penstock.control import Loop, SqliteJournal
from penstock.telemetry import Tasks
from penstock.testing import FakeClock, RecordingRuntime, a_dataflow, a_snapshot
from tests.cli.running import penstock

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint.tar.gz"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return str(tmp_path / "checkpoint")


def test_a_checkpoint_for_people_and_for_programs(checkpoint: str) -> None:
    told = penstock("state", checkpoint, "--executors", "2", "--partitions", "6")
    assert told.code == 0, told.err
    assert "3 partitions" in told.out
    assert "6 partitions: the fullest of 2 executors has 50%" in told.out
    (operator,) = json.loads(penstock("state", checkpoint, "--executors", "2", "--json").out)["operators"]
    assert operator["rows"] == sum(p["rows"] for p in operator["partitions"])
    assert operator["repartitioned"] is None
    assert operator["fullest_executor_share"] is None, "a checkpoint does not say where its state lives"


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    told = penstock("state", str(tmp_path))
    assert (told.code, told.out) == (2, "")
    assert "no checkpoint" in told.err


def test_a_recorded_run_tells_where_state_lives(tmp_path: Path) -> None:
    tasks = Tasks.blank(
        4,
        operator=1,
        index=range(4),
        node=[0, 0, 0, 1],
        state_rows=[10.0, 10.0, 10.0, 20.0],
        state_bytes=[1e6, 1e6, 1e6, 3e6],
        state_known=True,
    )
    flow, clock, path = a_dataflow(stateful=True), FakeClock(), tmp_path / "runs.sqlite"
    with SqliteJournal(path) as journal:
        runtime = RecordingRuntime(clock, lambda now_s, _: a_snapshot(flow, time_s=now_s, tasks=tasks))
        Loop(runtime, [], clock=clock, journal=journal).run(for_s=10)
    told = penstock("state", "--journal", str(path))
    assert told.code == 0, told.err
    assert "4 partitions, 50 rows, 6 MB, skew 2.00 by bytes (partition 3: 50%)" in told.out
    assert "placed as evenly as its partitions allow: the fullest executor has 50%" in told.out
    (operator,) = json.loads(penstock("state", "last", "--journal", str(path), "--json").out)["operators"]
    assert [p["executor"] for p in operator["partitions"]] == ["n0", "n0", "n0", "n1"]
    assert operator["fullest_executor_share"] == operator["even_placement_share"] == 0.5
