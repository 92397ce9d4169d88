"""Ways across the Py4J gateway that every other file here shares."""

from functools import lru_cache
from itertools import count
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import SparkInternalsError

# A Py4J reply above 8 KB takes 44 ms longer than one below; many small ones are far cheaper.
CHUNK_CHARS = 6000

_names = count(1)

# What the methods of `compiled` may call: `reply` ends one that tells a text, `below` walks a physical plan,
# inside adaptive plans and their stages too.
_SHARED = f"""
private static Object reply(StringBuilder text) {{
    return text.length() <= {CHUNK_CHARS} ? (Object) text.toString() : text;
}}

private static scala.collection.Iterator below(org.apache.spark.sql.execution.SparkPlan node) {{
    if (node instanceof org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec)
        return new scala.Some(
            ((org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec) node).executedPlan()).iterator();
    if (node instanceof org.apache.spark.sql.execution.adaptive.QueryStageExec)
        return new scala.Some(((org.apache.spark.sql.execution.adaptive.QueryStageExec) node).plan()).iterator();
    return node.children().iterator();
}}
"""

_PROGRESS = """
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryProgress;

public Object since(StreamingQuery query, long batch) {
    StreamingQueryProgress[] reports = query.recentProgress();
    int first = reports.length;
    while (first > 0 && reports[first - 1].batchId() > batch) first--;
    StringBuilder lines = new StringBuilder();
    for (int i = first; i < reports.length; i++) lines.append(reports[i].json()).append("\\n");
    return reply(lines);
}
"""

_JSON = """
public Object write(com.fasterxml.jackson.databind.ObjectMapper mapper, Object value) throws Exception {
    return reply(new StringBuilder(mapper.writeValueAsString(value)));
}
"""


def jvm(spark: SparkSession) -> Any:
    """Return the view of the driver's JVM."""
    return spark.sparkContext._jvm


def context(spark: SparkSession) -> Any:
    """Return the JVM's SparkContext. Never call ``env()`` on it: that breaks the Py4J connection."""
    return spark.sparkContext._jsc.sc()


def execution(query: StreamingQuery) -> Any:
    """Return the JVM's StreamExecution behind *query*."""
    return query._jsq.streamingQuery()


def compiled(source: str, *, loader: Any = None) -> Any:
    """Return an object of the driver's JVM with the methods of *source*: Java 8 without lambdas or generics.

    A call through Py4J takes 0.2 ms of CPU here, so a reading that would take a dozen is a loop over there. The
    compiler is the one that Spark has for its generated code; it takes about 30 ms, once per JVM. *loader* is the
    class loader of what the source refers to, if that is not Spark's own.
    """
    if loader is not None:
        return _class(SparkContext._gateway, source + _SHARED, loader=loader).newInstance()
    return _compiled(SparkContext._gateway, source)


def listener(source: str) -> Any:
    """Return a new listener to Spark's events in the driver's JVM, with the methods of *source* (see `compiled`)."""
    return _listener_class(SparkContext._gateway, source).newInstance()


@lru_cache(maxsize=64)
def _compiled(gateway: Any, source: str) -> Any:
    return _class(gateway, source + _SHARED).newInstance()


@lru_cache(maxsize=2)
def _listener_class(gateway: Any, source: str) -> Any:
    return _class(gateway, source, extends="org.apache.spark.scheduler.SparkListener")


def _class(gateway: Any, source: str, *, extends: str | None = None, loader: Any = None) -> Any:
    body = gateway.jvm.org.codehaus.janino.ClassBodyEvaluator()
    # Py4J remembers methods by the name of their class: two classes of one name would get each other's.
    body.setClassName(f"penstock.Compiled{next(_names)}")
    if loader is not None:
        body.setParentClassLoader(loader)
    if extends is not None:
        body.setExtendedClass(gateway.jvm.java.lang.Class.forName(extends))
    body.cook(source)
    return body.getClazz()


def text(reply: Any) -> str:
    """Return the text that a compiled method ended with ``reply``; a long one is fetched in pieces."""
    if isinstance(reply, str):
        return reply
    size = reply.length()
    return "".join(
        reply.substring(start, min(size, start + CHUNK_CHARS)) for start in range(0, size, CHUNK_CHARS)
    )


def lines(reply: Any) -> list[str]:
    """Return the lines of such a text; ``splitlines`` would also part them at what a JSON text may hold."""
    return text(reply).split("\n")[:-1]


def progress_since(query: StreamingQuery, batch_id: int) -> list[str]:
    """Return the progress reports of batches after *batch_id* that Spark still has, as JSON, oldest first."""
    return lines(compiled(_PROGRESS).since(query._jsq, batch_id))


def class_exists(spark: SparkSession, name: str) -> bool:
    """Tell whether the driver's JVM can load the class *name*, without raising across the gateway."""
    resource = name.replace(".", "/") + ".class"
    loader = jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(resource) is not None


def declared_field(target: Any, name: str) -> Any:
    """Return the accessible reflected field *name* of *target*'s class or of a class above it."""
    cls = target.getClass()
    while cls is not None:
        for candidate in cls.getDeclaredFields():
            if candidate.getName() == name:
                candidate.setAccessible(True)
                return candidate
        cls = cls.getSuperclass()
    raise SparkInternalsError("reflection", f"{target.getClass().getName()} has no field {name}")


def json_mapper(spark: SparkSession) -> Any:
    """Return what Spark's REST API writes Java objects with."""
    return jvm(spark).org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()


class JsonReader:
    """Reads a Java object that Spark's REST API can write."""

    def __init__(self, spark: SparkSession) -> None:
        self._mapper = json_mapper(spark)
        self._json = compiled(_JSON)

    def text(self, value: Any) -> str:
        """Return *value* as the REST API would print it."""
        return text(self._json.write(self._mapper, value))
