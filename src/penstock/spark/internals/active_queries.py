"""All streaming queries of an application, whichever session they were started in."""

from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import compiled, context, jvm, lines

CAPABILITY = "active queries"
WRAPPER = "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper"

_QUERIES = """
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;

public Object active(org.apache.spark.sql.internal.SharedState state) {
    StringBuilder lines = new StringBuilder();
    java.util.Iterator each = state.activeStreamingQueries().values().iterator();
    while (each.hasNext()) {
        StreamExecution query = (StreamExecution) each.next();
        String name = query.name() == null ? "" : query.name().replaceAll("\\\\s+", " ");
        lines.append(query.runId()).append("\\t").append(query.id()).append("\\t")
            .append(query.getClass().getSimpleName()).append("\\t")
            .append(query.trigger().getClass().getSimpleName()).append("\\t").append(name).append("\\n");
    }
    return reply(lines);
}

public StreamExecution found(org.apache.spark.sql.internal.SharedState state, String id, String run) {
    StreamExecution query = (StreamExecution) state.activeStreamingQueries().get(java.util.UUID.fromString(id));
    return query != null && query.runId().toString().equals(run) ? query : null;
}
"""

Trigger = Literal["interval", "available-now", "once", "continuous", "real-time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveQuery:
    """One run of a query: who it is and how it is triggered."""

    run_id: str
    id: str
    name: str | None
    trigger: Trigger

    @property
    def key(self) -> str:
        """What stays the same when it is started again: its name, or the id of its checkpoint."""
        return self.name or self.id[:8]


class ActiveQueries:
    """Reads which queries of *spark*'s application run: one call, a millisecond."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        with reaching(CAPABILITY):
            self._state, self._context = spark._jsparkSession.sharedState(), context(spark)
            self._jvm = compiled(_QUERIES)

    def list(self) -> tuple[ActiveQuery, ...]:
        """Return the queries that run now."""
        with reaching(CAPABILITY):
            return tuple(_query(line) for line in lines(self._jvm.active(self._state)))

    def open(self, query: ActiveQuery) -> tuple[SparkSession, StreamingQuery] | None:
        """Return a running query with its own session, None if it has ended meanwhile."""
        with reaching(CAPABILITY):
            found = self._jvm.found(self._state, query.id, query.run_id)
            if found is None:
                return None
            wrapper: Any = jvm(self._spark)
            for part in WRAPPER.split("."):
                wrapper = getattr(wrapper, part)
            return session_of(self._spark, found.sparkSession()), StreamingQuery(wrapper(found))

    def is_stopped(self) -> bool:
        """Tell whether the application has ended."""
        sc = self._spark.sparkContext
        if sc._jsc is None:
            return True
        with reaching(CAPABILITY):
            return bool(self._context.isStopped())


def session_of(spark: SparkSession, jsession: Any) -> SparkSession:
    """Return a JVM session as Python's. Its constructor is left out: it would change the default session."""
    session = SparkSession.__new__(SparkSession)
    sc = spark.sparkContext
    session._sc, session._jsc, session._jvm, session._jsparkSession = sc, sc._jsc, sc._jvm, jsession
    return session


def _query(line: str) -> ActiveQuery:
    run_id, id_, kind, trigger, name = line.split("\t")
    return ActiveQuery(run_id=run_id, id=id_, name=name or None, trigger=_trigger(kind, trigger))


def _trigger(execution: str, trigger: str) -> Trigger:
    if execution == "ContinuousExecution" or trigger.startswith("Continuous"):
        return "continuous"
    if trigger.startswith("RealTime"):
        return "real-time"
    if trigger.startswith("AvailableNow"):
        return "available-now"
    return "once" if trigger.startswith("OneTime") else "interval"
