"""Latency and size of a micro-batch engine: the same hyperbola, in cores instead of tasks.

A batch of n records on p cores lasts `o + (f + s·n)/p`: a fixed time, core-seconds for its tasks and core-seconds per
record, all learnt from the batches that ran. Batches that follow one another at arrival rate λ settle at
`T = (o + f/p) / (1 - ρ)`, `ρ = λ·s/p`
(`spec/nephele.md`, «On Spark»). A record waits for the next batch to begin and then for that batch to end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.graph import Statistic
from penstock.telemetry import Batches

WAIT_SHARE: dict[Statistic, float] = {"mean": 0.5, "p50": 0.5, "p95": 0.95, "p99": 0.99}
"""How much of the time between two batches a record waits: arrivals are spread evenly over it."""

SIGMAS: dict[Statistic, float] = {"mean": 0.0, "p50": 0.0, "p95": 1.645, "p99": 2.326}

FORGET = 0.97
"""How much of the weight of earlier batches is left after one more."""


OUTLIER = 2.0
"""A batch slower than this many times what was expected counts for less: it was cold, or moved state."""

OVERHEAD_PRIOR, RECORD_PRIOR = 0.25, 2.0
"""How many batches the measured fixed part and the measured work per record are worth as evidence. What neither
explains is most often fixed too (scheduling, starting tasks), so the first is worth less."""

UNMEASURED_PRIOR = 2.0
"""What the fixed part is worth where the work of operators is not measured: then what it does not explain counts as
work, which asks for more nodes rather than too few."""


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
    tasks: float = 0.0
    """Core-seconds of tasks as such."""
    work_records: float = 0.0
    """Records of batches whose work was measured."""
    work_s: float = 0.0
    """Core-seconds of that work."""
    off: float = 0.0
    """Squares of how far batches were from what was expected of them, as shares of it."""

    def learn(self, batches: Batches, cores: float, keep: float = 1.0) -> BatchCost:
        """With the given batches, which ran on `cores` cores; empty batches teach nothing of the cost of records.

        `keep` is the share of what was read that shedding let pass: only that costs anything to speak of.
        """
        cost = self
        for records, seconds, fixed, busy, tasks in zip(
            batches.records,
            batches.duration_s,
            batches.fixed_s,
            batches.busy_s,
            batches.task_core_s,
            strict=True,
        ):
            if keep * records > 0 and seconds > 0 and cores > 0 and math.isfinite(records + seconds):
                cost = cost.add(
                    keep * float(records), float(seconds), float(fixed), float(busy), cores, float(tasks)
                )
        return cost

    def add(
        self, records: float, seconds: float, fixed: float, busy: float, cores: float, tasks: float = 0.0
    ) -> BatchCost:
        """With one batch more; `busy` core-seconds are what its records are known to take, NaN where unknown.

        `tasks` core-seconds went to its tasks as such.
        """
        share = records / cores
        tasks = min(tasks, max(0.0, seconds - fixed) * cores) if math.isfinite(fixed) else tasks
        expected = self.overhead_s + (self.record_s * records + self.task_core_s) / cores
        weight = min(1.0, OUTLIER * expected / seconds) if self.known else 1.0
        measured = weight if math.isfinite(busy) and busy > 0 else 0.0
        off = min(1.0, seconds / expected - 1) ** 2 if expected > 0 else 0.0
        seconds -= tasks / cores
        return BatchCost(
            weight=self.weight * FORGET + weight,
            x=self.x * FORGET + weight * share,
            y=self.y * FORGET + weight * seconds,
            xx=self.xx * FORGET + weight * share * share,
            xy=self.xy * FORGET + weight * share * seconds,
            fixed=self.fixed * FORGET + weight * max(0.0, fixed if math.isfinite(fixed) else 0.0),
            tasks=self.tasks * FORGET + weight * tasks,
            work_records=self.work_records * FORGET + measured * records,
            work_s=self.work_s * FORGET + (measured * busy if measured else 0.0),
            off=self.off * FORGET + weight * off,
        )

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

    @property
    def task_core_s(self) -> float:
        """f: core-seconds that a batch's tasks take however few records they have."""
        return self.tasks / self.weight if self.known else 0.0

    def overhead_on(self, cores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds, `o + f/p`, that a batch takes on so many cores however few records it has."""
        return np.asarray(self.overhead_s + self.task_core_s / np.maximum(cores, 1e-9))

    @property
    def variation(self) -> float:
        """How far batches are from what is expected of them: standard deviation as a share."""
        return math.sqrt(self.off / self.weight) if self.known else 0.0

    def _line(self) -> tuple[float, float]:
        """Least squares, drawn to the measured fixed part and to the measured work per record.

        Batches of one size say nothing about what is fixed and what is not: then these decide.
        """
        if not self.known:
            return 0.0, 0.0
        floor = self.fixed / self.weight
        work = self.work_s / self.work_records if self.work_records else None
        a = OVERHEAD_PRIOR if work is not None else UNMEASURED_PRIOR
        b = RECORD_PRIOR * self.xx / self.weight if work is not None else 0.0
        w, y = self.weight + a, self.y + a * floor
        xx, xy = self.xx + b, self.xy + b * (work or 0.0)
        determinant = w * xx - self.x * self.x
        if determinant <= 1e-12 * w * xx:
            return floor, max(0.0, (self.y - self.weight * floor) / self.x) if self.x else 0.0
        slope = (w * xy - self.x * y) / determinant
        start = (y - slope * self.x) / w
        if start < floor:  # a line that starts below what was measured as fixed goes through that instead
            return floor, max(0.0, (xy - floor * self.x) / xx)
        return start, max(0.0, slope)


def batch_length_s(
    overhead_s: float | NDArray[np.float64],
    record_s: float,
    rate_rps: float,
    cores: NDArray[np.float64],
    interval_s: float = 0.0,
) -> NDArray[np.float64]:
    """Time from one batch's start to the next one's in the steady state; infinite where cores do not suffice."""
    rho = rate_rps * record_s / cores
    busy = np.where(rho < 1, overhead_s / np.where(rho < 1, 1 - rho, 1.0), np.inf)
    return np.maximum(busy, interval_s)


def latency_s(
    overhead_s: float | NDArray[np.float64],
    record_s: float,
    rate_rps: float,
    cores: NDArray[np.float64],
    interval_s: float = 0.0,
    statistic: Statistic = "mean",
    variation: float = 0.0,
) -> NDArray[np.float64]:
    """Latency from a record's birth to the end of its batch, in the steady state, for each number of cores.

    Of batches that vary, a percentile meets the long ones: `SIGMAS` standard deviations above the mean.
    """
    period = batch_length_s(overhead_s, record_s, rate_rps, cores, interval_s)
    finite = np.where(np.isfinite(period), period, 0.0)
    duration = overhead_s + record_s * rate_rps * finite / cores
    longer = 1 + SIGMAS[statistic] * variation
    return np.where(np.isfinite(period), longer * (WAIT_SHARE[statistic] * finite + duration), np.inf)


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
