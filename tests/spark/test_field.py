"""From the laboratory to the field: strangers' queries on a cluster with default settings, through the front door."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock import staircase
from penstock.dataflow import constant
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock_papers.common.kafka_broker import KafkaBroker, feeding
from tests.conftest import REPOSITORY
from tests.spark.streams import wait_for
from tests.spark.test_driver_kill import committed

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(1500)]

SHRINKING = ("moving state", "waiting for .* to leave")
GROWING = ("waiting for .* more", "spreading state")
UNTOUCHED = {"spark.locality.wait": None, "spark.locality.wait.process": None, "spark.penstock.touched": None}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LoopbackCluster]:
    with LoopbackCluster(workers=3, cores=1, memory="1g") as found:
        yield found


class Drive:
    """A driver process and what it left behind."""

    def __init__(
        self, scenario: str, cluster: LoopbackCluster, broker: KafkaBroker, topic: str, folder: Path
    ) -> None:
        self.folder = folder
        for name in ("fed", "report.json", "now.json", "executors", "doing"):
            (folder / name).unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.spark.field_driver", scenario]
        command += [cluster.master_url, broker.bootstrap, topic, str(folder)]
        with open(folder / "driver.log", "ab") as log:
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)

    def signal(self, number: int) -> None:
        """To the Python process and the JVM that is its child: that is what a driver is."""
        for one in [
            *psutil.Process(self.process.pid).children(recursive=True),
            psutil.Process(self.process.pid),
        ]:
            os.kill(one.pid, number)

    def runs_for(self, seconds: float) -> None:
        """Wait, and see that it still runs."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            assert self.process.poll() is None, (self.folder / "driver.log").read_text()[-4000:]
            time.sleep(0.5)

    def now(self) -> dict[str, Any]:
        """What the driver saw lately."""
        file = self.folder / "now.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"cycles": []}
        return found

    def doing(self) -> str:
        """What the pool of executors is about at this moment."""
        assert self.process.poll() is None, (self.folder / "driver.log").read_text()[-4000:]
        file = self.folder / "doing"
        return file.read_text() if file.exists() else ""

    def executors(self) -> int:
        """How many the driver has at this moment."""
        assert self.process.poll() is None, (self.folder / "driver.log").read_text()[-4000:]
        file = self.folder / "executors"
        return int(file.read_text()) if file.exists() else 0

    def report(self, limit_s: float = 400) -> dict[str, Any]:
        """Everything was fed: let it finish, and read what it says."""
        (self.folder / "fed").touch()
        code = self.process.wait(limit_s)
        assert code == 0, (self.folder / "driver.log").read_text()[-4000:]
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return found


@contextmanager
def driving(
    scenario: str, cluster: LoopbackCluster, broker: KafkaBroker, topic: str, folder: Path
) -> Iterator[Drive]:
    drive = Drive(scenario, cluster, broker, topic, folder)
    try:
        yield drive
    finally:
        if drive.process.poll() is None:
            drive.signal(signal.SIGKILL)
            drive.process.wait(30)


def scored(folder: Path) -> list[int]:
    """The numbers in the files of batches that ended."""
    parts = committed(folder)
    return sorted(json.loads(line)["number"] for part in parts for line in part.read_text().splitlines())


def counted(folder: Path) -> tuple[int, int]:
    """(records, their sum) that the newest counts of all buckets add up to."""
    newest: dict[int, tuple[int, int]] = {}
    for file in sorted(folder.glob("*.json"), key=lambda f: int(f.stem)):
        newest |= {bucket: (n, total) for bucket, n, total in json.loads(file.read_text())}
    return sum(n for n, _ in newest.values()), sum(total for _, total in newest.values())


def all_of(records: int) -> tuple[int, int]:
    return records, records * (records - 1) // 2


