"""Jars from Maven Central, resolved by the Ivy that comes with Spark: nothing else need be installed."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pyspark

from penstock.errors import UserError
from penstock.spark.cluster.java import find_java
from penstock.spark.session import spark_jars

IVY = Path.home() / ".ivy2"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"

# A PySpark can reach PyPI some time before its jars reach Maven Central or a mirror of it. Then the newest of
# these connectors that is not newer than Spark, with the token provider that every mirror has, and the two libraries
# that Spark does not bring itself.
OLDER_CONNECTORS = ("4.2.0", "4.1.3")
OLDER_PARTS = (
    f"{TOKENS}:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


class UnresolvedError(UserError, LookupError):
    """Maven Central does not have this, or cannot be reached."""


@cache
def resolve(coordinate: str, *, transitive: bool = True) -> tuple[Path, ...]:
    """The jars of ``group:artifact:version``, from the cache in the home folder or the network."""
    output = IVY / f"penstock-{os.getpid()}.classpath"
    command = [find_java().command, "-cp", f"{spark_jars()}/*", "org.apache.ivy.Main"]
    command += ["-dependency", *coordinate.split(":"), "-confs", "default", "-cachepath", str(output)]
    command += [] if transitive else ["-notransitive"]
    with _alone():
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0 or not output.exists():
                raise UnresolvedError(
                    f"cannot get {coordinate} from Maven Central: {(done.stdout + done.stderr)[-500:]}"
                )
            return tuple(Path(jar) for jar in output.read_text().strip().split(os.pathsep))
        finally:
            output.unlink(missing_ok=True)


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: on a machine without a cache, Ivys that fill it together break one another's downloads."""
    IVY.mkdir(parents=True, exist_ok=True)
    with (IVY / "penstock.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def kafka_connector_conf() -> dict[str, str]:
    """The settings with which a session has the Kafka connector of its own version, or the nearest older one.

    All jars are in `spark.jars`. PySpark's own settings replace those of the JVM, so a `spark.jars` beside
    `spark.jars.packages` would replace what the packages were resolved to, and executors would lack the connector.
    """
    version = pyspark.__version__
    try:
        jars = resolve(f"{CONNECTOR}:{version}")
    except UnresolvedError:
        nearest = next((v for v in OLDER_CONNECTORS if _numbers(v) <= _numbers(version)), None)
        if nearest is None:
            raise
        parts = (f"{CONNECTOR}:{nearest}", *OLDER_PARTS)
        jars = tuple(jar for part in parts for jar in resolve(part, transitive=False))
    return {"spark.jars": ",".join(map(str, jars))}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
