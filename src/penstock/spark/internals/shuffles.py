"""How many bytes each map task of a micro-batch left for each reduce partition."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import compiled, context, declared_field, execution, lines

CAPABILITY = "shuffle matrix"

# A line for each stateful node and exchange, with its depth, from the root on; below an exchange one for each map task.
_PLAN = """
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;

public Object exchanges(QueryExecution batch, MapOutputTrackerMaster outputs) {
    StringBuilder lines = new StringBuilder();
    tell(batch.executedPlan(), 0, outputs, lines);
    return reply(lines);
}

private static void tell(SparkPlan node, int depth, MapOutputTrackerMaster outputs, StringBuilder lines) {
    if (node instanceof ShuffleExchangeExec) {
        int shuffle = ((ShuffleExchangeExec) node).shuffleDependency().shuffleId();
        lines.append("exchange ").append(depth).append(" ").append(shuffle).append("\\n");
        scala.Option status = outputs.shuffleStatuses().get(Integer.valueOf(shuffle));
        if (status.isDefined())
            sizes(((ShuffleStatus) status.get()).mapStatuses(), ((ShuffleExchangeExec) node).numPartitions(), lines);
    } else if (node instanceof StateStoreWriter && ((StateStoreWriter) node).stateInfo().isDefined()) {
        Object info = ((StateStoreWriter) node).stateInfo().get();
        lines.append("state ").append(depth).append(" ").append(((StatefulOperatorStateInfo) info).operatorId())
            .append("\\n");
    }
    scala.collection.Iterator nodes = below(node);
    while (nodes.hasNext()) tell((SparkPlan) nodes.next(), depth + 1, outputs, lines);
}

private static void sizes(MapStatus[] maps, int partitions, StringBuilder lines) {
    for (int m = 0; m < maps.length; m++) {
        // An output that is lost keeps its row: a map task's position is its partition.
        lines.append("map ").append(maps[m] == null ? "-" : maps[m].location().executorId())
            .append(" ").append(maps[m] == null ? "-" : maps[m].location().host());
        for (int r = 0; r < partitions; r++)
            lines.append(" ").append(maps[m] == null ? 0L : maps[m].getSizeForBlock(r));
        lines.append("\\n");
    }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShuffleMatrix:
    """One exchange: ``sizes_bytes[m, r]`` left by map task m (on ``map_executor[m]``, "-": lost) for partition r.

    Spark rounds each size up to a power of 1.1, so an entry is at most 10 % too large; above 2000 reduce
    partitions it keeps only the average of the blocks that are not empty.
    """

    shuffle_id: int
    map_executor: tuple[str, ...]
    map_host: tuple[str, ...]
    writer: int | None
    """The stateful operator in the stage that wrote it, None if that stage has no state."""
    reader: int | None
    """The stateful operator that reads it, None if no state is kept of it."""
    sizes_bytes: npt.NDArray[np.float64]


@dataclass(slots=True)
class _Exchange:
    shuffle_id: int
    reader: int | None
    writer: int | None = None
    maps: list[list[str]] = field(default_factory=list)


class Shuffles:
    """The shuffle matrices of *spark*'s queries."""

    def __init__(self, spark: SparkSession) -> None:
        with reaching(CAPABILITY):
            scheduler = context(spark).dagScheduler()
            self._outputs = declared_field(scheduler, "mapOutputTracker").get(scheduler)
            self._jvm = compiled(_PLAN)
        self._query: StreamingQuery | None = None
        self._running: Any = None
        self._held: tuple[int, Any] | None = None
        """The newest batch of that query and its plan, when last looked."""

    def last_batch(
        self, query: StreamingQuery, ended: Container[int]
    ) -> tuple[int, tuple[ShuffleMatrix, ...]] | None:
        """Return the newest of the *ended* micro-batches whose plan is at hand, and its matrices.

        The plan that Spark has is that of the newest begun. Where batches follow one another without a break it is
        never that of an ended one, so it is held until the next call: a shuffle is known as long as its plan.
        """
        with reaching(CAPABILITY):
            if query is not self._query:
                self._query, self._running, self._held = query, execution(query), None
            newest = self._running.lastExecution()
            held = self._held
            self._held = None if newest is None else (int(newest.currentBatchId()), newest)
            for one in (self._held, held):
                if one is not None and one[0] in ended:
                    told = lines(self._jvm.exchanges(one[1], self._outputs))
                    return one[0], tuple(map(_matrix, _exchanges(told)))
            return None


def _exchanges(told: Iterable[str]) -> list[_Exchange]:
    """Return the exchanges with outputs, each with the nearest stateful operators in the stages above and below it."""
    found: list[_Exchange] = []
    # From the root to where we are: depth, the stateful operator and the exchange nearest above what follows.
    path: list[tuple[int, int | None, _Exchange | None]] = [(-1, None, None)]
    for line in told:
        kind, *rest = line.split(" ")
        if kind == "map":
            found[-1].maps.append(rest)
            continue
        depth, number = map(int, rest)
        while path[-1][0] >= depth:
            path.pop()
        _, reader, above = path[-1]
        if kind == "exchange":
            found.append(_Exchange(number, reader))
            path.append((depth, None, found[-1]))
        else:
            if above is not None and above.writer is None:
                above.writer = number
            path.append((depth, number, above))
    return [one for one in found if one.maps]


def _matrix(exchange: _Exchange) -> ShuffleMatrix:
    return ShuffleMatrix(
        shuffle_id=exchange.shuffle_id,
        map_executor=tuple(one[0] for one in exchange.maps),
        map_host=tuple(one[1] for one in exchange.maps),
        writer=exchange.writer,
        reader=exchange.reader,
        sizes_bytes=np.array([one[2:] for one in exchange.maps], dtype=np.float64),
    )
