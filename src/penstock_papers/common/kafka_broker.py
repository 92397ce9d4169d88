"""A real Kafka broker on this machine: one KRaft node on loopback, its jars from Maven Central.

For trials and tests; it needs `confluent-kafka`, which is among the development dependencies.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.dataflow import Load
from penstock.spark.cluster.jars import resolve
from penstock.spark.cluster.java import find_java
from penstock.spark.cluster.supervisor import bound_to_parent

BROKER = "org.apache.kafka:kafka_2.13:3.9.2"
START_TIMEOUT_S = 90.0


class KafkaBroker:
    """A broker with its files in *folder*, from ``start`` to ``stop``; it dies with this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._controller_port = _free_ports(2)

    @property
    def bootstrap(self) -> str:
        """Return the address for clients."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Return the process of the running broker."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start the broker and return when it answers."""
        properties = self._folder / "server.properties"
        properties.write_text(self._properties())
        # One that begins with a hyphen, as one in 64 would, is taken for an option.
        cluster_id = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        format_log = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
        subprocess.run(self._java(format_log), check=True, capture_output=True, timeout=60)
        with (self._folder / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._java(["kafka.Kafka", str(properties)]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=bound_to_parent(),
            )
        self._await_answer()
        return self

    def stop(self) -> None:
        """End the broker."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(5)
            self._process = None

    def create_topic(self, name: str, *, partitions: int = 3) -> str:
        """Create a topic and return its name, when every partition has a leader."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for done in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            done.result(timeout=30)
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "leaders"})
        deadline_s = time.monotonic() + 30
        while True:
            try:
                for partition in range(partitions):
                    consumer.get_watermark_offsets(TopicPartition(name, partition), 10)
                break
            except KafkaException:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)
        consumer.close()
        return name

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _java(self, arguments: list[str]) -> list[str]:
        classpath = os.pathsep.join(map(str, resolve(BROKER)))
        options = [
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.net.preferIPv4Stack=true",
        ]
        return [find_java().command, *options, "-cp", classpath, *arguments]

    def _properties(self) -> str:
        return "\n".join(
            [
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@127.0.0.1:{self._controller_port}",
                f"listeners=PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}",
                "controller.listener.names=CONTROLLER",
                f"log.dirs={self._folder / 'data'}",
                "offsets.topic.num.partitions=1",
                "offsets.topic.replication.factor=1",
                "transaction.state.log.num.partitions=1",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.min.isr=1",
                "group.initial.rebalance.delay.ms=0",
                "auto.create.topics.enable=false",
            ]
        )

    def _await_answer(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        # librdkafka would log every refused connection until the broker listens
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        while time.monotonic() < deadline_s:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                admin.list_topics(timeout=1)
                return
            except KafkaException:
                time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"no broker: {(self._folder / 'broker.log').read_text()[-2000:]}")


@contextmanager
def feeding(servers: str, loads: Mapping[str, Load]) -> Iterator[float]:
    """Records `{"number": n}` into topics as their loads say, while the block lasts; gives the time it began."""
    stop, producer = threading.Event(), Producer({"bootstrap.servers": servers, "linger.ms": 5})
    began_s = time.time()

    def produce() -> None:
        sent = dict.fromkeys(loads, 0)
        while not stop.wait(0.01):
            for topic, load in loads.items():
                for number in range(sent[topic], int(load.records_until(time.time() - began_s))):
                    producer.produce(topic, json.dumps({"number": number}), key=str(number))
                    sent[topic] = number + 1
            producer.poll(0)

    thread = threading.Thread(target=produce, name="penstock-feed", daemon=True)
    thread.start()
    try:
        yield began_s
    finally:
        stop.set()
        thread.join(10)
        producer.flush(10)


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now, all different because they are held together."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
