"""Options of the shedding policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SheddingOptions:
    """How closely CPU is planned, how fast a backlog must go, and what may move."""

    utilisation: float = 0.9
    """Share (0..1] of the CPU that other processes leave which is handed out; the rest absorbs bursts."""
    raise_margin: float = 0.05
    """Accuracy goes up only where it would also fit into this much less CPU (0..1), so it does not see-saw."""
    least_step: float = 0.01
    """Smallest rise of a sink's accuracy worth a new setting (0..1); reaching the top is always worth it."""
    least_keep: float = 0.01
    """Smallest share (0..1] that is kept even of sinks without a minimum, so that the cost of a record stays known."""
    lag_s: float = 5.0
    """A backlog of up to this many seconds of production is normal."""
    drain_s: float = 30.0
    """Seconds within which a larger backlog must be back under `lag_s`, if the minima allow."""
    warmup_s: float = 60.0
    """Longest time a moved task may take to reach its minimum while its neighbours stay at theirs."""
    moves: Literal["any", "stateful", "none"] = "any"
    """Which tasks may move when the minima of a node do not fit; any: those that the runtime can move."""
    relieve_after_s: float = 60.0
    """After shedding for so long, tasks also move to nodes with room for all they need; inf: only for minima."""
    reserve_sigmas: float = 3.0
    """Standard deviations of the share that a hash keeps by which a sink stays above its minimum; 0: none."""
    reserve_window_s: float = 30.0
    """Seconds over which the share that counted is to reach the minimum: the scatter of as many records."""
    by_slots: bool = False
    """Whether a task's CPU is the time for which it held a slot, any slot: then what others use of a machine shows in
    it, and all slots are handed out as one, as for queries that Penstock did not build."""
    hold_minima: bool = True
    """Where the minima fit nowhere: True keeps them all and lets the backlog grow; False gives the highest
    priorities their minimum first and lets the others fall below."""

    def __post_init__(self) -> None:
        for name in ("utilisation", "least_keep"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} lies in (0, 1], not {getattr(self, name)}")
        for name in ("raise_margin", "least_step"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} lies in [0, 1), not {getattr(self, name)}")
        if not 0 <= self.reserve_sigmas < float("inf"):
            raise ValueError(f"reserve_sigmas must be 0 or more, not {self.reserve_sigmas}")
        for name in ("lag_s", "drain_s", "warmup_s", "relieve_after_s", "reserve_window_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0 s, not {getattr(self, name)}")
