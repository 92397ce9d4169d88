"""One run of a Spark query as `StateMoves` and the executor pool see it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.act.ports import Boundary
from penstock.spark.internals.errors import reaching
from penstock.spark.internals.state import CAPABILITY, StateOperator, StatePartitions


class SparkQueryRun:
    """A run of *query*; one that is started again needs a new one."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, *, moves: bool = True) -> None:
        self._query = query
        self._partitions = StatePartitions(spark, query) if moves else None

    def boundary(self) -> Boundary:
        """Where it stands now: two small calls."""
        with reaching(CAPABILITY):
            status, report = self._query._jsq.status(), self._query._jsq.lastProgress()
            took = report.durationMs().get("triggerExecution") if report is not None else None
            return Boundary(
                batch=int(report.batchId()) if report is not None else -1,
                duration_s=(took or 0) / 1e3,
                resting=not status.isTriggerActive(),
                active=self._query.isActive,
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
