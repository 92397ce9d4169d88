"""How much longer than asked a backlog takes to drain, where even the minima leave too little CPU for it."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.policies.shedding.cpu import Demand
from penstock.policies.shedding.graph import Graph
from penstock.policies.shedding.moves import FITS
from penstock.telemetry.moments import totals


def stretch_of(
    graph: Graph, operator: Ints, node: Ints, demand: Demand, min_accuracy: Floats, available: Floats
) -> Floats:
    """Per operator, the same for a whole application: 1 or less, its backlogs drain in time; infinite: never.

    At the minima, draining needs `extra` cores beside the steady ones. With only `spare` cores, on a node or in the
    core of a single task, it takes extra / spare times as long. An application is as slow as its slowest part, so
    other sinks need not shed for more than that.
    """
    steady = demand.minimum(min_accuracy)
    extra = np.minimum(demand.drain_base + min_accuracy * demand.drain_slope - steady, 1e9)
    extra = np.where(extra > FITS, extra, 0.0)
    placed = node >= 0
    per_node = [totals(node[placed], cores[placed], len(available)) for cores in (extra, steady)]
    together = np.append(_ratio(per_node[0], available - per_node[1]), 0.0)[node]
    alone = _ratio(extra, demand.core - steady)
    felt = np.where(extra > 0, np.maximum(alone, together), 0.0)
    stretch = np.zeros(len(graph))
    np.maximum.at(stretch, graph.application[operator], felt)
    return stretch[graph.application]


def _ratio(extra: Floats, spare: Floats) -> Floats:
    return np.divide(extra, spare, out=np.where(extra > 0, np.inf, 0.0), where=spare > FITS)
