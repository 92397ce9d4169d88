"""How many bytes each map task of a micro-batch left for each reduce partition."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.runtimes.spark.internals.errors import SparkInternalsError, reaching
from penstock.runtimes.spark.internals.gateway import children, context, declared_field, execution
from penstock.runtimes.spark.internals.state import writes_state

CAPABILITY = "shuffle matrix"

# MapStatus keeps a size as one byte, the logarithm to this base rounded up.
SIZE_BASE = 1.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShuffleMatrix:
    """One exchange: ``sizes_bytes[m, r]`` left by map task m (on ``map_executor[m]``) for partition r.

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
    node: Any
    reader: int | None
    writer: int | None = None


class Shuffles:
    """The shuffle matrices of *spark*'s queries."""

    def __init__(self, spark: SparkSession) -> None:
        with reaching(CAPABILITY):
            scheduler = context(spark).dagScheduler()
            self._outputs = declared_field(scheduler, "mapOutputTracker").get(scheduler)
        self._fields: dict[str, Any] = {}
        self._held: dict[str, Any] = {}
        """Run to the plan of its newest batch, when last looked."""

    def last_batch(
        self, query: StreamingQuery, ended: Container[int]
    ) -> tuple[int, tuple[ShuffleMatrix, ...]] | None:
        """Return the newest of the *ended* micro-batches whose plan is at hand, and its matrices.

        The plan that Spark has is that of the newest begun. Where batches follow one another without a break it is
        never that of an ended one, so it is held until the next call: a shuffle is known as long as its plan. Inside
        ``foreachBatch`` the plans are the user's own, which this cannot see.
        """
        with reaching(CAPABILITY):
            running = execution(query)
            if running.sink().getClass().getSimpleName().startswith("ForeachBatch"):
                raise SparkInternalsError(CAPABILITY, "the plans inside foreachBatch are out of reach")
            run, newest = str(query.runId), running.lastExecution()
            held, self._held = self._held.get(run), {run: newest}
            for plan in (newest, held):
                if plan is not None and int(plan.currentBatchId()) in ended:
                    found = [self._matrix(each) for each in _exchanges(plan.executedPlan())]
                    return int(plan.currentBatchId()), tuple(m for m in found if m is not None)
            return None

    def _matrix(self, exchange: _Exchange) -> ShuffleMatrix | None:
        node = exchange.node
        shuffle_id, partitions = int(node.shuffleDependency().shuffleId()), int(node.numPartitions())
        status = self._outputs.shuffleStatuses().get(shuffle_id)
        if status.isEmpty():
            return None
        maps = [one for one in status.get().mapStatuses() if one is not None]
        places = [one.location() for one in maps]
        sizes = np.array([self._sizes(one, partitions) for one in maps]).reshape(len(maps), partitions)
        return ShuffleMatrix(
            shuffle_id=shuffle_id,
            map_executor=tuple(place.executorId() for place in places),
            map_host=tuple(place.host() for place in places),
            writer=exchange.writer,
            reader=exchange.reader,
            sizes_bytes=sizes,
        )

    def _sizes(self, status: Any, partitions: int) -> npt.NDArray[np.float64]:
        """Return the block sizes of one map task, in one call where Spark keeps them as a byte array."""
        kind = status.getClass().getSimpleName()
        if kind != "CompressedMapStatus":
            return np.array([status.getSizeForBlock(i) for i in range(partitions)], dtype=np.float64)
        if kind not in self._fields:
            self._fields[kind] = declared_field(status, "compressedSizes")
        powers = np.frombuffer(self._fields[kind].get(status), dtype=np.uint8).astype(np.float64)
        return np.where(powers == 0, 0.0, np.floor(SIZE_BASE**powers))


def _exchanges(plan: Any) -> list[_Exchange]:
    """Return the exchanges of *plan*, each with the nearest stateful operators in the stages above and below it."""
    found: list[_Exchange] = []
    todo: list[tuple[Any, int | None, _Exchange | None]] = [(plan, None, None)]
    while todo:
        node, reader, above = todo.pop()
        if node.getClass().getSimpleName() == "ShuffleExchangeExec":
            above, reader = _Exchange(node, reader), None
            found.append(above)
        elif writes_state(node) and node.stateInfo().isDefined():
            reader = int(node.stateInfo().get().operatorId())
            if above is not None and above.writer is None:
                above.writer = reader
        todo += [(child, reader, above) for child in children(node)]
    return found
