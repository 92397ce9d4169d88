"""What Spark would run if a streaming query were in real-time mode: read from its plan, without starting it.

The plan is the one that `explain` makes, with the operators that real-time mode has in place of those of micro-batches.
What is allowed is asked of Spark's own lists and checks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import compiled, execution, lines

CAPABILITY = "real-time mode"

_PLAN = """
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.physical.RangePartitioning;
import org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker$;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.execution.CommandExecutionMode$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.streaming.runtime.RealTimeModeAllowlist$;
import org.apache.spark.sql.streaming.OutputMode;

private static boolean allowed(String list, String name) throws Exception {
    java.lang.reflect.Method names = RealTimeModeAllowlist$.class.getDeclaredMethod(list, new Class[0]);
    names.setAccessible(true);
    return ((scala.collection.immutable.Set) names.invoke(RealTimeModeAllowlist$.MODULE$, new Object[0]))
        .contains(name);
}

private static String line(String text) {
    String flat = text.replaceAll("\\\\s+", " ");
    return flat.length() > 600 ? flat.substring(0, 600) : flat;
}

public Object sink(String name) throws Exception {
    return Boolean.valueOf(allowed("allowedSinks", name));
}

public Object read(org.apache.spark.sql.classic.SparkSession session, LogicalPlan plan) throws Exception {
    StringBuilder lines = new StringBuilder();
    scala.collection.Iterator leaves = plan.collectLeaves().iterator();
    java.util.List seen = new java.util.ArrayList();
    while (leaves.hasNext()) {
        LogicalPlan leaf = (LogicalPlan) leaves.next();
        if (!leaf.isStreaming()) continue;
        String name = leaf instanceof StreamingRelationV2 ? ((StreamingRelationV2) leaf).sourceName()
            : leaf.getClass().getSimpleName();
        lines.append("source\\t").append(line(name)).append("\\t").append(leaf instanceof StreamingRelationV2)
            .append("\\t").append(seen.contains(leaf)).append("\\t").append(line(leaf.simpleString(25))).append("\\n");
        seen.add(leaf);
    }
    // Spark checks the same when a query is started, and stops at the first.
    try {
        UnsupportedOperationChecker$.MODULE$.checkAdditionalRealTimeModeConstraints(plan, OutputMode.Update());
        UnsupportedOperationChecker$.MODULE$.checkForStreaming(plan, OutputMode.Update());
    } catch (Throwable found) {
        String message = String.valueOf(found.getMessage());
        lines.append("shape\\t").append(line(message.split("\\n")[0])).append("\\n");
        return reply(lines);
    }
    org.apache.spark.sql.classic.SparkSession own = session.cloneSession();
    own.conf().set("spark.sql.adaptive.enabled", "false");
    own.conf().set("spark.sql.streaming.useStreamlineAggregator", "true");
    SparkPlan root = own.sessionState().executePlan(plan, CommandExecutionMode$.MODULE$.ALL())
        .queryExecutionForExplain().executedPlan();
    nodes(root, lines);
    return reply(lines);
}

// Tells the nodes above a streaming source and whether there is one.
private static boolean nodes(SparkPlan node, StringBuilder lines) throws Exception {
    if (node.getClass().getSimpleName().equals("StreamingRelationExec")) return true;
    boolean streaming = false;
    scala.collection.Iterator children = node.children().iterator();
    while (children.hasNext()) streaming |= nodes((SparkPlan) children.next(), lines);
    if (!streaming) return false;
    int partitions = 0;
    boolean ranges = false;
    if (node instanceof ShuffleExchangeExec) {
        partitions = ((ShuffleExchangeExec) node).outputPartitioning().numPartitions();
        ranges = ((ShuffleExchangeExec) node).outputPartitioning() instanceof RangePartitioning;
    }
    String name = node.getClass().getName();
    lines.append("node\\t").append(ranges ? "RangeExchange" : node.getClass().getSimpleName()).append("\\t")
        .append(allowed("allowedOperators", name) && !ranges).append("\\t").append(partitions).append("\\t")
        .append(line(node.simpleString(25))).append("\\n");
    return true;
}

