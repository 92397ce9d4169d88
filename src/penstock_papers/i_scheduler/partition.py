"""Multilevel partitioners as rivals: METIS and Mt-KaHyPar, with what overflows repaired."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sparse

from penstock.extras import optional
from penstock.policies.placement.packing import supply_shares
from penstock.policies.placement.partition import WEIGHT_TOTAL, k_way, partitioned, whole_numbers
from penstock.policies.placement.problem import Assignment, Ints, PlacementProblem
from penstock_papers.i_scheduler.packing import repaired

mtkahypar = optional("mtkahypar")


def metis_alone(problem: PlacementProblem, *, seed: int = 0) -> Assignment:
    """METIS k-way partitioning onto all nodes, each part as large as its node, and overflow repaired."""
    return metis_on(problem, np.arange(problem.nodes), seed=seed)


def metis_on(problem: PlacementProblem, nodes: Ints, *, seed: int = 0) -> Assignment:
    """METIS k-way partitioning onto the given nodes; what does not fit there goes to any node with room."""
    problem.require_room()
    return repaired(problem, partitioned(problem, nodes, seed=seed))


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
        whole_numbers(pairs.data).tolist(),
    )
    parts = graph.partition(context)
    return repaired(problem, nodes[[parts.block_id(t) for t in range(problem.tasks)]])


@cache
def _kahypar_library() -> Any:
    return mtkahypar.initialize(1, False)


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
