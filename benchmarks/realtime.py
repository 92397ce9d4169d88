"""Real-time mode, Kafka to Kafka: latency at a consumer, and what the loss of an executor costs.

    python benchmarks/realtime.py [--rates 100 1000] [--seconds 20] [--queries map …] [--kill] [--json]

A producer writes the time into each record; a consumer of the result topic takes the difference when it has it. `map`
and `aggregation` are plain queries, `dataflow` is a declared one as `penstock.run(mode="realtime")` starts it; all in
local mode with the settings that Penstock recommends for it, after a pre-flight. With `--kill` the dataflow runs on
a loopback cluster, one executor is killed with SIGKILL, and the records at the sink are counted: what is lost, what
came twice, how long nothing came. Spark promises at least once at a Kafka sink. Exit 1: a mean above 20 ms, or a loss.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from penstock.api.realtime import REALTIME_CONF, run_realtime
from penstock.cli.output import print_json, print_table
from penstock.dataflow import Dataflow, flow
from penstock.dataflow.connectors import kafka, kafka_sink
from penstock.spark.cluster.jars import kafka_connector_conf
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock.spark.realtime import preflight
from penstock.spark.session import create_session
from penstock_papers.common.kafka_broker import KafkaBroker

BATCH_S = 10.0
WARM_S = 10.0
ASKED_MS = 20.0
CONF = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1", **REALTIME_CONF}


class Ends:
    """Produces numbered records at a rate and consumes the results, in one process and so by one clock."""

    def __init__(self, servers: str, inbox: str, outbox: str, rate: int) -> None:
        self._servers, self._inbox, self._outbox, self._rate = servers, inbox, outbox, rate
        self._stop, self.sent = threading.Event(), 0
        self.arrivals: list[tuple[int, float, float]] = []
        """Number, time of arrival, latency in ms."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the block lasts; then what is on its way is waited for."""
        threads = [threading.Thread(target=t, daemon=True) for t in (self._consume, self._produce)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(30)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})
        began_s = time.time()
        while not self._stop.wait(0.002):
            while self.sent < (time.time() - began_s) * self._rate:
                record = {"number": self.sent, "sent": time.time(), "key": self.sent % 100}
                producer.produce(self._inbox, json.dumps(record))
                self.sent += 1
            producer.poll(0)
        producer.flush(10)

    def _consume(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "bench", "fetch.wait.max.ms": 5})
        consumer.assign([TopicPartition(self._outbox, 0, 0)])
        quiet_s = time.time()
        while not self._stop.is_set() or time.time() - quiet_s < 5:
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            quiet_s = time.time()
            value = json.loads(message.value())
            self.arrivals.append((value["number"], quiet_s, 1e3 * (quiet_s - value["sent"])))
        consumer.close()


