"""A paper's figures beside ours, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Tell = Callable[[str], None]
"""Is told what is being done, for a person who waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure: the paper's, ours, and whether ours is as good as it must be."""

    trial: str
    metric: str
    paper: float | None
    ours: float | None
    better: Literal["higher", "lower"]
    goal: float | None = None
    """What we ask of ourselves, where that is more than the paper reached."""

    @property
    def holds(self) -> bool:
        """Whether ours reaches our goal, or else the paper's figure."""
        asked = self.paper if self.goal is None else self.goal
        if self.ours is None or asked is None:
            return False
        return self.ours >= asked if self.better == "higher" else self.ours <= asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A figure that is no claim of ours: the paper's method in our simulator, a baseline, a calibration."""

    trial: str
    metric: str
    paper: float | None
    simulated: float | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """What a reproduction found."""

    paper: str
    rows: tuple[Row, ...]
    references: tuple[Reference, ...] = ()
    plots: tuple[Path, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else a reader of the document may want: every instance, every scheduler."""

    @property
    def holds(self) -> bool:
        """Whether every row does."""
        return all(row.holds for row in self.rows)

    def document(self) -> dict[str, Any]:
        """As one JSON document."""
        return {
            "paper": self.paper,
            "holds": self.holds,
            "rows": [{**asdict(row), "holds": row.holds} for row in self.rows],
            "references": [asdict(reference) for reference in self.references],
            "plots": [str(plot) for plot in self.plots],
            **({"details": dict(self.details)} if self.details else {}),
        }


class Reproduce(Protocol):
    """Runs a paper's trials; with a folder, draws its figures there."""

    def __call__(self, *, plot: Path | None, tell: Tell) -> Reproduction:
        """What was found."""
        ...
