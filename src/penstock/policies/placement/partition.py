"""Multilevel partitioning with METIS, where it is installed: parts of given sizes with little traffic between them.

Karypis and Kumar, Multilevel k-way partitioning scheme for irregular graphs, JPDC 48(1), 1998.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import scipy.sparse as sparse

from penstock.extras import optional
from penstock.policies.placement.packing import demand_shares, supply_shares
from penstock.policies.placement.problem import Assignment, Floats, Ints, PlacementProblem

pymetis = optional("pymetis")
INSTALLED = find_spec("pymetis") is not None

# Partitioners add weights in 32-bit integers; totals stay well below that.
WEIGHT_TOTAL = 2**28


def k_way(
    adjacency: sparse.csr_array,
    weights: Floats,
    parts: int,
    *,
    targets: Floats | None = None,
    tolerance: float = 0.001,
    seed: int = 0,
) -> Ints:
    """[vertices] part numbers below `parts`; part i holds about `targets[i]` of all weight, or an equal share.

    pymetis balances one weight per vertex (METIS itself knows several), so several resources come as their
    largest share and are checked afterwards.
    """
    vertices = len(weights)
    if parts <= 1:
        return np.zeros(vertices, dtype=np.int64)
    if parts >= vertices:
        return np.arange(vertices, dtype=np.int64)
    options = pymetis.Options(seed=seed, ufactor=max(1, round(1000 * tolerance)))
    result = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(
            adj_starts=adjacency.indptr.astype(np.int64), adjacent=adjacency.indices.astype(np.int64)
        ),
        vweights=whole_numbers(weights),
        eweights=whole_numbers(adjacency.data),
        tpwgts=None if targets is None else (targets / targets.sum()).tolist(),
        recursive=parts <= 8,
        options=options,
    )
    return np.asarray(result[1], dtype=np.int64)


def partitioned(problem: PlacementProblem, nodes: Ints, *, seed: int = 0) -> Assignment:
    """Tasks in parts about as large as the given nodes. Some nodes may be too full, by a little or by a large task."""
    targets = supply_shares(problem)[nodes]
    nodes, targets = nodes[targets > 0], targets[targets > 0]
    if not len(nodes):  # nothing to hold, and nothing that holds
        return np.zeros(problem.tasks, dtype=np.int64)
    return nodes[k_way(problem.adjacency, demand_shares(problem), len(nodes), targets=targets, seed=seed)]


def largest_nodes(problem: PlacementProblem, fill: float) -> Ints:
    """The fewest nodes, largest first, that hold all tasks when filled to `fill` (0 to 1)."""
    order = np.argsort(-supply_shares(problem), kind="stable")
    enough = np.cumsum(problem.capacities[order], axis=0) * fill >= problem.loads.sum(axis=0) * (1 - 1e-9)
    count = int(np.argmax(enough.all(axis=1))) + 1 if enough.all(axis=1).any() else problem.nodes
    return order[:count]


def whole_numbers(values: Floats) -> Ints:
    """`values` as positive integers, scaled only if they are not small integers already."""
    total = float(values.sum())
    if total <= WEIGHT_TOTAL and np.all(values == np.rint(values)):
        return np.maximum(1, values).astype(np.int64)
    return np.maximum(1, np.rint(values * (WEIGHT_TOTAL / total))).astype(np.int64)
