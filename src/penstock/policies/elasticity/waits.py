"""How long records wait at an operator, as a function of its parallelism.

Kingman's approximation for GI/G/1, fitted to the last measurement so that it returns today's wait at today's
parallelism (`nephele.txt`, section IV-C; our reading in `spec/nephele.md`):

    W(p*) = a / (p* - b),   a = e·λ·S²·p·(cA² + cS²)/2,   b = λ·S·p

λ is the arrival rate at one of the p tasks, S the mean service time, e the measured wait over Kingman's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.arrays import Floats, Ints
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals

FIT_LIMITS = (0.1, 10.0)
"""A fit beyond these says more about noise than about queues."""


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """The hyperbola of each operator: `a` in seconds, `b` the parallelism at which the queue would never end."""

    a: Floats
    b: Floats

    def at(self, parallelism: ArrayLike) -> Floats:
        """Seconds that a record waits at each operator; infinite where parallelism does not exceed `b`."""
        room = np.asarray(parallelism, dtype=np.float64) - self.b
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(
                self.a == 0, np.where(room > 0, 0.0, np.inf), np.where(room > 0, self.a / room, np.inf)
            )

    def take(self, rows: Ints) -> Waits:
        """The chosen operators."""
        return Waits(self.a[rows], self.b[rows])


def kingman_wait_s(utilisation: ArrayLike, service_s: ArrayLike, ca2: ArrayLike, cs2: ArrayLike) -> Floats:
    """Kingman's mean wait in a GI/G/1 queue: S·ρ/(1-ρ)·(cA²+cS²)/2; infinite at ρ ≥ 1."""
    rho, s = np.asarray(utilisation, np.float64), np.asarray(service_s, np.float64)
    free = 1 - rho
    variability = (np.asarray(ca2, np.float64) + np.asarray(cs2, np.float64)) / 2
    return np.where(free > 0, s * rho / np.where(free > 0, free, 1.0) * variability, np.inf)


def measured_wait_s(snapshot: Snapshot) -> tuple[Floats, NDArray[np.bool_]]:
    """Queueing time before each operator: stream latency less output-batch wait, over its incoming streams."""
    streams, rows = snapshot.streams, snapshot.dataflow.row
    target = np.array([rows[s.target] for s in snapshot.dataflow.streams], dtype=np.int64)
    count = len(snapshot.dataflow.operators)
    wait = np.clip(streams.latency_s.mean - streams.batch_wait_s.mean, 0.0, None)
    usable = streams.known & np.isfinite(wait) & np.isfinite(streams.latency_s.count)
    weight, wait = np.where(usable, streams.latency_s.count, 0.0), np.where(usable, wait, 0.0)
    total = totals(target, weight, count)
    return totals(target, weight * wait, count) / np.where(total > 0, total, 1.0), total > 0
