"""How many bytes each map task of a micro-batch left for each reduce partition."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.runtimes.spark.internals.errors import SparkInternalsError, reaching
from penstock.runtimes.spark.internals.gateway import context, declared_field, execution, plan_nodes

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
    sizes_bytes: npt.NDArray[np.float64]


class Shuffles:
    """The shuffle matrices of *spark*'s queries."""

    def __init__(self, spark: SparkSession) -> None:
        with reaching(CAPABILITY):
            scheduler = context(spark).dagScheduler()
            self._outputs = declared_field(scheduler, "mapOutputTracker").get(scheduler)
        self._fields: dict[str, Any] = {}

    def last_batch(self, query: StreamingQuery) -> tuple[int, tuple[ShuffleMatrix, ...]] | None:
        """Return the newest finished micro-batch and its matrices, None while the next is under way.

        The plan at hand is always the newest begun: ask right after a batch's progress appeared. Inside
        ``foreachBatch`` the plans are the user's own, which this cannot see.
        """
        with reaching(CAPABILITY):
            running = execution(query)
            if running.sink().getClass().getSimpleName().startswith("ForeachBatch"):
                raise SparkInternalsError(CAPABILITY, "the plans inside foreachBatch are out of reach")
            last, progress = running.lastExecution(), query.lastProgress
            if last is None or progress is None or int(last.currentBatchId()) != progress["batchId"]:
                return None
            batch_id = int(last.currentBatchId())
            found = [self._matrix(node) for node in plan_nodes(last.executedPlan()) if _is_exchange(node)]
            return batch_id, tuple(matrix for matrix in found if matrix is not None)

    def _matrix(self, exchange: Any) -> ShuffleMatrix | None:
        shuffle_id, partitions = int(exchange.shuffleDependency().shuffleId()), int(exchange.numPartitions())
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


def _is_exchange(node: Any) -> bool:
    return bool(node.getClass().getSimpleName() == "ShuffleExchangeExec")
