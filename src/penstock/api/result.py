"""What a run comes to: the figures, and whether the goals were held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The figures of a run or a simulation, as the JSON of the command line has them."""

    figures: Mapping[str, Any]
    missed: tuple[str, ...] = ()
    """Goals that were declared and not held, one line each."""
    failure: str | None = None
    """Why the query ended before it should have; None: it did not."""

    @property
    def held(self) -> bool:
        """Whether every declared goal was held."""
        return not self.missed

    def __getitem__(self, figure: str) -> Any:
        return self.figures[figure]

    def to_dict(self) -> dict[str, Any]:
        """One plain document."""
        return {**self.figures, "missed": list(self.missed), "failure": self.failure}
