"""Multilevel partitioning with METIS and with Mt-KaHyPar: parts of given sizes with little traffic between them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sparse

from penstock.extras import optional
from penstock.policies.placement.packing import demand_shares, supply_shares
from penstock.policies.placement.problem import Assignment, Floats, Ints, PlacementProblem
from penstock_papers.i_scheduler.packing import repaired

pymetis = optional("pymetis")
mtkahypar = optional("mtkahypar")

# Both libraries add weights in 32-bit integers; totals stay well below that.
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
        vweights=_whole(weights),
        eweights=_whole(adjacency.data),
        tpwgts=None if targets is None else (targets / targets.sum()).tolist(),
        recursive=parts <= 8,
        options=options,
    )
    return np.asarray(result[1], dtype=np.int64)


def metis_alone(problem: PlacementProblem, *, seed: int = 0) -> Assignment:
    """METIS k-way partitioning onto all nodes, each part as large as its node, and overflow repaired.

    Karypis and Kumar, Multilevel k-way partitioning scheme for irregular graphs, JPDC 48(1), 1998.
    """
    return metis_on(problem, np.arange(problem.nodes), seed=seed)


def metis_on(problem: PlacementProblem, nodes: Ints, *, seed: int = 0) -> Assignment:
    """METIS k-way partitioning onto the given nodes; what does not fit there goes to any node with room."""
    problem.require_room()
    targets = supply_shares(problem)[nodes]
    nodes, targets = nodes[targets > 0], targets[targets > 0]
    parts = k_way(problem.adjacency, demand_shares(problem), len(nodes), targets=targets, seed=seed)
    return repaired(problem, nodes[parts])


def kahypar_alone(problem: PlacementProblem, *, seed: int = 0) -> Assignment:
    """Mt-KaHyPar with its quality preset onto all nodes, no part larger than its node, and overflow repaired.

    Gottesbüren, Heuer, Maas, Sanders and Schlag, Scalable high-quality hypergraph partitioning, TALG 2024. One thread,
    as everybody here. Weights are whole numbers there: loads are rounded up, capacities down.
    """
    problem.require_room()
    supply = supply_shares(problem)
    nodes = np.flatnonzero(supply > 0)
    if len(nodes) < 2 or problem.tasks < 2:
        return repaired(problem, np.full(problem.tasks, nodes[0] if len(nodes) else 0, dtype=np.int64))
    mtkahypar.set_seed(seed)
    library = _kahypar_library()
    context = library.context_from_preset(mtkahypar.PresetType.QUALITY)
    context.logging = False
    context.set_partitioning_parameters(len(nodes), 0.0, mtkahypar.Objective.CUT)
    resource = int(np.argmax(problem.loads.sum(axis=0) / problem.capacities.sum(axis=0)))
    # No node needs room for more than everything. The library adds up all parts in 32 bits too.
    total = max(float(problem.loads[:, resource].sum()), 1e-300)
    rooms = np.minimum(problem.limits[nodes, resource], total)
    grain = WEIGHT_TOTAL / max(total, float(rooms.sum()))
    weights = np.maximum(1, np.ceil(problem.loads[:, resource] * grain * (1 - 1e-9))).astype(np.int64)
    # Where rounding left less room than there are weights, every part gets a little more; what overflows is repaired.
    sizes = (rooms * grain).astype(np.int64)
    sizes += max(0, -(-(int(weights.sum()) - int(sizes.sum())) // len(sizes)))
    context.set_individual_target_block_weights(sizes.tolist())
    pairs = sparse.triu(problem.adjacency, format="coo")
    graph = library.create_graph(
        context,
        problem.tasks,
        pairs.nnz,
        list(zip(pairs.row.tolist(), pairs.col.tolist(), strict=True)),
        weights.tolist(),
        _whole(pairs.data).tolist(),
    )
    parts = graph.partition(context)
    return repaired(problem, nodes[[parts.block_id(t) for t in range(problem.tasks)]])


@cache
def _kahypar_library() -> Any:
    return mtkahypar.initialize(1, False)


def largest_nodes(problem: PlacementProblem, fill: float) -> Ints:
    """The fewest nodes, largest first, that hold all tasks when filled to `fill` (0 to 1)."""
    order = np.argsort(-supply_shares(problem), kind="stable")
    enough = np.cumsum(problem.capacities[order], axis=0) * fill >= problem.loads.sum(axis=0) * (1 - 1e-9)
    count = int(np.argmax(enough.all(axis=1))) + 1 if enough.all(axis=1).any() else problem.nodes
    return order[:count]


def worker_groups(problem: PlacementProblem, assignment: Assignment, *, tasks_per_worker: int = 5) -> Ints:
    """[tasks] worker index within the task's node: I-Scheduler's second level.

    A node of n tasks has w = ceil(n / T) workers; its subgraph is partitioned into w parts of at most T tasks
    (algorithm 1, lines 55 to 62; T = 5 in the paper's trials).
    """
    workers = np.zeros(problem.tasks, dtype=np.int64)
    for node in np.unique(assignment):
        members = np.flatnonzero(assignment == node)
        count = -(-len(members) // tasks_per_worker)
        inside = problem.adjacency[members][:, members].tocsr()
        parts = k_way(inside, np.ones(len(members)), count)
        workers[members] = _at_most(inside, parts, count, tasks_per_worker)
    return workers


def _at_most(adjacency: sparse.csr_array, parts: Ints, count: int, size: int) -> Ints:
    """`parts` with no part above `size`: METIS balances only roughly, a worker's limit is strict."""
    result = parts.copy()
    for part in range(count):
        while np.count_nonzero(result == part) > size:
            members = np.flatnonzero(result == part)
            towards = np.zeros((len(members), count))
            for i, vertex in enumerate(members):
                ends = slice(adjacency.indptr[vertex], adjacency.indptr[vertex + 1])
                np.add.at(towards[i], result[adjacency.indices[ends]], adjacency.data[ends])
            gains = towards - towards[:, [part]]
            gains[:, np.bincount(result, minlength=count) >= size] = -np.inf
            mover, to = divmod(int(np.argmax(gains)), count)
            result[members[mover]] = to
    return result


def _whole(values: Floats) -> Ints:
    """`values` as positive integers, scaled only if they are not small integers already."""
    total = float(values.sum())
    if total <= WEIGHT_TOTAL and np.all(values == np.rint(values)):
        return np.maximum(1, values).astype(np.int64)
    return np.maximum(1, np.rint(values * (WEIGHT_TOTAL / total))).astype(np.int64)
