"""One run of a Spark query as `StateMoves` and the executor pool see it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.act.ports import Boundary
from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import compiled, lines
from penstock.spark.internals.state import CAPABILITY, StateOperator, StatePartitions

_BOUNDARY = """
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryProgress;

public Object boundary(StreamingQuery query) {
    boolean resting = !query.status().isTriggerActive();
    StreamingQueryProgress report = query.lastProgress();
    Object took = report == null ? null : report.durationMs().get("triggerExecution");
    StringBuilder lines = new StringBuilder();
    lines.append(report == null ? -1L : report.batchId()).append("\\n").append(took == null ? "0" : took.toString())
        .append("\\n").append(resting).append("\\n").append(query.isActive()).append("\\n");
    return reply(lines);
}
"""


class SparkQueryRun:
    """A run of *query*; one that is started again needs a new one."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, *, moves: bool = True) -> None:
        self._query = query
        self._partitions = StatePartitions(spark, query) if moves else None

    def boundary(self) -> Boundary:
        """Where it stands now: one small call."""
        with reaching(CAPABILITY):
            batch, took_ms, resting, active = lines(compiled(_BOUNDARY).boundary(self._query._jsq))
            return Boundary(
                batch=int(batch),
                duration_s=int(took_ms) / 1e3,
                resting=resting == "true",
                active=active == "true",
            )

    def operators(self) -> tuple[StateOperator, ...]:
        """Its stateful operators; none where this Spark cannot move state."""
        return self._partitions.operators() if self._partitions is not None else ()

    def where(self, operator_id: int) -> Mapping[int, str | None]:
        """The executor of each partition."""
        return self._partitions.where(operator_id) if self._partitions is not None else {}

    def move(self, operator_id: int, targets: Mapping[int, tuple[str, str]]) -> None:
        """Make the next batch run partitions on (host, executor)."""
        if self._partitions is not None:
            self._partitions.move(operator_id, targets)
