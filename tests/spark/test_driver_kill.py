"""kill -9 of the driver while controls are active: results exact, controls and placement back after the restart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from penstock.control import SqliteJournal
from penstock.spark.cluster.loopback import LoopbackCluster
from tests.conftest import REPOSITORY
from tests.spark.streams import wait_for
from tests.spark.test_runtime import sums_with_one_switch

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


@contextmanager
def driver(master: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.spark.driver", master, str(folder)]
    with open(folder / "driver.log", "ab") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
    try:
        yield process
    finally:
        kill_all(process)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """The Python process and the JVM that is its child: that is what a driver is."""
    if process.poll() is None:
        for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            os.kill(one.pid, signal.SIGKILL)
    process.wait(30)


def confirmed(folder: Path) -> set[str]:
    """The kinds of actions that Spark has shown to be in effect."""
    if not (folder / "journal.sqlite").exists():
        return set()
    with SqliteJournal(folder / "journal.sqlite") as journal:
        return {
            outcome.action.kind
            for run in journal.runs()
            for cycle in journal.cycles(run.id)
            for outcome in cycle.outcomes
            if outcome.status == "applied"
        }


def cycles(folder: Path) -> int:
    with SqliteJournal(folder / "journal.sqlite") as journal:
        return sum(1 for run in journal.runs() for _ in journal.cycles(run.id))


def batches(folder: Path) -> int:
    """Micro-batches that wrote results."""
    return len(list((folder / "out" / "_spark_metadata").glob("[0-9]*")))


def committed(folder: Path) -> set[Path]:
    """The files of batches that ended: what every reader that knows Spark's file sink sees."""
    logs = (log.read_text().splitlines()[1:] for log in (folder / "_spark_metadata").glob("[0-9]*"))
    return {folder / Path(json.loads(line)["path"]).name for log in logs for line in log}


def test_kill_of_the_driver_keeps_results_controls_and_placement(tmp_path: Path) -> None:
    with LoopbackCluster(workers=2, cores=1, memory="1g") as cluster:
        with driver(cluster.master_url, tmp_path) as first:
            wait_for(
                lambda: confirmed(tmp_path) >= {"switch", "move"}, timeout_s=200, what="the switch and moves"
            )
            seen = cycles(tmp_path)
            wait_for(lambda: cycles(tmp_path) > seen + 3, what="batches with them in force")
            kill_all(first)
        known, written = cycles(tmp_path), batches(tmp_path)
        with driver(cluster.master_url, tmp_path) as second:
            wait_for(
                lambda: cycles(tmp_path) > known + 12 and batches(tmp_path) > written + 6,
                timeout_s=200,
                what="the second life",
            )
            second.terminate()
            assert second.wait(240) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    end = json.loads((tmp_path / "end.json").read_text())
    assert end["controls"] == {"alternate:sign": "minus"}
    assert len(set(end["hosts"])) == 1, "all state is back on the executor's host it was moved to"
    rows = [
        json.loads(line) for part in committed(tmp_path / "out") for line in part.read_text().splitlines()
    ]
    final = {row["key"]: (row["count"], row["total"]) for row in sorted(rows, key=lambda row: row["count"])}
    assert len({(row["key"], row["count"]) for row in rows}) == len(rows), "no result was written twice"
    sums_with_one_switch(final, end["read"])
