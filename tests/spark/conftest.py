"""Real Spark for the tests of this folder.

A Python process can hold one SparkContext at a time, so there are two sessions, used one after the other:
tests are ordered by what they ask for, first those with `local_spark`, then those with `cluster_spark`,
which ends the local session. A test may ask for one of them, not both. The connector for Kafka is part of
both because jars are given when the JVM starts, and the JVM is shared.

Streaming queries that a test leaves running are stopped after it.
"""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.spark.cluster.jars import kafka_connector_conf
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock.spark.session import create_session
from penstock_papers.common.kafka_broker import KafkaBroker
from tests.conftest import REPOSITORY

FOLDER = os.path.dirname(__file__)
SESSIONS = ("local_spark", "cluster_spark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def group(item: pytest.Item) -> int:
        asked = [name for name in SESSIONS if name in getattr(item, "fixturenames", ())]
        if len(asked) > 1:
            raise pytest.UsageError(f"{item.nodeid} asks for {' and '.join(asked)}; only one can run")
        return 1 + SESSIONS.index(asked[0]) if asked else 0

    # A conftest sees the tests of every folder; those elsewhere keep their places.
    places = [index for index, item in enumerate(items) if str(item.path).startswith(FOLDER + os.sep)]
    ours = sorted((items[index] for index in places), key=group)
    for index, item in zip(places, ours, strict=True):
        items[index] = item
        if group(item):
            item.add_marker(pytest.mark.spark)
        if "loopback_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


def _conf(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("spark")
    return {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "3",
        **kafka_connector_conf(),
    }


@pytest.fixture(scope="session")
def local_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two local threads."""
    spark = create_session("local[2]", "penstock-tests", extra_conf=_conf(tmp_path_factory))
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def loopback_cluster() -> Iterator[LoopbackCluster]:
    """A standalone cluster: three workers with a core each."""
    with LoopbackCluster(workers=3, cores=1, memory="1g") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster_spark(
    loopback_cluster: LoopbackCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session with three executors of one core; a test that changes their number puts it back."""
    previous = SparkSession.getActiveSession()
    if previous is not None:
        previous.stop()
    conf = _conf(tmp_path_factory) | {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        # Executors start elsewhere, and functions of the tests are pickled by name.
        "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        # A move is honoured when this exceeds the time of a task, on however busy a machine.
        "spark.locality.wait": "10s",
    }
    spark = create_session(loopback_cluster.master_url, "penstock-tests", extra_conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture(autouse=True)
def _stop_queries(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in SESSIONS:
        if name in request.fixturenames:
            for query in request.getfixturevalue(name).streams.active:
                query.stop()


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker on loopback."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
