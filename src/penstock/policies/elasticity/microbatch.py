"""Latency and size of a micro-batch engine: the same hyperbola, in cores instead of tasks.

A batch of n records on p cores lasts `o + s·n/p`: a fixed cost and core-seconds per record, both learnt from the
batches that ran. Batches that follow one another at arrival rate λ settle at `T = o / (1 - ρ)`, `ρ = λ·s/p`
(`spec/nephele.md`, «On Spark»). A record waits for the next batch to begin and then for that batch to end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.model import Statistic
from penstock.telemetry import Batches

WAIT_SHARE: dict[Statistic, float] = {"mean": 0.5, "p50": 0.5, "p95": 0.95, "p99": 0.99}
"""How much of the time between two batches a record waits: arrivals are spread evenly over it."""

FORGET = 0.97
"""How much of the weight of earlier batches is left after one more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCost:
    """What batches were seen to cost: weighted sums of a line fitted through (records per core, seconds).

    Old batches fade (`FORGET` per batch), so the line follows a changed alternate or machine.
    """

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    fixed: float = 0.0

    def learn(self, batches: Batches, cores: float) -> BatchCost:
        """With the given batches, which ran on `cores` cores; empty batches teach nothing of the cost of records."""
        w, x, y, xx, xy, f = self.weight, self.x, self.y, self.xx, self.xy, self.fixed
        for records, seconds, fixed in zip(batches.records, batches.duration_s, batches.fixed_s, strict=True):
            if (
                not (records > 0 and seconds > 0 and math.isfinite(records) and math.isfinite(seconds))
                or cores <= 0
            ):
                continue
            share = float(records) / cores
            w, x, y = w * FORGET + 1, x * FORGET + share, y * FORGET + seconds
            xx, xy = xx * FORGET + share * share, xy * FORGET + share * seconds
            f = f * FORGET + max(0.0, float(fixed))
        return BatchCost(weight=w, x=x, y=y, xx=xx, xy=xy, fixed=f)

    @property
    def known(self) -> bool:
        """Whether any batch has been seen."""
        return self.weight > 0

    @property
    def overhead_s(self) -> float:
        """o: seconds a batch takes however few records it has."""
        return self._line()[0]

    @property
    def record_s(self) -> float:
        """s: core-seconds per record."""
        return self._line()[1]

    def _line(self) -> tuple[float, float]:
        """Least squares, with the measured fixed part as a prior worth `prior` batches for the intercept."""
        if not self.known:
            return 0.0, 0.0
        prior = 2.0
        floor = self.fixed / self.weight
        w, y = self.weight + prior, self.y + prior * floor
        determinant = w * self.xx - self.x * self.x
        if determinant <= 1e-12 * w * self.xx:
            return floor, max(0.0, (self.y - self.weight * floor) / self.x) if self.x else 0.0
        slope = (w * self.xy - self.x * y) / determinant
        start = (y - slope * self.x) / w
        if start < floor:  # a line that starts below what was measured as fixed goes through that instead
            return floor, max(0.0, (self.xy - floor * self.x) / self.xx)
        return start, max(0.0, slope)


def batch_length_s(
    overhead_s: float, record_s: float, rate_rps: float, cores: NDArray[np.float64], interval_s: float = 0.0
) -> NDArray[np.float64]:
    """Time from one batch's start to the next one's in the steady state; infinite where cores do not suffice."""
    rho = rate_rps * record_s / cores
    busy = np.where(rho < 1, overhead_s / np.where(rho < 1, 1 - rho, 1.0), np.inf)
    return np.maximum(busy, interval_s)


def latency_s(
    overhead_s: float,
    record_s: float,
    rate_rps: float,
    cores: NDArray[np.float64],
    interval_s: float = 0.0,
    statistic: Statistic = "mean",
) -> NDArray[np.float64]:
    """Latency from a record's birth to the end of its batch, in the steady state, for each number of cores."""
    period = batch_length_s(overhead_s, record_s, rate_rps, cores, interval_s)
    finite = np.where(np.isfinite(period), period, 0.0)
    duration = overhead_s + record_s * rate_rps * finite / cores
    return np.where(np.isfinite(period), WAIT_SHARE[statistic] * finite + duration, np.inf)


def cores_to_drain(
    overhead_s: float,
    record_s: float,
    rate_rps: float,
    backlog_records: float,
    within_s: float,
    batch_s: float,
) -> float:
    """Cores needed so that a backlog is gone within `within_s`, in batches of about `batch_s`, of which o is lost."""
    useful = 1 - min(0.9, overhead_s / batch_s) if batch_s > 0 else 0.1
    return record_s * (rate_rps + backlog_records / within_s) / useful
