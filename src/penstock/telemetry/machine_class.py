"""Kinds of machines, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClass:
    """A kind of machine that can be had, and its price."""

    name: str
    cores: int = 1
    speed: float = 1.0
    """Speed of a core relative to the reference core."""
    memory_bytes: float = 4e9
    bandwidth_bytes_per_s: float = 125e6
    price_per_hour: float = 0.0
    billing_s: float = 3600.0
    """Billed by started units of this length."""
    minimum_s: float = 0.0
    """Shortest time billed."""
    startup_s: float = 0.0
    available: int | None = None
    """How many can be had; None: any number."""

    def billed_s(self, elapsed_s: float) -> float:
        """Seconds to pay for after `elapsed_s`: started units, at least one, at least the minimum.

        µ = ceil((min(t_stop, t) - t_start) / unit) · price (dynamic-dataflows.txt, section III).
        """
        # An end of a unit that rounding puts a hair late does not start the next one.
        units = max(1, math.ceil(elapsed_s / self.billing_s - 1e-9))
        return max(units * self.billing_s, self.minimum_s)

    def bill(self, elapsed_s: float) -> float:
        """Money owed for a machine after `elapsed_s`."""
        return self.billed_s(elapsed_s) / 3600.0 * self.price_per_hour
