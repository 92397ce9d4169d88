"""Where the partitions of a query's Kafka sources end, asked of the brokers themselves by the driver's JVM.

The client is one of our own with the source's own options (servers, security, which topics): what it does or does not
get never touches the query.
"""

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import compiled, execution, lines

CAPABILITY = "Kafka end offsets"
SOURCE = "KafkaMicroBatchStream"
ANSWER_MS = 2000

# Against the connector's classes, whose loader is the source's own. Fields by reflection: they are private.
_ENDS = """
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;

private static Object field(Object target, String name) throws Exception {
    for (Class type = target.getClass(); type != null; type = type.getSuperclass()) {
        java.lang.reflect.Field[] fields = type.getDeclaredFields();
        for (int i = 0; i < fields.length; i++) {
            if (fields[i].getName().equals(name) || fields[i].getName().endsWith("$$" + name)) {
                fields[i].setAccessible(true);
                return fields[i].get(target);
            }
        }
    }
    throw new NoSuchFieldException(target.getClass().getName() + " has no " + name);
}

public Object open(Object source) throws Exception {
    Object reader = field(source, "kafkaOffsetReader");
    Object strategy = field(reader, "consumerStrategy");
    Map options = new HashMap((Map) field(reader, "driverKafkaParams"));
    options.put("client.id", "penstock-" + java.util.UUID.randomUUID());
    java.lang.reflect.Method make = strategy.getClass().getMethod("createAdmin", new Class[] {Map.class});
    make.setAccessible(true);
    return new Object[] {make.invoke(strategy, new Object[] {options}), strategy,
        "read_committed".equals(options.get("isolation.level"))
            ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED};
}

public Object ends(Object opened, String partitions, int timeout) throws Exception {
    Object[] parts = (Object[]) opened;
    Map wanted = new HashMap();
    String[] each = partitions.split("\\n");
    for (int i = 0; i < each.length; i++) {
        int at = each[i].lastIndexOf('-');
        wanted.put(new TopicPartition(each[i].substring(0, at), Integer.parseInt(each[i].substring(at + 1))),
            OffsetSpec.latest());
    }
    ListOffsetsOptions options = new ListOffsetsOptions((IsolationLevel) parts[2]);
    options.timeoutMs(Integer.valueOf(timeout));
    Map found = (Map) ((Admin) parts[0]).listOffsets(wanted, options).all()
        .get((long) timeout, java.util.concurrent.TimeUnit.MILLISECONDS);
    StringBuilder lines = new StringBuilder();
    Iterator entries = found.entrySet().iterator();
    while (entries.hasNext()) {
        Map.Entry entry = (Map.Entry) entries.next();
        TopicPartition partition = (TopicPartition) entry.getKey();
        lines.append(partition.topic()).append("-").append(partition.partition()).append("\\t")
            .append(((ListOffsetsResult.ListOffsetsResultInfo) entry.getValue()).offset()).append("\\n");
    }
    return reply(lines);
}

public void close(Object opened) {
    ((Admin) ((Object[]) opened)[0]).close(java.time.Duration.ofMillis(0L));
}
"""


class KafkaEnds:
    """The end offsets of one Kafka source of a query, by partition."""

    def __init__(self, query: StreamingQuery, index: int, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        with reaching(CAPABILITY):
            sources = execution(query).sources()
            source = sources.distinct().apply(index)
            if source.getClass().getSimpleName() != SOURCE:
                raise SparkInternalsError(CAPABILITY, f"{source} is no Kafka source")
            self._jvm = compiled(_ENDS, loader=source.getClass().getClassLoader())
            self._opened: Any = self._jvm.open(source)

    def read(self, partitions: list[str]) -> tuple[float, dict[str, int]]:
        """Return when the broker answered (halfway through the call) and where the partitions end."""
        began_s = self._clock()
        with reaching(CAPABILITY):
            told = lines(self._jvm.ends(self._opened, "\n".join(partitions), ANSWER_MS))
        pairs = (line.rsplit("\t", 1) for line in told)
        return (began_s + self._clock()) / 2, {name: int(offset) for name, offset in pairs}

    def close(self) -> None:
        """Close the client, without waiting for it."""
        with reaching(CAPABILITY):
            self._jvm.close(self._opened)


REST_S = 30.0
"""How long a broker that did not answer is left alone."""


class Brokers:
    """The end offsets of all Kafka sources of one run of a query; a broker that does not answer is asked less often."""

    def __init__(self, query: StreamingQuery, *, clock: Callable[[], float]) -> None:
        self._query, self._clock = query, clock
        self._open: dict[int, KafkaEnds] = {}
        self._rests_until_s: dict[int, float] = {}

    def read(self, index: int, partitions: list[str]) -> tuple[float, dict[str, int]] | None:
        """Return what the broker of one source says; None while it is left alone."""
        if not partitions or time.monotonic() < self._rests_until_s.get(index, 0.0):
            return None
        try:
            if index not in self._open:
                self._open[index] = KafkaEnds(self._query, index, clock=self._clock)
            return self._open[index].read(partitions)
        except SparkInternalsError:
            self._rests_until_s[index] = time.monotonic() + REST_S
            raise

    def close(self) -> None:
        """Close all clients."""
        for one in self._open.values():
            one.close()
        self._open.clear()
