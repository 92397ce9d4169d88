"""A deployment while it runs: machines with their paid time and observed speed, and how a decider may change it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.policies.provisioning.problem import Bools, Demand, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Running:
    """What is known at the start of an interval: everything measured is of the one before."""

    step: int
    time_s: float
    interval_s: float
    alternates: Ints
    rows: Ints
    """Class of each machine."""
    started_s: Floats
    speed: Floats
    """Observed speed of a core of each machine; rated while it starts."""
    cores: Ints
    """[machine, operator]."""
    input_rps: Floats
    """Per operator, from outside."""
    throughput: float
    """Ω."""

    def paid_left_s(self, demand: Demand) -> Floats:
        """Seconds until each machine's next unit of billing begins."""
        unit = np.array([c.billing_s for c in demand.classes])[self.rows]
        minimum = np.array([c.minimum_s for c in demand.classes])[self.rows]
        age = np.maximum(self.time_s - self.started_s, 0.0)
        left = unit - np.mod(age + 1e-6, unit)
        return np.asarray(np.maximum(left, minimum - age))

    def ready_share(self, demand: Demand) -> Floats:
        """Share of the coming interval for which each machine works."""
        startup = np.array([c.startup_s for c in demand.classes])[self.rows]
        ready_s = self.started_s + startup
        return np.asarray(np.clip((self.time_s + self.interval_s - ready_s) / self.interval_s, 0.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adaptation:
    """What a decider changes at the start of an interval."""

    alternates: Ints
    keep: Bools
    """Which of the machines stay."""
    acquire: Ints
    """Classes of new machines."""
    cores: Ints
    """[machine, operator] of those that stay, then of the new ones."""
