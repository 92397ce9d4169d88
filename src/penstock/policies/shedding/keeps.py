"""From desired accuracies to keep-probabilities, and what a runtime compares hashes with.

A record has one hash u, uniform in [0, 1), of its `keep_by` columns. It is to reach operator t exactly if
u < threshold(t). Where it was already let through to t' upstream (u < threshold(t')), the conditional probability of
the next step is d(t', t) = threshold(t) / threshold(t'): the keep-probability of the stream. Hence a runtime never
compares the hash with d itself, which would keep min(d₁, d₂) instead of d₁·d₂, but with the product of the
keep-probabilities from the source on. The product is also the record's inclusion probability, its weight 1/product.

Where the hash cannot be carried along (an operator makes new records), a fresh one salted by the stream's id is
compared with that stream's own d. The share kept is the product all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats
from penstock.policies.shedding.graph import Graph
from penstock.policies.shedding.requirements import at_sinks
from penstock.telemetry import Sinks


@dataclass(frozen=True, slots=True, eq=False)
class Keeps:
    """Keep-probabilities: of every operator's own shedder (1 but for sources), and of every stream."""

    desired: Floats
    """Accuracy that each operator is to have."""
    source: Floats
    stream: Floats

    @classmethod
    def of(cls, graph: Graph, sinks: Sinks, accuracy: Floats) -> Keeps:
        """The probabilities that give each sink its accuracy and drop as early as possible (eqs. 14 and 15).

        desired(t) = max over downstream; d = desired at a source; d(t, t') = desired(t') / desired(t) on a stream.
        All inputs of an operator thereby have the same accuracy.
        """
        desired = graph.highest_below(at_sinks(graph, sinks, accuracy))
        above, below = desired[graph.source], desired[graph.target]
        return cls(
            desired=desired,
            source=np.where(graph.level == 0, desired, 1.0),
            stream=np.divide(below, above, out=np.zeros(len(above)), where=above > 0),
        )
