"""How late records were at the sinks, over sliding windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

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
        return _together(batch for batch in self._batches if batch.ended_s > time_s)

    def take(self) -> tuple[Moments, Sketch]:
        """All batches added since the last call, as one: each counts once, whenever it ended by which clock."""
        taken, self._untaken = self._untaken, []
        return _together(taken)


def _together(batches: Iterable[Lateness]) -> tuple[Moments, Sketch]:
    moments, sketch = Moments.empty(1), Sketch.empty()
    for batch in batches:
        moments, sketch = moments.merge(batch.moments), sketch.merge(batch.sketch)
    return moments, sketch


def statistic_s(constraint: Constraint, moments: Moments, sketch: Sketch) -> float | None:
    """The constrained statistic; None without records."""
    if not moments.count[0]:
        return None
    quantile = QUANTILES.get(constraint.statistic)
    return float(moments.mean[0]) if quantile is None else sketch.quantile(quantile)


def estimated_lateness(batch: BatchProgress, began_before_s: float | None, backlog_s: float) -> Lateness:
    """The lateness of a batch whose records carry no source time.

    They are taken to have come evenly since the batch before began (half of them waited longer than half of that
    time), then to have waited for `backlog_s` of earlier records, and then for the batch to end.
    """
    gap_s = max(0.0, batch.began_s - began_before_s) if began_before_s is not None else 0.0
    share = (np.arange(ESTIMATE_POINTS) + 0.5) / ESTIMATE_POINTS
    late = batch.duration_s + backlog_s + share * gap_s
    weight = batch.records / ESTIMATE_POINTS
    one = Moments.of(late)
    spread = Moments(np.array([float(batch.records)]), one.mean, one.m2 * weight)
    return Lateness(batch.ended_s, spread, Sketch.of(late, np.full(ESTIMATE_POINTS, weight)))
