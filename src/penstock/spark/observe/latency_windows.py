"""How late records were at the sinks, over sliding windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow import Constraint
from penstock.spark.observe.progress import BatchProgress
from penstock.telemetry import Moments, Sketch

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
ESTIMATE_POINTS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Lateness:
    """The latencies of the records of one batch at one sink."""

    ended_s: float
    moments: Moments
    sketch: Sketch


class SinkWindow:
    """The lateness of recent batches at one sink."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._batches: deque[Lateness] = deque()
        self._untaken: list[Lateness] = []

    def add(self, lateness: Lateness) -> None:
        """One more batch; those that ended too long before it are forgotten."""
        self._batches.append(lateness)
        self._untaken.append(lateness)
        while self._batches[0].ended_s < lateness.ended_s - self._keep_s:
            self._batches.popleft()

    def since(self, time_s: float) -> tuple[Moments, Sketch]:
        """All batches that ended after `time_s`, as one."""
        return merged((b.moments, b.sketch) for b in self._batches if b.ended_s > time_s)

    def last(self) -> tuple[Moments, Sketch]:
        """The batch that ended last, if any is remembered."""
        return merged((b.moments, b.sketch) for b in list(self._batches)[-1:])

    def take(self) -> tuple[Moments, Sketch]:
        """All batches added since the last call, as one: each counts once, whenever it ended by which clock."""
        taken, self._untaken = self._untaken, []
        return merged((b.moments, b.sketch) for b in taken)


def merged(parts: Iterable[tuple[Moments, Sketch]]) -> tuple[Moments, Sketch]:
    """Latencies of several batches or sinks, as one."""
    moments, sketch = Moments.empty(1), Sketch.empty()
    for other_moments, other_sketch in parts:
        moments, sketch = moments.merge(other_moments), sketch.merge(other_sketch)
    return moments, sketch


def together(parts: Sequence[Lateness]) -> Lateness:
    """The records of several sources in one batch, as one."""
    return Lateness(parts[0].ended_s, *merged((p.moments, p.sketch) for p in parts))


def statistic_s(constraint: Constraint, moments: Moments, sketch: Sketch) -> float | None:
    """The constrained statistic; None without records."""
    if not moments.count[0]:
        return None
    quantile = QUANTILES.get(constraint.statistic)
    return float(moments.mean[0]) if quantile is None else sketch.quantile(quantile)


def estimated_lateness(batch: BatchProgress, began_before_s: float | None, records: float) -> Lateness:
    """The lateness of records of a batch of which nobody knows when they came.

    They are taken to have come evenly since the batch before began: half of them waited longer than half of that
    time, and then for the batch to end.
    """
    gap_s = max(0.0, batch.began_s - began_before_s) if began_before_s is not None else 0.0
    share = (np.arange(ESTIMATE_POINTS) + 0.5) / ESTIMATE_POINTS
    return lateness_of(batch.ended_s, batch.began_s - share * gap_s, records)


def lateness_of(ended_s: float, came_s: NDArray[np.float64], records: float) -> Lateness:
    """The lateness of so many records, of which a few evenly chosen ones came at the given times."""
    late = np.maximum(ended_s - came_s, 0.0)
    weight = records / len(late)
    one = Moments.of(late)
    spread = Moments(np.array([float(records)]), one.mean, one.m2 * weight)
    return Lateness(ended_s, spread, Sketch.of(late, np.full(len(late), weight)))