def records(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """What the producer writes."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    value = sql.from_json(sql.col("value").cast("string"), "number LONG, sent DOUBLE, key LONG")
    return reader.option("subscribe", topic).load().select(value.alias("value")).select("value.*")


def plain(spark: SparkSession, kind: str, servers: str, inbox: str) -> DataFrame:
    """A plain query: each record, or the newest of each key and how many there were."""
    frame = records(spark, servers, inbox)
    if kind == "aggregation":
        frame = frame.groupBy("key").agg(
            sql.max("number").alias("number"), sql.max("sent").alias("sent"), sql.count("*").alias("count")
        )
    return frame.select(sql.to_json(sql.struct("*")).alias("value"))


def declared(servers: str, inbox: str, outbox: str, starting: str = "latest") -> Dataflow:
    """The map as a dataflow."""
    builder = flow("realtime")
    schema = "number long, sent double, key long"
    source = kafka(inbox, servers, value_format="json", schema=schema, starting=starting)  # type: ignore[arg-type]
    doubled = builder.source("in", source).transform("double", doubling)
    doubled.sink("out", kafka_sink(outbox, servers))
    return builder.build()


def doubling(frame: DataFrame) -> DataFrame:
    """Its one operator."""
    return frame.withColumn("twice", sql.col("number") * 2)


def latency(broker: KafkaBroker, spark: SparkSession, kind: str, rate: int, seconds: float) -> dict[str, Any]:
    """One query at one rate."""
    inbox, outbox = (broker.create_topic(f"{end}-{kind}-{rate}", partitions=1) for end in ("inbox", "outbox"))
    ends = Ends(broker.bootstrap, inbox, outbox, rate)
    with tempfile.TemporaryDirectory() as folder, ends.running():
        began_s = time.time()
        if kind == "dataflow":
            flow_ = declared(broker.bootstrap, inbox, outbox)
            found = run_realtime(
                spark,
                flow_,
                checkpoint=Path(folder),
                given=0,
                limit=None,
                batch_s=BATCH_S,
                interval_s=1.0,
                for_s=WARM_S + seconds,
                stop=threading.Event(),
            )
            own = found["latency_ms"].get("mean")
        else:
            frame = plain(spark, kind, broker.bootstrap, inbox)
            checked = preflight(frame, batch_s=BATCH_S)
            assert checked.runs, str(checked)
            writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
            writer = writer.option("topic", outbox).option("checkpointLocation", folder).outputMode("update")
            query = writer.trigger(realTime=f"{BATCH_S:g} seconds").start()  # type: ignore[call-overload]
            while not ends.arrivals:
                assert query.isActive, query.exception()
                time.sleep(0.2)
            time.sleep(WARM_S + seconds)
            query.stop()
            own = None
    first_s = ends.arrivals[0][1] + WARM_S
    late = np.array([ms for _, at_s, ms in ends.arrivals if first_s < at_s < first_s + seconds])
    return {
        "query": kind,
        "rate": rate,
        "results": len(late),
        "mean": float(late.mean()),
        **{f"p{q}": float(np.percentile(late, q)) for q in (50, 95, 99)},
        "by_the_sink": own,
        "first_result_s": ends.arrivals[0][1] - began_s,
    }


def loss(broker: KafkaBroker, rate: int, seconds: float) -> dict[str, Any]:
    """The dataflow on a cluster, an executor of which is killed."""
    inbox, outbox = (broker.create_topic(f"{end}-kill", partitions=1) for end in ("inbox", "outbox"))
    ends = Ends(broker.bootstrap, inbox, outbox, rate)
    with (
        LoopbackCluster(workers=1, cores=1, memory="1g") as cluster,
        tempfile.TemporaryDirectory() as folder,
    ):
        conf = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
        spark = create_session(
            cluster.master_url, "realtime", extra_conf={**kafka_connector_conf(), **CONF, **conf}
        )
        spark.sparkContext.setLogLevel("OFF")
        stop, killed_s = threading.Event(), [0.0]

        def kill() -> None:
            while not ends.arrivals:
                time.sleep(0.2)
            time.sleep(seconds)
            (victim,) = _executors()
            os.kill(victim, signal.SIGKILL)
            killed_s[0] = time.time()
            while not any(at_s > killed_s[0] + 3 for _, at_s, _ in ends.arrivals[-5:]):
                time.sleep(0.2)
            time.sleep(seconds)
            stop.set()

        with ends.running():
            threading.Thread(target=kill, daemon=True).start()
            found = run_realtime(
                spark,
                declared(broker.bootstrap, inbox, outbox, starting="earliest"),
                checkpoint=Path(folder),
                given=1,
                limit=1,
                batch_s=BATCH_S,
                interval_s=1.0,
                for_s=None,
                stop=stop,
            )
            sent = ends.sent
        spark.stop()
    counts = Counter(number for number, _, _ in ends.arrivals)
    last = max(counts)
    before = [at_s for _, at_s, _ in ends.arrivals if at_s < killed_s[0] + 1]
    after = [at_s for _, at_s, _ in ends.arrivals if at_s > killed_s[0] + 1]
    return {
        "sent": sent,
        "arrived": len(counts),
        "lost_before_the_last": last + 1 - len(counts),
        "twice": sum(n - 1 for n in counts.values()),
        "restarts": found["restarts"],
        "pause_s": after[0] - before[-1],
        "failure": found.failure,
    }


def _executors() -> list[int]:
    return [
        p.pid
        for p in psutil.Process().children(recursive=True)
        if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline())
    ]


def main() -> int:
    """Run it, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--queries", nargs="*", default=["map", "aggregation", "dataflow"])
    parser.add_argument("--kill", action="store_true", help="also kill an executor of a cluster, and count")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results, killed = [], None
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder)) as broker:
        if args.queries:
            spark = create_session("local[4]", "realtime", extra_conf={**kafka_connector_conf(), **CONF})
            spark.sparkContext.setLogLevel("OFF")
            for kind in args.queries:
                for rate in args.rates:
                    print(f"{kind}, {rate}/s", file=sys.stderr, flush=True)
                    results.append(latency(broker, spark, kind, rate, args.seconds))
                    print(json.dumps(results[-1]), file=sys.stderr, flush=True)
            spark.stop()
        if args.kill:
            print("an executor is killed", file=sys.stderr, flush=True)
            killed = loss(broker, min(args.rates), args.seconds)
    load = [round(x, 1) for x in psutil.getloadavg()]
    if args.json:
        print_json({"latency_ms": results, "kill": killed, "load_average": load})
    else:
        columns = ["query", "rate", "results", "mean", "p50", "p95", "p99", "by_the_sink", "first_result_s"]
        if results:
            rows = [[r[column] for column in columns] for r in results]
            print_table(f"Latency at a consumer, ms (load average {load})", columns, rows)
        if killed is not None:
            print_table("SIGKILL of the executor of a dataflow", ["", ""], list(killed.items()))
    slow = any(r["mean"] > ASKED_MS for r in results)
    return 1 if slow or (killed is not None and killed["lost_before_the_last"]) else 0


if __name__ == "__main__":
    sys.exit(main())
