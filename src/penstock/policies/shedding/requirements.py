"""What users demand of sinks, carried up to every operator that works for them (eqs. 1 and 2 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.policies.shedding.graph import Graph
from penstock.telemetry import Sinks

NOBODY = np.iinfo(np.int64).min
"""Priority of an operator that no sink depends on."""


@dataclass(frozen=True, slots=True, eq=False)
class Restrictions:
    """Priority and minimum accuracy, per operator."""

    priority: Ints
    """p(t) = max p(q) over the sinks q below."""
    min_accuracy: Floats
    """minAc(t) = max minAc(q) over the sinks q below."""

    @classmethod
    def of(cls, graph: Graph, sinks: Sinks) -> Restrictions:
        """Both maxima for the whole dataflow."""
        # Ranks, because priorities may be any integers and the walk is in floats.
        priorities, rank = np.unique(sinks.priority, return_inverse=True)
        highest = at_sinks(graph, sinks, rank.astype(np.float64), elsewhere=-1.0)
        rank_of = graph.highest_below(highest).astype(np.int64)
        return cls(
            priority=np.append(priorities, NOBODY)[rank_of],
            min_accuracy=graph.highest_below(at_sinks(graph, sinks, sinks.min_accuracy)),
        )


def at_sinks(graph: Graph, sinks: Sinks, values: Floats, elsewhere: float = 0.0) -> Floats:
    """An array over operators with the given values at the sinks."""
    spread = np.full(len(graph), elsewhere)
    spread[sinks.operator] = values
    return spread
