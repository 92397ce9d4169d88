"""A loopback cluster starts, is found by other processes, and leaves none behind, whatever happens."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.errors import InputError
from penstock.spark.cluster.loopback import (
    ClusterError,
    ClusterState,
    LoopbackCluster,
    cluster_status,
    read_state,
    stop_cluster,
)
from tests.spark.streams import wait_for

START = """
import sys, time
from pathlib import Path
from typing import Any
from penstock.spark.cluster.loopback import LoopbackCluster
detached = sys.argv[2] == "detached"
LoopbackCluster(workers=1, memory="512m", pin=True, run_dir=Path(sys.argv[1]), detached=detached).start()
if not detached:
    time.sleep(600)
"""


def descendants(state: ClusterState) -> list[psutil.Process]:
    """Return the cluster's processes; a fixed list, so that none can hide by a new parent."""
    return [process for one in state.daemons if (process := one.process())]


def wait_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []


def test_started_and_stopped_by_different_processes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", START, str(tmp_path), "detached"], check=True, timeout=150)
    status = cluster_status(tmp_path)
    assert (status.running, status.workers, status.cores, status.cores_used) == (True, 1, 1, 0)
    state = read_state(tmp_path)
    assert state is not None
    assert state.master_url.startswith("spark://127.0.0.1:")
    processes = descendants(state)
    assert len(processes) == 3
    (worker,) = [one for one in state.daemons if one.role == "worker"]
    assert worker.host == "127.0.0.2"
    assert len(os.sched_getaffinity(worker.pid)) == 1
    with pytest.raises(ClusterError, match="already runs"):
        LoopbackCluster(run_dir=tmp_path).start()
    assert stop_cluster(tmp_path)
    wait_gone(processes)
    assert not cluster_status(tmp_path).running
    assert not stop_cluster(tmp_path)


@pytest.mark.parametrize("victim", ["program", "supervisor"])
def test_kill_minus_nine_leaves_nothing(tmp_path: Path, victim: str) -> None:
    program = subprocess.Popen([sys.executable, "-c", START, str(tmp_path), "attached"])
    try:
        state = wait_for(lambda: read_state(tmp_path), timeout_s=120, what="the state file")
        processes = descendants(state)
        supervisor = next(one.pid for one in state.daemons if one.role == "supervisor")
        os.kill(program.pid if victim == "program" else supervisor, signal.SIGKILL)
        started_s = time.monotonic()
        wait_gone(processes)
        assert time.monotonic() - started_s < 30
    finally:
        program.kill()
        program.wait(10)


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 251}, {"cores": 0}, {"cpus": 1.5}])
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not"):
        LoopbackCluster(**options)


def test_a_strange_state_file_is_said_to_be_strange(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(ClusterError, match="not a cluster's state file"):
        cluster_status(tmp_path)
