"""The process that owns a loopback cluster's Java processes: ``python -m penstock.spark.cluster.supervisor``.

Single-threaded on purpose: the kernel ends its children when the thread that started them dies, which is
then the supervisor itself, even by kill -9. In the other direction it ends, and the cluster with it, when
standard input closes (attached), because then the program that started it is gone.
"""

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from penstock.spark.cluster.cpu_limit import CpuLimit

DAEMON_HEAP = "192m"
START_TIMEOUT_S = 90.0
GRACE_S = 8.0
PR_SET_PDEATHSIG = 1

_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_WEB_URL = re.compile(r"Bound MasterWebUI to .*?(http://\S+)")


def main() -> None:
    """Start the cluster described by the first argument, write its state file, keep it until the end."""
    spec = json.loads(sys.argv[1])
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # the wake-up descriptor tells
    run_dir = Path(spec["run_dir"])
    limits: list[CpuLimit] = []
    try:
        state = _start(spec, run_dir, limits)
        partial = run_dir / "cluster.json.partial"
        partial.write_text(json.dumps(state))
        partial.replace(run_dir / "cluster.json")  # readers see a whole file or none
        watched = [wake_read, *([sys.stdin.fileno()] if spec["attached"] else [])]
        select.select(watched, [], [])
    finally:
        _end_all()
        for limit in limits:
            limit.close()
        (run_dir / "cluster.json").unlink(missing_ok=True)


def _start(spec: dict[str, Any], run_dir: Path, limits: list[CpuLimit]) -> dict[str, Any]:
    master, log = _launch(spec, run_dir, "master", 1, ["org.apache.spark.deploy.master.Master"])
    master_url, web_url = _addresses(master, log)
    daemons = [
        _entry("supervisor", "127.0.0.1", os.getpid()),
        _entry("master", "127.0.0.1", master.pid),
    ]
    for index in range(spec["workers"]):
        name, octet = f"worker-{index}", index + 2
        arguments = ["org.apache.spark.deploy.worker.Worker"]
        arguments += ["--cores", str(spec["cores"]), "--memory", spec["memory"]]
        arguments += ["--work-dir", str(run_dir / name), master_url]
        pinned = _processors(index, spec["cores"]) if spec["pin"] else None
        worker, _ = _launch(spec, run_dir, name, octet, arguments, pinned)
        if spec["cpus"] is not None:
            limits.append(CpuLimit(f"penstock-{os.getpid()}-{index}", spec["cpus"]))
            limits[-1].add(worker.pid)  # before it starts executors, which inherit the limit
        daemons.append(_entry("worker", f"127.0.0.{octet}", worker.pid))
    return {
        "master_url": master_url,
        "web_url": web_url,
        "cores": spec["cores"],
        "memory": spec["memory"],
        "daemons": daemons,
    }


def _launch(
    spec: dict[str, Any],
    run_dir: Path,
    name: str,
    octet: int,
    arguments: list[str],
    processors: set[int] | None = None,
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start one Java process on 127.0.0.*octet*; its class comes first in *arguments*."""
    host = f"127.0.0.{octet}"
    environment = os.environ | {
        "SPARK_HOME": str(Path(spec["jars"]).parent),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(run_dir / f"{name}-local"),
        "SPARK_SCALA_VERSION": _scala_version(Path(spec["jars"])),  # else the worker looks for build folders
    }
    class_name, *rest = arguments
    # The daemons do little: a small heap, and no time spent on compiling what runs twice.
    options = [f"-Xmx{DAEMON_HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [spec["java"], *options, "-cp", f"{spec['jars']}/*", class_name]
    command += ["--host", host, "--port", "0", "--webui-port", "0", *rest]
    log = run_dir / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            preexec_fn=bound_to_parent(processors),
        )
    return process, log


def bound_to_parent(processors: set[int] | None = None) -> Callable[[], None]:
    """Return what a child runs first: die with the parent thread, stay on its processors (executors inherit)."""
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if processors:
            os.sched_setaffinity(0, processors)

    return prepare


def _scala_version(jars: Path) -> str:
    """Return the Scala version that the jars are named by."""
    found = next(jars.glob("spark-core_*.jar")).name
    return found.removeprefix("spark-core_").split("-")[0]


def _processors(index: int, cores: int) -> set[int]:
    """Return the processors of worker *index*, dealt out in turn."""
    available = sorted(os.sched_getaffinity(0))
    return {available[(index * cores + core) % len(available)] for core in range(cores)}


def _addresses(master: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    """Return the master's URL and its web address: it chose free ports itself, so nobody can take them."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and master.poll() is None:
        text = log.read_text(errors="replace")
        master_url, web_url = _MASTER_URL.search(text), _WEB_URL.search(text)
        if master_url and web_url:
            return master_url[1], web_url[1]
        time.sleep(0.05)
    raise SystemExit(f"the master did not start: {log.read_text(errors='replace')[-2000:]}")


def _entry(role: str, host: str, pid: int) -> dict[str, Any]:
    return {"role": role, "host": host, "pid": pid, "started_s": psutil.Process(pid).create_time()}


def _group() -> Iterator[psutil.Process]:
    """Yield the other processes of this group: the daemons and the executors they started."""
    own = os.getpgrp()
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.pid != os.getpid() and os.getpgid(process.pid) == own:
                yield process


def _end_all() -> None:
    """Ask the daemons to end (workers then end their executors), and kill what stays."""
    for kill in (False, True):
        members = list(_group())
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill() if kill else process.terminate()
        psutil.wait_procs(members, timeout=GRACE_S)


if __name__ == "__main__":
    main()
