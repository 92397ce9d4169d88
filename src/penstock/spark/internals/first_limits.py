"""A read limit for the first batch of a query that is started again: what waits then is most of all there ever is.

A pilot sees a new run only when it looks; its first batch has read everything by then. So a thread of the driver's JVM
looks every few milliseconds for new runs of queries that were limited before, and limits them as soon as Spark knows
their sources. Sources with a limit of their own are left alone.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import compiled

CAPABILITY = "read limits"

_WATCH = """
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;

private final java.util.Map wanted = new java.util.concurrent.ConcurrentHashMap();
private final java.util.Map limited = new java.util.concurrent.ConcurrentHashMap();
private final java.util.Set seen = new java.util.HashSet();
private volatile boolean ended = false;

public void begin(final org.apache.spark.sql.internal.SharedState state) {
    Thread watch = new Thread(new Runnable() {
        public void run() {
            while (!ended) {
                try {
                    look(state);
                    Thread.sleep(5);
                } catch (InterruptedException stop) {
                    return;
                } catch (Throwable problem) {
                    ended = true;
                }
            }
        }
    }, "penstock-first-limits");
    watch.setDaemon(true);
    watch.start();
}

public void want(String query, String rows) {
    if (rows.isEmpty()) wanted.remove(query); else wanted.put(query, rows.split(","));
}

private void look(org.apache.spark.sql.internal.SharedState state) {
    java.util.Iterator each = state.activeStreamingQueries().values().iterator();
    while (each.hasNext()) {
        StreamExecution query = (StreamExecution) each.next();
        String run = query.runId().toString();
        if (seen.contains(run) || query.uniqueSources().isEmpty()) continue;
        seen.add(run);
        String[] rows = (String[]) wanted.get(query.id().toString());
        if (rows != null && query instanceof MicroBatchExecution) limit(query, run, rows);
    }
}

private void limit(StreamExecution query, String run, String[] rows) {
    scala.collection.immutable.Map before = query.uniqueSources();
    scala.collection.SeqOps sources = (scala.collection.SeqOps) query.sources().distinct();
    if (sources.size() != rows.length) return;
    java.util.Map after = new java.util.HashMap();
    String told = "";
    for (int i = 0; i < rows.length; i++) {
        Object source = sources.apply(i);
        Object limit = before.get(source).get();
        long most = Long.parseLong(rows[i]);
        boolean free = limit instanceof ReadAllAvailable
            && source.getClass().getSimpleName().equals("KafkaMicroBatchStream");
        after.put(source, free && most > 0 ? ReadLimit.maxRows(most) : limit);
        told += (i > 0 ? "," : "") + (free && most > 0 ? rows[i] : "0");
    }
    limited.put(run, new Object[] {query, before, told});
    query.uniqueSources_$eq(org.apache.spark.api.python.PythonUtils.toScalaMap(after));
}

public String take(String run) {
    Object[] found = (Object[]) limited.remove(run);
    return found == null ? "" : (String) found[2];
}

public void end() {
    ended = true;
    java.util.Iterator each = limited.values().iterator();
    while (each.hasNext()) {
        Object[] found = (Object[]) each.next();
        ((StreamExecution) found[0]).uniqueSources_$eq((scala.collection.immutable.Map) found[1]);
    }
    limited.clear();
}
"""


class FirstLimits:
    """Watches for new runs of queries, until it is closed; then runs that nobody has taken over are as before."""

    def __init__(self, spark: SparkSession) -> None:
        self._wanted: dict[str, str] = {}
        with reaching(CAPABILITY):
            # One for each pilot: those before may still be ending.
            self._watch: Any = compiled(_WATCH).getClass().newInstance()
            self._watch.begin(spark._jsparkSession.sharedState())

    def want(self, query_id: str, rows: Sequence[int]) -> None:
        """Limit the first batch of the next run of a query: records of each source, 0: all there are."""
        told = ",".join(str(count) for count in rows) if any(rows) else ""
        if self._wanted.get(query_id, "") != told:
            with reaching(CAPABILITY):
                self._watch.want(query_id, told)
            self._wanted[query_id] = told

    def take(self, run_id: str) -> tuple[int, ...]:
        """Take over a run: the limits that were set at its start, 0 where none was; empty where nothing was set."""
        with reaching(CAPABILITY):
            told = self._watch.take(run_id)
        return tuple(int(count) for count in told.split(",")) if told else ()

    def close(self) -> None:
        """Watch no longer."""
        with reaching(CAPABILITY):
            self._watch.end()
