"""Time that a solver may use, read from a clock the caller hands in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A deadline on an injected monotonic clock: policies have no clock of their own."""

    clock: Clock
    deadline_s: float

    def remaining_s(self) -> float:
        """Seconds left, 0 when the time is up."""
        return max(0.0, self.deadline_s - self.clock())

    def spent(self) -> bool:
        """True when the time is up."""
        return self.clock() >= self.deadline_s

    def share(self, part: float) -> Budget:
        """A budget of `part` (0 to 1) of what is left."""
        return Budget(clock=self.clock, deadline_s=self.clock() + part * self.remaining_s())


def budget_of(seconds: float, clock: Clock) -> Budget:
    """A budget of `seconds` from now."""
    return Budget(clock=clock, deadline_s=clock() + seconds)
