"""What the tasks of a query's stages cost: a part for every task, and a part for every record.

A query with Spark's 200 state partitions spends most of a small batch on tasks that have nothing to do. That part does
not grow with the load, but it takes cores: both have to be known to say how many are needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.spark.internals.tasks import TaskTable

FORGET = 0.9
"""How much of the weight of earlier batches is left after one more."""
LEVERAGE = 0.1
"""How much records per task must vary, as a share of their mean, to tell what records cost from what tasks cost."""

Sums = NDArray[np.float64]


class StageCosts:
    """A line through (records, seconds) of the tasks of each stage, by the place of the stage in the batch."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], Sums] = {}

    def split(self, table: TaskTable) -> tuple[float, float]:
        """Core-seconds of one more batch: (for its tasks, for their records)."""
        seconds = (table.run_ms + table.deserialize_ms) / 1e3
        records = table.input_records + table.shuffle_read_records
        per_task, seen = 0.0, dict[tuple[int, int], Sums]()
        for place, stage in enumerate(np.unique(table.stage).tolist()):
            mine = (table.stage == stage) & table.succeeded
            x, y = records[mine], seconds[mine]
            key = place, len(x)
            sums = np.array([len(x), x.sum(), y.sum(), x @ x, x @ y])
            seen[key] = sums + FORGET * self._sums.get(key, np.zeros(5))
            per_task += len(x) * min(_intercept(seen[key]), float(y.mean()) if len(y) else 0.0)
        self._sums = {**self._sums, **seen} if len(self._sums) < 64 else seen
        return per_task, max(0.0, float(seconds.sum()) - per_task)


def _intercept(sums: Sums) -> float:
    """Seconds of a task without records, by least squares.

    Where all tasks have about as many records that cannot be told. Then everything counts as work for records, which
    asks for more cores rather than too few.
    """
    n, x, y, xx, xy = map(float, sums)
    if n <= 0:
        return 0.0
    variance = xx / n - (x / n) ** 2
    if x <= 0:
        return y / n
    if variance <= (LEVERAGE * x / n) ** 2:
        return 0.0
    slope = max(0.0, (xy / n - x * y / n**2) / variance)
    return max(0.0, (y - slope * x) / n)
