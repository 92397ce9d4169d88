"""What a query of an application must deliver."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from penstock.dataflow.graph import STATISTICS, Statistic
from penstock.errors import UserError, did_you_mean


class GoalsError(UserError, ValueError):
    """A goal that makes no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """The goals of one query; what is left out is no goal."""

    latency_ms: float | None = None
    """Latest that a result may be there after its record came into being."""
    statistic: Statistic = "mean"
    """Of which statistic of the latency that is asked."""
    window_s: float = 10.0
    """Over which time."""
    priority: int = 1
    """Queries with more matter more."""
    min_accuracy: float = 0.0
    """Share of the input (0..1) that must count whatever happens."""

    def __post_init__(self) -> None:
        for name in ("latency_ms", "window_s", "priority", "min_accuracy"):
            value, unset = getattr(self, name), name == "latency_ms" and self.latency_ms is None
            if not unset and (isinstance(value, bool) or not isinstance(value, Real)):
                raise GoalsError(f"{name} must be a number, not {value!r}")
        if self.statistic not in STATISTICS:
            hint = did_you_mean(str(self.statistic), STATISTICS)
            raise GoalsError(f"there is no statistic {self.statistic!r}{hint}")
        if self.latency_ms is not None and not 0 < self.latency_ms < float("inf"):
            raise GoalsError(f"latency_ms must be more than 0, not {self.latency_ms}")
        if not 0 <= self.min_accuracy <= 1:
            raise GoalsError(f"min_accuracy lies in 0..1, not {self.min_accuracy}")
        if not 0 < self.window_s < float("inf"):
            raise GoalsError(f"window_s must be more than 0, not {self.window_s}")
