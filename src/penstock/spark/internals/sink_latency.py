"""How late results are, read from the Kafka topic that a query writes to, by a consumer in the driver's JVM.

Real-time mode reports once per batch and nothing about records. A result that carries the time of its record
(`source_time`, in a JSON value) tells its own latency: the time that Kafka has of it, less that.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import compiled, execution, text

CAPABILITY = "latency at the sink"
READ_MS = 500

_CONSUMER = """
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public Object open(java.util.Map options, String topic) {
    KafkaConsumer consumer =
        new KafkaConsumer(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    List all = new ArrayList();
    Iterator each = consumer.partitionsFor(topic).iterator();
    while (each.hasNext()) all.add(new TopicPartition(topic, ((PartitionInfo) each.next()).partition()));
    consumer.assign(all);
    consumer.seekToEnd(all);
    each = all.iterator();
    while (each.hasNext()) consumer.position((TopicPartition) each.next());
    return consumer;
}

// Milliseconds of each result since the last call; a result without the time of its record has none.
public Object read(Object opened, String column, int most) {
    KafkaConsumer consumer = (KafkaConsumer) opened;
    String mark = "\\"" + column + "\\":\\"";
    StringBuilder found = new StringBuilder();
    long end = System.currentTimeMillis() + most;
    while (System.currentTimeMillis() < end) {
        ConsumerRecords records = consumer.poll(java.time.Duration.ofMillis(50L));
        if (records.isEmpty()) break;
        Iterator each = records.iterator();
        while (each.hasNext()) {
            ConsumerRecord record = (ConsumerRecord) each.next();
            String value = record.value() == null ? ""
                : new String((byte[]) record.value(), java.nio.charset.StandardCharsets.UTF_8);
            int at = value.indexOf(mark);
            int close = at < 0 ? -1 : value.indexOf('"', at + mark.length());
            if (close >= 0)
                found.append(record.timestamp() - java.time.OffsetDateTime
                    .parse(value.substring(at + mark.length(), close)).toInstant().toEpochMilli());
            found.append(",");
        }
    }
    return reply(found);
}

public void close(Object opened) {
    ((KafkaConsumer) opened).close(java.time.Duration.ofMillis(0L));
}
"""


class SinkLatency:
    """The latencies of what *query* writes to *topic* from now on; *options* are the sink's own for Kafka."""

    def __init__(self, query: StreamingQuery, topic: str, options: Mapping[str, str], *, column: str) -> None:
        self._column = column
        given = {name.removeprefix("kafka."): value for name, value in options.items()}
        own = ("key.serializer", "value.serializer", "linger.ms", "acks", "batch.size", "compression.type")
        given = {name: value for name, value in given.items() if name not in own}
        with reaching(CAPABILITY):
            loader = execution(query).sink().getClass().getClassLoader()
            self._jvm = compiled(_CONSUMER, loader=loader)
            self._opened = self._jvm.open({**given, "enable.auto.commit": "false"}, topic)

    def read(self) -> tuple[int, NDArray[np.float64]]:
        """Return how many results came since the last call, and the milliseconds of those that tell."""
        with reaching(CAPABILITY):
            told = text(self._jvm.read(self._opened, self._column, READ_MS)).split(",")[:-1]
        return len(told), np.array([float(one) for one in told if one], np.float64)

    def close(self) -> None:
        """Close the consumer."""
        with reaching(CAPABILITY):
            self._jvm.close(self._opened)
