"""A real standalone Spark cluster on this machine: a master and workers, each worker its own host.

A supervisor process owns the Java processes (`supervisor`). It ends them when asked to, when the program
that started it ends in whatever way (attached), and they end when it is killed: no orphans. A state file in
the run directory lets other processes find the cluster.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.request import urlopen

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from penstock.errors import InputError, UserError
from penstock.spark.cluster.java import find_java
from penstock.spark.session import spark_jars

STATE_FILE = "cluster.json"
DEFAULT_RUN_DIR = Path(".penstock") / "cluster"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0


class ClusterError(UserError, RuntimeError):
    """The cluster did not start, or cannot be found."""


class Daemon(BaseModel):
    """A process of the cluster; the start time tells it from a later one with the same id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["supervisor", "master", "worker"]
    host: str
    pid: int
    started_s: float

    def process(self) -> psutil.Process | None:
        """Return the process while it runs."""
        try:
            found = psutil.Process(self.pid)
            same = abs(found.create_time() - self.started_s) < 0.05
            return found if same and found.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


class ClusterState(BaseModel):
    """The state file: what runs and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    master_url: str
    web_url: str
    cores: int
    memory: str
    daemons: tuple[Daemon, ...]


class ClusterStatus(BaseModel):
    """What a look at the cluster found."""

    model_config = ConfigDict(frozen=True)

    running: bool
    master_url: str | None = None
    workers: int = 0
    cores: int = 0
    cores_used: int = 0
    applications: tuple[str, ...] = ()


class LoopbackCluster:
    """A master on 127.0.0.1 and *workers* on 127.0.0.2 and up, from the installed PySpark.

    *memory* is what each worker offers to executors, not what it takes. With *pin*, each worker and its
    executors get processors of their own, in turn; with *cpus*, so many at most, whatever the others use (this needs
    the right to make control groups). *detached* clusters outlive the program that started
    them; without *run_dir* the files are in a temporary folder that goes with the cluster.
    """

    def __init__(
        self,
        *,
        workers: int = 3,
        cores: int = 1,
        memory: str = "1g",
        pin: bool = False,
        cpus: float | None = None,
        run_dir: Path | None = None,
        detached: bool = False,
    ) -> None:
        if not 1 <= workers <= 250:
            raise InputError(f"1 to 250 workers fit on loopback addresses, not {workers}")
        if cores < 1:
            raise InputError(f"a worker needs at least one core, not {cores}")
        if cpus is not None and not 0.05 <= cpus <= cores:
            raise InputError(f"a worker with {cores} core(s) can use 0.05 to {cores} CPUs, not {cpus:g}")
        self._workers, self._cores, self._memory, self._pin = workers, cores, memory, pin
        self._cpus, self._detached = cpus, detached
        self._temporary = None if run_dir else tempfile.TemporaryDirectory(prefix="penstock-cluster-")
        self.run_dir = run_dir or Path(self._temporary.name if self._temporary else ".")
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._state: ClusterState | None = None

    @property
    def master_url(self) -> str:
        """Return ``spark://…`` of the running cluster."""
        if self._state is None:
            raise ClusterError("the cluster was not started")
        return self._state.master_url

    @property
    def state(self) -> ClusterState | None:
        """Return what was started, None before."""
        return self._state

    def start(self) -> Self:
        """Start the cluster and return when every worker has registered."""
        if read_state(self.run_dir) is not None and cluster_status(self.run_dir).running:
            raise ClusterError(f"a cluster already runs from {self.run_dir}")
        self.run_dir.mkdir(parents=True, exist_ok=True)
        (self.run_dir / STATE_FILE).unlink(missing_ok=True)
        spec = {
            "java": find_java().command,
            "jars": str(spark_jars()),
            "run_dir": str(self.run_dir.resolve()),
            "workers": self._workers,
            "cores": self._cores,
            "memory": self._memory,
            "pin": self._pin,
            "cpus": self._cpus,
            "attached": not self._detached,
        }
        command = [sys.executable, "-m", "penstock.spark.cluster.supervisor", json.dumps(spec)]
        with (self.run_dir / "supervisor.log").open("wb") as log:
            self._supervisor = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._state = self._registered()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process of the cluster, executors too; does nothing if none runs."""
        if self._supervisor is not None:
            if self._supervisor.stdin:
                self._supervisor.stdin.close()
            self._supervisor.terminate()
            try:
                self._supervisor.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()  # the kernel then ends its children
                self._supervisor.wait()
            self._supervisor = None
        stop_cluster(self.run_dir)
        self._state = None
        if self._temporary:
            self._temporary.cleanup()

    def status(self) -> ClusterStatus:
        """Return what the master says now."""
        return cluster_status(self.run_dir)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _registered(self) -> ClusterState:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            state = read_state(self.run_dir)
            if state is not None and cluster_status(self.run_dir).workers == self._workers:
                return state
            if self._supervisor is not None and self._supervisor.poll() is not None:
                break
            time.sleep(0.1)
        log = (self.run_dir / "supervisor.log").read_text(errors="replace").strip()
        raise ClusterError(
            f"{self._workers} workers did not register within {START_TIMEOUT_S:g} s: {log[-500:]}"
        )


def read_state(run_dir: Path) -> ClusterState | None:
    """Return the state file of *run_dir*, None if there is none."""
    try:
        return ClusterState.model_validate_json((run_dir / STATE_FILE).read_text())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ClusterError(f"{run_dir / STATE_FILE} is not a cluster's state file: {error}") from error


def cluster_status(run_dir: Path = DEFAULT_RUN_DIR) -> ClusterStatus:
    """Return what the master of the cluster in *run_dir* says now."""
    state = read_state(run_dir)
    if state is None or not any(one.process() for one in state.daemons if one.role == "master"):
        return ClusterStatus(running=False)
    answer: dict[str, Any] = {}
    with contextlib.suppress(OSError), urlopen(f"{state.web_url}/json/", timeout=5) as reply:
        answer = json.load(reply)
    alive = [worker for worker in answer.get("workers", []) if worker["state"] == "ALIVE"]
    return ClusterStatus(
        running=True,
        master_url=state.master_url,
        workers=len(alive),
        cores=sum(worker["cores"] for worker in alive),
        cores_used=sum(worker["coresused"] for worker in alive),
        applications=tuple(app["name"] for app in answer.get("activeapps", [])),
    )


def stop_cluster(run_dir: Path = DEFAULT_RUN_DIR) -> bool:
    """End the cluster of *run_dir*, started by whatever process; True if anything ran."""
    state = read_state(run_dir)
    if state is None:
        return False
    running = {one.role: one for one in state.daemons if one.process()}
    # The supervisor ends the others, and the executors they leave behind, better than we can.
    asked = [running["supervisor"]] if "supervisor" in running else state.daemons
    processes = [process for one in asked if (process := one.process())]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
    _, stubborn = psutil.wait_procs(processes, timeout=STOP_TIMEOUT_S)
    for process in stubborn:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(run_dir / STATE_FILE)
    return bool(running)
