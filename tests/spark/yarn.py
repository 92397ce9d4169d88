"""A real YARN here: a resource manager and node managers on loopback addresses, from the jars of Maven Central."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pyspark

from penstock.spark.cluster.jars import resolve
from penstock.spark.cluster.java import find_java

JARS = Path(pyspark.__file__).parent / "jars"
SPARKS = (
    "slf4j-api", "log4j-api", "log4j-core", "log4j-1.2-api", "log4j-slf4j2-impl", "jcl-over-slf4j", "jsr305",
    "snappy-java",
)  # fmt: skip
"""Of the jars that come with Spark, those that Hadoop's servers need. Others would be in their way."""
OTHERS = (
    "org.bouncycastle:bcprov-jdk18on:1.82",
    "org.bouncycastle:bcpkix-jdk18on:1.82",
    "org.bouncycastle:bcutil-jdk18on:1.82",
    "commons-logging:commons-logging:1.3.0",
)
OPTIONS = (
    "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
    "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
)  # fmt: skip
START_S = 180.0
CAPACITY = "yarn.scheduler.capacity"
QUEUES = {
    f"{CAPACITY}.root.queues": "default",
    f"{CAPACITY}.root.default.capacity": "100",
    f"{CAPACITY}.maximum-am-resource-percent": "0.5",
    f"{CAPACITY}.resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
    f"{CAPACITY}.node-locality-delay": "-1",
}


@contextmanager
def yarn(nodes: int = 2, *, memory_mb: int = 3072, cores: int = 2) -> Iterator[Path]:
    """Run it; what is given is its configuration folder, for HADOOP_CONF_DIR."""
    version = next(JARS.glob("hadoop-client-api-*.jar")).stem.removeprefix("hadoop-client-api-")
    jars = [jar for name in SPARKS for jar in JARS.glob(f"{name}-[0-9]*.jar")]
    jars += JARS.glob("hadoop-client-*.jar")
    wanted = (f"org.apache.hadoop:hadoop-client-minicluster:{version}", *OTHERS)
    # The servers come first: their jar has its own copies of what the client's jars have.
    jars = [jar for one in wanted for jar in resolve(one, transitive=False)] + jars
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="penstock-yarn-") as folder:
        top = Path(folder)
        web = free_port("127.0.0.1")
        shared = _shared(web)
        _write(top / "conf", {"yarn-site": shared, "core-site": FILES, "capacity-scheduler": QUEUES})
        try:
            processes.append(_start(jars, "resourcemanager.ResourceManager", top))
            for i in range(nodes):
                here = top / f"node{i}"
                _write(
                    here / "conf",
                    {"yarn-site": shared | _node(here, i, memory_mb, cores), "core-site": FILES},
                )
                processes.append(_start(jars, "nodemanager.NodeManager", here))
            _wait(web, nodes, top)
            yield top / "conf"
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


FILES = {"fs.defaultFS": "file:///"}


def _shared(web: int) -> dict[str, str]:
    managers = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
    return {
        **{f"yarn.resourcemanager.{name}": f"127.0.0.1:{free_port('127.0.0.1')}" for name in managers},
        "yarn.resourcemanager.webapp.address": f"127.0.0.1:{web}",
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.resourcemanager.bind-host": "127.0.0.1",
        "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity"
        ".CapacityScheduler",
        "yarn.scheduler.minimum-allocation-mb": "64",
        "yarn.scheduler.maximum-allocation-mb": "4096",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    }


def _node(folder: Path, number: int, memory_mb: int, cores: int) -> dict[str, str]:
    host = f"127.0.0.{number + 2}"
    servers = ("address", "localizer.address", "webapp.address", "collector-service.address")
    return {
        "yarn.nodemanager.hostname": host,
        "yarn.nodemanager.bind-host": host,
        **{f"yarn.nodemanager.{name}": f"{host}:{free_port(host)}" for name in servers},
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.resource.memory-mb": str(memory_mb),
        "yarn.nodemanager.resource.cpu-vcores": str(cores),
        "yarn.nodemanager.container-executor.class": "org.apache.hadoop.yarn.server.nodemanager"
        ".DefaultContainerExecutor",
    }


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


def _write(folder: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    folder.mkdir(parents=True)
    for name, settings in files.items():
        lines = [f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items()]
        text = "\n".join(['<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""])
        (folder / f"{name}.xml").write_text(text)


def _start(jars: list[Path], server: str, folder: Path) -> subprocess.Popen[bytes]:
    path = ":".join(map(str, [folder / "conf", *jars]))
    command = [find_java().command, *OPTIONS, f"-Dyarn.log.dir={folder}", "-cp", path]
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(
            [*command, f"org.apache.hadoop.yarn.server.{server}"],
            stdout=log,
            stderr=log,
            env={"HADOOP_CONF_DIR": str(folder / "conf"), "PATH": "/usr/bin:/bin"},
        )


def _wait(web: int, nodes: int, folder: Path) -> None:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        try:
            with urlopen(f"http://127.0.0.1:{web}/ws/v1/cluster/metrics", timeout=5) as answer:
                if json.load(answer)["clusterMetrics"]["activeNodes"] == nodes:
                    return
        except (OSError, ValueError):
            pass
        time.sleep(0.3)
    logs = "\n".join(log.read_text()[-2000:] for log in sorted(folder.rglob("log")) if log.is_file())
    raise TimeoutError(f"YARN did not start:\n{logs}")
