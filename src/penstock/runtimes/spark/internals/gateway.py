"""Ways across the Py4J gateway that every other file here shares."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.runtimes.spark.internals.errors import SparkInternalsError

# A Py4J reply above 8 KB takes 44 ms longer than one below; many small ones are far cheaper.
CHUNK_CHARS = 6000


def jvm(spark: SparkSession) -> Any:
    """Return the view of the driver's JVM."""
    return spark.sparkContext._jvm


def context(spark: SparkSession) -> Any:
    """Return the JVM's SparkContext. Never call ``env()`` on it: that breaks the Py4J connection."""
    return spark.sparkContext._jsc.sc()


def execution(query: StreamingQuery) -> Any:
    """Return the JVM's StreamExecution behind *query*."""
    return query._jsq.streamingQuery()


def recent_progress(query: StreamingQuery, count: int) -> list[str]:
    """Return the newest *count* progress reports as JSON, oldest first; reading all that Spark keeps takes 60 ms."""
    reports = query._jsq.recentProgress()
    return [reports[i].json() for i in range(max(0, len(reports) - count), len(reports))]


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


def children(node: Any) -> list[Any]:
    """Return the physical nodes right below *node*, inside adaptive plans and their stages too."""
    kind = node.getClass().getSimpleName()
    if kind == "AdaptiveSparkPlanExec":
        return [node.executedPlan()]
    if kind.endswith("QueryStageExec"):
        return [node.plan()]
    below = node.children()
    return [below.apply(i) for i in range(below.size())]


def plan_nodes(plan: Any) -> Iterator[Any]:
    """Yield *plan* and every physical node below it."""
    todo = [plan]
    while todo:
        node = todo.pop()
        yield node
        todo += children(node)


class JsonReader:
    """Reads a Java object that Spark's REST API can write, in small replies."""

    def __init__(self, spark: SparkSession) -> None:
        view = jvm(spark)
        self._mapper = view.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        self._writer = view.java.io.StringWriter

    def text(self, value: Any) -> str:
        """Return *value* as the REST API would print it."""
        writer = self._writer()
        self._mapper.writeValue(writer, value)
        buffer = writer.getBuffer()
        size = buffer.length()
        return "".join(
            buffer.substring(start, min(size, start + CHUNK_CHARS)) for start in range(0, size, CHUNK_CHARS)
        )
