"""Options of the placement policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.errors import check_ranges
from penstock.policies.placement.placement import DEFAULT_POLICY, SOLVERS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """Which solver looks, how often and how long; what a change must save; how it is carried out."""

    solver: str = DEFAULT_POLICY
    """How to place: a name that `penstock place --policy` takes."""
    seconds: float = 1.0
    """Most time the solver may take for one look, in seconds; above 0."""
    rounds: int = 16
    """Rounds of search for one look; where they end in time, a replay decides alike on any machine; at least 1."""
    every_s: float = 30.0
    """Seconds between two looks; above 0."""
    least_gain: float = 0.05
    """Share (0..1) of the traffic between nodes that has to be saved, so that noise moves nothing."""
    least_bytes_per_s: float = 100_000.0
    """Micro-batches: bytes per second between nodes that have to be saved besides: kilobytes never move state."""
    horizon_s: float = 600.0
    """Seconds over which the saved traffic has to pay for the moves; above 0."""
    cool_down_s: float = 120.0
    """Seconds after a decision in which it is carried out and no other is made."""
    confirmations: int = 2
    """Looks in a row that must find a change worth it before it is made; at least 1."""
    most_moves: int = 16
    """Tasks that may be told to move in one cycle; those that save most go first; at least 1."""
    utilisation: float = 0.5
    """Share (0..1] of the CPU that other processes leave which a node is filled to (unless it is fuller already)."""
    uneven: float = 0.0
    """Micro-batches: how much more than its even share of an operator's work a node may hold (0: none)."""
    pause_s: float = 1.0
    """How long the records of a task that moves are held up, in seconds; part of what a move costs."""
    memory_s: float = 30.0
    """Measured traffic fades with this time constant, in seconds; above 0."""
    moves: Literal["any", "stateful"] = "any"
    """Which tasks may move; in micro-batches only state partitions can, whatever is said here."""

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"no solver '{self.solver}'; there are {', '.join(SOLVERS)}")
        above_0 = {
            f"{n} is above 0": getattr(self, n) > 0 for n in ("seconds", "every_s", "memory_s", "horizon_s")
        }
        not_below_0 = {
            f"{n} is at least 0": getattr(self, n) >= 0
            for n in ("uneven", "pause_s", "cool_down_s", "least_bytes_per_s")
        }
        from_1 = {
            f"{n} is at least 1": getattr(self, n) >= 1 for n in ("most_moves", "rounds", "confirmations")
        }
        shares = {
            "utilisation lies in (0, 1]": 0 < self.utilisation <= 1,
            "least_gain lies in [0, 1]": 0 <= self.least_gain <= 1,
        }
        check_ranges(self, above_0 | not_below_0 | from_1 | shares)
