"""SIGKILL of a driver with sheds in the middle of a batch: the batch that runs again keeps the same records."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock import staircase
from penstock_papers.common.kafka_broker import KafkaBroker, feeding
from tests.conftest import REPOSITORY
from tests.spark.shed_driver import LAST
from tests.spark.streams import wait_for
from tests.spark.test_driver_kill import committed
from tests.spark.test_field import records_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RECORDS = 6000


def life(number: int, broker: KafkaBroker, topic: str, output: str, folder: Path) -> int:
    command = [sys.executable, "-m", "tests.spark.shed_driver", broker.bootstrap, topic, output, str(folder)]
    with open(folder / f"driver-{number}.log", "wb") as log:
        done = subprocess.run(
            [*command, str(number)], cwd=REPOSITORY, stdout=log, stderr=log, check=False, timeout=400
        )
    return done.returncode


def last_batch(log: Path) -> int:
    return max(int(file.name) for file in log.iterdir() if file.name.isdigit())


def read_in(checkpoint: Path, batch: int) -> set[int]:
    """The records of a batch: the topic has one partition, so an offset is a number."""
    start, end = (
        int(
            next(iter(json.loads((checkpoint / "offsets" / str(b)).read_text().splitlines()[2]).values()))[
                "0"
            ]
        )
        for b in (batch - 1, batch)
    )
    return set(range(start, end))


def written_to(broker: KafkaBroker, topic: str) -> Counter[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Counter[int] = Counter()
    records = records_of(broker, topic)
    while found.total() < records:
        message = consumer.poll(10)
        assert message is not None
        found[json.loads(message.value())["number"]] += 1
    consumer.close()
    return found


def test_the_batch_that_runs_again_keeps_the_same_records_in_every_sink(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    topic = kafka_broker.create_topic("shed-in", partitions=1)
    output = kafka_broker.create_topic("shed-out", partitions=1)
    with feeding(kafka_broker.bootstrap, {topic: staircase([(1, RECORDS), (1000, 0)])}):
        wait_for(lambda: records_of(kafka_broker, topic) == RECORDS, what="the records")
    assert life(1, kafka_broker, topic, output, tmp_path) == -signal.SIGKILL
    assert last_batch(tmp_path / "several.c" / "commits") == LAST - 1
    repeated = {}
    for name in ("kafka", "files"):  # as if killed at the last moment: what the sink has, Spark does not know
        commits = tmp_path / f"{name}.c" / "commits"
        repeated[name] = last_batch(commits)
        offsets, after = tmp_path / f"{name}.c" / "offsets", repeated[name] + 1
        for folder, batch in ((commits, repeated[name]), (offsets, after)):
            (folder / str(batch)).unlink(missing_ok=True)
            (folder / f".{batch}.crc").unlink(missing_ok=True)
    once = written_to(kafka_broker, output)
    assert life(2, kafka_broker, topic, output, tmp_path) == 0, (tmp_path / "driver-2.log").read_text()[
        -3000:
    ]

    for sink in ("first", "second"):
        before, after = (json.loads((tmp_path / f"{sink}-{n}-{LAST}.json").read_text()) for n in (1, 2))
        assert before == after, "several sinks"
        assert 0.3 < len(before) / 200 < 0.7, "half was kept, not all and not a tenth"
        assert len(json.loads((tmp_path / f"{sink}-2-{LAST + 1}.json").read_text())) == 200, (
            "nobody steers now"
        )

    mine, twice = read_in(tmp_path / "kafka.c", repeated["kafka"]), written_to(kafka_broker, output)
    kept = {number for number in mine if once[number]}
    assert 0.3 < len(kept) / len(mine) < 0.7
    assert {number: n for number, n in twice.items() if number in mine} == dict.fromkeys(kept, 2), "Kafka"

    parts = committed(tmp_path / "files")
    found = Counter(json.loads(line)["number"] for part in parts for line in part.read_text().splitlines())
    assert max(found.values()) == 1, "files"
    mine = read_in(tmp_path / "files.c", repeated["files"])
    assert 0.3 < len(mine & found.keys()) / len(mine) < 0.7