def records_of(broker: KafkaBroker, topic: str) -> int:
    """Records ever written to a topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "meter"})
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in partitions]
    consumer.close()
    return sum(ends)


def assert_as_before(left: dict[str, Any]) -> None:
    assert left["executors"] == 3
    assert left["target"] in (None, 3), "never asked for, or put back"
    assert left["settings"] == UNTOUCHED


class Tap:
    """A load that is turned while it flows."""

    def __init__(self, rate_rps: float) -> None:
        self.rate_rps, self._before, self._since_s, self._now_s = rate_rps, 0.0, 0.0, 0.0

    def records_until(self, time_s: float) -> float:
        self._now_s = time_s
        return self._before + self.rate_rps * (time_s - self._since_s)

    def turn(self, rate_rps: float) -> None:
        now_s = self._now_s
        self._before, self._since_s = self.records_until(now_s), now_s
        self.rate_rps = rate_rps


def test_readme_as_it_stands(cluster: LoopbackCluster, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    topic, tap = kafka_broker.create_topic("readme"), Tap(20)
    with driving("readme", cluster, kafka_broker, topic, tmp_path) as drive:
        with feeding(kafka_broker.bootstrap, {topic: tap}):
            wait_for(lambda: drive.executors() == 3, timeout_s=120, what="an application of three executors")
            wait_for(
                lambda: 0 < drive.executors() < 3, timeout_s=240, what="fewer executors under little load"
            )
            fewest = drive.executors()
            tap.turn(600)  # of three milliseconds each: more than one core can do, whatever the machine
            wait_for(
                lambda: drive.executors() > fewest, timeout_s=240, what="more executors under a high load"
            )
            tap.turn(20)
            drive.runs_for(10)
        report = drive.report()
    assert_as_before(report["left"])
    assert scored(tmp_path / "orders") == list(range(records_of(kafka_broker, topic))), "every record once"
    assert "held in" in report["report"]


@pytest.mark.slow
def test_two_queries_with_bounds_of_their_own(
    cluster: LoopbackCluster, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create_topic("both")
    with driving("two", cluster, kafka_broker, topic, tmp_path) as drive:
        with feeding(kafka_broker.bootstrap, {topic: constant(40)}):
            drive.runs_for(170)
        report = drive.report()
    rows, records = report["cycles"], records_of(kafka_broker, topic)
    assert report["faults"] == 0
    assert set(rows[-1]["latency"]) == {"orders.latency", "counts.latency"}, "the one started again included"
    for name in ("orders.latency", "counts.latency"):
        seen = [row["latency"][name] for row in rows if name in row["latency"]]
        told = [(latency, bound) for latency, bound in seen if latency is not None]
        assert len(told) >= 8
        # Each begins with a cold batch, and the one started again with what came while it was away.
        assert sum(latency <= bound for latency, bound in told) >= 0.9 * len(told), report["report"]
    assert_as_before(report["left"])
    assert scored(tmp_path / "orders") == list(range(records))
    assert counted(tmp_path / "counts") == all_of(records)


@pytest.mark.slow
def test_a_topic_that_falls_silent_and_comes_back(
    cluster: LoopbackCluster, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, interval_s = kafka_broker.create_topic("silent"), 5.0
    monkeypatch.setenv("FIELD_ATTACH", json.dumps({"interval_s": interval_s, "min_executors": 2}))
    monkeypatch.setenv("FIELD_CONF", json.dumps({"spark.sql.shuffle.partitions": "6"}))
    with driving("watched", cluster, kafka_broker, topic, tmp_path) as drive:
        load = staircase([(90, 60), (60, 0), (60, 60)])
        with feeding(kafka_broker.bootstrap, {topic: load}) as began_s:
            drive.runs_for(210)
        report = drive.report()
    rows = [row for row in report["cycles"] if row["produced_rps"] is not None]
    silent = [row for row in rows if began_s + 90 + 2 * interval_s < row["time_s"] <= began_s + 150]
    assert len(silent) >= 8
    assert all(row["backlog"] == 0 for row in silent)
    assert all(row["produced_rps"] < 6 for row in silent[1:])
    assert all(not any("more" in text for text in row["actions"]) for row in silent), "nothing grew"
    back = [row for row in rows if began_s + 150 + 3 * interval_s < row["time_s"] <= began_s + 205]
    assert len(back) >= 5
    assert all(abs(row["produced_rps"] / 60 - 1) < 0.15 for row in back), back
    assert counted(tmp_path / "counts") == all_of(records_of(kafka_broker, topic))


@pytest.mark.slow
@pytest.mark.parametrize("doing", SHRINKING + GROWING)
def test_sigkill_of_the_pilots_process(
    cluster: LoopbackCluster,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    doing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, tap = kafka_broker.create_topic("killed-" + re.sub(r"\W+", "-", doing)), Tap(20)
    monkeypatch.setenv("FIELD_CONF", json.dumps({"spark.sql.shuffle.partitions": "6"}))
    monkeypatch.setenv("FIELD_ATTACH", json.dumps({"interval_s": 2.0, "latency_ms": 8000}))
    with feeding(kafka_broker.bootstrap, {topic: tap}):
        with driving("watched", cluster, kafka_broker, topic, tmp_path) as drive:
            wait_for(lambda: drive.executors() == 3, timeout_s=120, what="an application of three executors")
            if doing in GROWING:
                wait_for(lambda: 0 < drive.executors() < 3, timeout_s=240, what="fewer executors")
                tap.turn(300)
            wait_for(lambda: re.match(doing, drive.doing()), timeout_s=240, what=f"'{doing}'")
            drive.signal(signal.SIGKILL)
            drive.process.wait(30)
            tap.turn(20)
        with driving("alone", cluster, kafka_broker, topic, tmp_path) as second:
            before = records_written(tmp_path)
            wait_for(lambda: records_written(tmp_path) > before, what="a second life")
    with driving("alone", cluster, kafka_broker, topic, tmp_path) as second:
        report = second.report()
    assert report["seen"][-1][1] == 3
    assert counted(tmp_path / "counts") == all_of(records_of(kafka_broker, topic))


def records_written(folder: Path) -> int:
    return counted(folder / "counts")[0]


@pytest.mark.slow
def test_a_driver_frozen_for_a_minute(
    cluster: LoopbackCluster, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_broker.create_topic("frozen")
    monkeypatch.setenv("FIELD_CONF", json.dumps({"spark.sql.shuffle.partitions": "6"}))
    with driving("watched", cluster, kafka_broker, topic, tmp_path) as drive:
        with feeding(kafka_broker.bootstrap, {topic: constant(60)}):
            wait_for(lambda: len(drive.now()["cycles"]) > 6, timeout_s=120, what="some cycles")
            drive.signal(signal.SIGSTOP)
            time.sleep(60)
            drive.signal(signal.SIGCONT)
            time.sleep(60)
        report = drive.report()
    rates = [row["produced_rps"] for row in report["cycles"] if row["produced_rps"] is not None]
    assert max(rates) < 2 * 60, "what came meanwhile came in a minute, not at once"
    assert_as_before(report["left"])
    assert counted(tmp_path / "counts") == all_of(records_of(kafka_broker, topic))


@pytest.mark.slow
def test_batches_of_two_minutes(
    cluster: LoopbackCluster, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_broker.create_topic("long")
    monkeypatch.setenv("FIELD_CONF", json.dumps({"spark.sql.shuffle.partitions": "6"}))
    monkeypatch.setenv("FIELD_ATTACH", json.dumps({"latency_ms": 600_000, "interval_s": 5.0}))
    backlog = 200_000  # about a millisecond and a half each, on two cores that have nothing else to do
    tap = Tap(30_000)
    with feeding(kafka_broker.bootstrap, {topic: tap}):
        wait_for(lambda: records_of(kafka_broker, topic) >= backlog, what="the backlog")
        tap.turn(20)
        with driving("watched", cluster, kafka_broker, topic, tmp_path) as drive:
            wait_for(lambda: records_written(tmp_path) >= backlog, timeout_s=600, what="the long batch")
            in_it = drive.now()["cycles"]
            wait_for(lambda: len(list((tmp_path / "counts").glob("*.json"))) >= 6, timeout_s=300, what="more")
            tap.turn(0)
            report = drive.report()
    assert in_it[-1]["time_s"] - in_it[0]["time_s"] > 110, "it was long"
    assert not any(row["actions"] for row in in_it), "nothing is decided from a batch that has not ended"
    assert_as_before(report["left"])
    assert counted(tmp_path / "counts") == all_of(records_of(kafka_broker, topic))
