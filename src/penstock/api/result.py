"""What a run comes to: the figures, and whether the goals were held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.dataflow import Dataflow

SAMPLING_SLACK = 0.02
"""Which records are kept is decided by their hash: of a share told, a little more or less is kept."""


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


def missed_goals(dataflow: Dataflow, figures: Mapping[str, Any]) -> tuple[str, ...]:
    """The constraints and minima that did not hold, one line each; what was not measured is not missed."""
    constraints = [
        f"{c['name']}: {c['statistic']} latency at most {c['bound_ms']:g} ms, held in {c['held']:.0%} of the intervals"
        for c in figures["constraints"]
        if c["held"] not in (None, 1)
    ]
    minima = [
        f"{sink.id}: accuracy at least {sink.min_accuracy:.0%}, was {accuracy:.0%}"
        for sink in dataflow.sinks
        if (accuracy := figures["accuracy"][sink.id]) is not None
        and accuracy < sink.min_accuracy * (1 - SAMPLING_SLACK)
    ]
    return (*constraints, *minima)