// Partitions of the Kafka topics that a query is going to read, asked of the broker.
public Object partitions(LogicalPlan plan, String folder) throws Exception {
    int total = 0;
    scala.collection.Iterator leaves = plan.collectLeaves().iterator();
    while (leaves.hasNext()) {
        LogicalPlan leaf = (LogicalPlan) leaves.next();
        if (!leaf.isStreaming()) continue;
        StreamingRelationV2 relation = (StreamingRelationV2) leaf;
        Object stream = ((org.apache.spark.sql.connector.catalog.SupportsRead) relation.table())
            .newScanBuilder(relation.extraOptions()).build().toMicroBatchStream(folder);
        try {
            Object reader = null;
            java.lang.reflect.Field[] fields = stream.getClass().getDeclaredFields();
            for (int i = 0; i < fields.length; i++) {
                if (!fields[i].getName().endsWith("kafkaOffsetReader")) continue;
                fields[i].setAccessible(true);
                reader = fields[i].get(stream);
            }
            java.lang.reflect.Method ask = reader.getClass().getMethod(
                "fetchLatestOffsets", new Class[] {scala.Option.class});
            ask.setAccessible(true);
            total += ((scala.collection.Map) ask.invoke(reader, new Object[] {scala.Option.empty()})).size();
        } finally {
            ((org.apache.spark.sql.connector.read.streaming.MicroBatchStream) stream).stop();
        }
    }
    return Integer.valueOf(total);
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSource:
    """A streaming source of the plan."""

    name: str
    """Spark's name of its kind; of a source of the old interface that of its node."""
    is_new: bool
    """Whether it has the interface that real-time mode asks for."""
    repeated: bool
    """Whether the same source stands in the plan before."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNode:
    """A physical operator that the stream goes through."""

    name: str
    allowed: bool
    partitions: int
    """Of the shuffle that it is; 0: none."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTimePlan:
    """A query as real-time mode would run it."""

    sources: tuple[PlannedSource, ...]
    nodes: tuple[PlannedNode, ...]
    """From the sources to the sink; none where the query has a shape that Spark refuses."""
    refused: str | None
    """What Spark says of the query's shape in update mode."""

    @property
    def shuffle_partitions(self) -> int:
        """Tasks behind its shuffles, which all run at once."""
        return sum(node.partitions for node in self.nodes)


def plan_of(session: SparkSession, logical: Any) -> RealTimePlan:
    """Return what Spark would run for an analysed plan of `frame_plan` or `query_plan`."""
    with reaching(CAPABILITY):
        told = [line.split("\t") for line in lines(compiled(_PLAN).read(session._jsparkSession, logical))]
    return RealTimePlan(
        sources=tuple(_sources(told)),
        nodes=tuple(
            PlannedNode(name=name, allowed=allowed == "true", partitions=int(partitions), detail=detail)
            for kind, name, allowed, partitions, detail in (row for row in told if row[0] == "node")
        ),
        refused=next((row[1] for row in told if row[0] == "shape"), None),
    )


def _sources(told: list[list[str]]) -> Iterator[PlannedSource]:
    for row in told:
        if row[0] == "source":
            name, new, repeated, detail = row[1:]
            yield PlannedSource(name=name, is_new=new == "true", repeated=repeated == "true", detail=detail)


def frame_plan(frame: DataFrame) -> Any:
    """Return the analysed plan of a streaming DataFrame."""
    with reaching(CAPABILITY):
        return frame._jdf.queryExecution().analyzed()


def query_plan(query: StreamingQuery) -> Any:
    """Return the analysed plan of a running query."""
    with reaching(CAPABILITY):
        return execution(query).analyzedPlan()


def allows_sink(name: str) -> bool:
    """Tell whether Spark has the class *name* among the sinks of real-time mode."""
    with reaching(CAPABILITY):
        return bool(compiled(_PLAN).sink(name))


def topic_partitions(logical: Any, folder: str) -> int:
    """Return how many partitions the Kafka topics of a plan have; *folder* is where a checkpoint might be."""
    with reaching(CAPABILITY):
        return int(compiled(_PLAN).partitions(logical, folder))
