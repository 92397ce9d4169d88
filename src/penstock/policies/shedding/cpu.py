"""What accuracy costs in CPU, and what CPU buys in accuracy (eqs. 6 to 11 of the paper).

The paper takes one instance's CPU for all instances of a task and assumes equal machines. Here each task has its own
figure, so skewed keys are seen, and CPU is in cores of reference speed, so machines may differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from penstock.arrays import Bools, Floats
from penstock.policies.shedding.accuracy import Accuracy, ratio
from penstock.policies.shedding.backlog import Backlog
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals


def required_cpu(accuracy: ArrayLike, cpu: ArrayLike, current: ArrayLike, core: ArrayLike = 1.0) -> Floats:
    """CPU that a task needs to reach `accuracy`, given what it uses at its `current` one (eq. 8).

    >>> float(required_cpu(1.0, cpu=0.3, current=0.5)), float(required_cpu(0.2, cpu=0.0, current=0.0))
    (0.6, 1.0)
    """
    ac, used, cac, most = (np.asarray(x, np.float64) for x in (accuracy, cpu, current, core))
    guess = np.where(ac > 0, most, 0.0)
    return np.where(cac > 0, np.minimum(ac * used / np.where(cac > 0, cac, 1.0), most), guess)


def obtained_accuracy(granted: ArrayLike, cpu: ArrayLike, current: ArrayLike) -> Floats:
    """Accuracy that a task reaches with `granted` CPU, given what it uses at its `current` one (eq. 11).

    >>> float(obtained_accuracy(0.45, cpu=0.3, current=0.5)), float(obtained_accuracy(0.1, cpu=0.0, current=0.5))
    (0.75, 1.0)
    """
    given, used, cac = (np.asarray(x, np.float64) for x in (granted, cpu, current))
    optimistic = np.where(given > 0, 1.0, np.where(cac > 0, np.minimum(cac, 1.0), 0.0))
    extrapolated = np.minimum(cac * given / np.where(used > 0, used, 1.0), 1.0)
    return np.where((cac > 0) & (used > 0), extrapolated, optimistic)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Cores of reference speed that each task needs: `base + accuracy · slope`, at most `core`."""

    slope: Floats
    base: Floats
    core: Floats
    """Most that one task can use: a core of its node."""
    drain_slope: Floats
    """Slope while sources above read their backlog."""
    drain_base: Floats
    """Base while the task's own queue shrinks."""
    measured: Bools
    """Whether any task of the same operator was measured."""

    @classmethod
    def of(cls, snapshot: Snapshot, accuracy: Accuracy, backlog: Backlog, min_accuracy: Floats) -> Demand:
        """The demand of every task; one that was not measured is like its siblings, and free without any."""
        tasks, count = snapshot.tasks, len(accuracy.offered)
        operator = tasks.operator
        speed = np.where(snapshot.nodes.speed > 0, snapshot.nodes.speed, 1.0)
        core = np.append(speed, 1.0)[tasks.node]  # -1, not placed, is the reference core
        cpu = tasks.cpu * core
        is_source = np.zeros(count, np.bool_)
        is_source[snapshot.sources.operator] = True
        # A source's share already says how much of what is produced it reads.
        through = np.where(is_source[operator], 1.0, ratio(tasks.processed, tasks.arrived))
        share = accuracy.offered[operator] * through
        idle = (share == 0) & (tasks.arrived == 0) & ~is_source[operator]
        measured = tasks.known & ~idle
        starved = measured & (share == 0)
        insists = min_accuracy[operator] > 0
        slope = np.where(share > 0, cpu / np.where(share > 0, share, 1.0), 0.0)
        # Nothing got through: a whole core is the paper's best bet, for any accuracy but none.
        slope = np.where(starved & ~insists, core, slope)
        base = np.where(starved & insists, core, 0.0)

        known = totals(operator[measured], np.ones(int(measured.sum())), count)
        siblings = totals(operator[measured], slope[measured], count) / np.where(known > 0, known, 1.0)
        slope = np.where(measured, slope, siblings[operator])
        counted = measured & (tasks.processed > 0)
        cost = np.where(counted, cpu / np.where(counted, tasks.processed, 1.0), 0.0) * snapshot.interval_s
        queued = totals(operator[counted], tasks.queued[counted], count)[operator]
        part = np.where(counted & (queued > 0), tasks.queued / np.where(queued > 0, queued, 1.0), 0.0)
        return cls(
            slope=slope,
            base=base,
            core=core,
            drain_slope=slope * accuracy.surge[operator],
            drain_base=np.minimum(base + cost * backlog.drain_rps[operator] * part, core),
            measured=known[operator] > 0,
        )

    def minimum(self, min_accuracy: Floats) -> Floats:
        """Least CPU of every task (minReqCpu), given the minimum accuracy of each (eq. 9)."""
        return np.minimum(self.base + required_cpu(min_accuracy, self.slope, 1.0, self.core), self.core)

    def eased(self, stretch: Floats) -> Demand:
        """The same with backlogs drained more slowly: `stretch` times as long, for each task."""
        part = 1.0 / np.maximum(stretch, 1.0)
        return replace(
            self,
            drain_slope=self.slope + (self.drain_slope - self.slope) * part,
            drain_base=self.base + (self.drain_base - self.base) * part,
        )

    def reach(self, share: float) -> Floats:
        """Highest accuracy of every task, backlog included, if it may use this share of a core."""
        left = np.clip(share * self.core - self.drain_base, 0.0, None)
        return obtained_accuracy(left, self.drain_slope, np.where(left > 0, 1.0, 0.0))
