"""How late the records of micro-batches are: from when each came into being to the end of its batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow import Load
from penstock.dataflow.graph import Statistic
from penstock.simulator import microbatch_kernel as kernel
from penstock.telemetry import Moments, Sketch

Floats = NDArray[np.float64]
LoadPoints = tuple[Floats, Floats, Floats, float]

POINTS = (np.arange(20) + 0.5) / 20
"""Records of a batch whose latencies stand for all of them."""
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def load_points(load: Load) -> LoadPoints:
    """Times, rates and totals before each time (and of a whole period), and the period."""
    times, rates = np.asarray(load.times_s), np.asarray(load.rates_rps)
    ends = np.append(times[1:], load.period_s if load.period_s is not None else times[-1])
    totals = np.concatenate([np.zeros(1), np.cumsum((ends - times) * rates)])
    return times, rates, totals, load.period_s if load.period_s is not None else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """Batches that ended, a row each: the kernel's log, and how late `POINTS` of their records were."""

    log: Floats
    late_s: Floats

    @classmethod
    def of_log(cls, log: Floats, loads: Sequence[LoadPoints]) -> Ended:
        """With latencies from what each query's sources produced."""
        late = np.zeros((len(log), len(POINTS)))
        for query, points in enumerate(loads):
            mine = log[:, kernel.QUERY] == query
            rows = log[mine]
            numbers = (rows[:, [kernel.FIRST]] + POINTS[None, :] * rows[:, [kernel.RECORDS]]).ravel()
            came = np.empty(len(numbers))
            kernel.arrivals_s(*points, numbers, came)
            late[mine] = rows[:, [kernel.ENDED]] - came.reshape(len(rows), len(POINTS))
        return cls(log, np.maximum(late, 0.0))

    def of(self, rows: NDArray[np.bool_]) -> Ended:
        """Only some of them."""
        return Ended(self.log[rows], self.late_s[rows])

    def of_query(self, query: int, since_s: float = -math.inf) -> Ended:
        """Those of one query that ended after a time."""
        return self.of((self.log[:, kernel.QUERY] == query) & (self.log[:, kernel.ENDED] > since_s))

    def with_more(self, other: Ended) -> Ended:
        """These and then those."""
        return Ended(np.vstack([self.log, other.log]), np.vstack([self.late_s, other.late_s]))

    def moments(self) -> Moments:
        """Latency of all their records."""
        records = self.log[:, kernel.RECORDS]
        total = float(records.sum())
        if not total:
            return Moments.empty(1)
        mean = float((records * self.late_s.mean(axis=1)).sum() / total)
        spread = (records * ((self.late_s - mean) ** 2).mean(axis=1)).sum()
        return Moments(np.array([total]), np.array([mean]), np.array([float(spread)]))

    def sketch(self) -> Sketch:
        """The distribution of the latencies of all their records."""
        weights = np.repeat(self.log[:, kernel.RECORDS] / len(POINTS), len(POINTS))
        return Sketch.of(self.late_s.ravel(), weights) if len(weights) else Sketch.empty()

    def statistic_s(self, statistic: Statistic) -> float | None:
        """Mean or percentile of the latencies; None without records."""
        if not self.log[:, kernel.RECORDS].sum():
            return None
        quantile = QUANTILES.get(statistic)
        return float(self.moments().mean[0]) if quantile is None else self.sketch().quantile(quantile)


def over_windows(ended: Ended, statistic: Statistic, window_s: float, ticks_s: Floats) -> list[float | None]:
    """The statistic over the windows that end at the given times, of one query's batches in the order they ended.

    Where none ended in a window and one was under way, its records count with the age they had reached.
    """
    ends = ended.log[:, kernel.ENDED]
    first = np.searchsorted(ends, ticks_s - window_s, side="right")
    last = np.searchsorted(ends, ticks_s, side="right")
    records = ended.log[:, kernel.RECORDS]
    count = np.concatenate([[0.0], np.cumsum(records)])
    total = np.concatenate([[0.0], np.cumsum(records * ended.late_s.mean(axis=1))])
    found: list[float | None] = []
    for tick_s, a, b in zip(ticks_s.tolist(), first.tolist(), last.tolist(), strict=True):
        if count[b] > count[a]:
            mean = (total[b] - total[a]) / (count[b] - count[a])
            part = Ended(ended.log[a:b], ended.late_s[a:b])
            found.append(mean if statistic == "mean" else part.statistic_s(statistic))
        elif b < len(ends) and ended.log[b, kernel.BEGAN] <= tick_s and records[b] > 0:
            middle = float(ended.late_s[b, len(POINTS) // 2])
            found.append(max(0.0, middle - (ends[b] - tick_s)))
        else:
            found.append(None)
    return found


NONE_ENDED = Ended(np.zeros((0, kernel.LAST_COLUMN)), np.zeros((0, len(POINTS))))
