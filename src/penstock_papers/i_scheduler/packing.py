"""Getting every task onto a node with room where a published rule leaves some without: by best connection."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.policies.placement.packing import demand_shares, first_fit
from penstock.policies.placement.problem import UNPLACED, Assignment, Floats, Ints, PlacementProblem


def room_for(load: Floats, free: Floats) -> npt.NDArray[np.bool_]:
    """[nodes]: True where `load` fits into what is `free`."""
    return np.asarray(np.all(load <= free, axis=1))


def free_room(problem: PlacementProblem, assignment: Assignment) -> Floats:
    """[nodes, resources] that `assignment` leaves."""
    return problem.limits - problem.node_loads(assignment)


def connections(problem: PlacementProblem, task: int, assignment: Assignment) -> Floats:
    """[nodes]: traffic `task` exchanges with the tasks placed on each node, and its price to leave home."""
    rows = problem.adjacency
    ends = slice(rows.indptr[task], rows.indptr[task + 1])
    peers = assignment[rows.indices[ends]]
    placed = peers != UNPLACED
    towards: Floats = np.zeros(problem.nodes)
    np.add.at(towards, peers[placed], rows.data[ends][placed])
    if problem.running[task] != UNPLACED:
        towards[problem.running[task]] += problem.move_prices[task]
    return towards


def repaired(problem: PlacementProblem, assignment: Assignment) -> Assignment:
    """`assignment` made to fit: overfull nodes give tasks away, and tasks without a node get one.

    Raises DoesNotFitError if some task finds no room.
    """
    result = assignment.copy()
    for node in np.flatnonzero(np.any(problem.node_loads(result) > problem.limits, axis=1)):
        _shed(problem, result, int(node))
    return placed_rest(problem, result)


def placed_rest(problem: PlacementProblem, assignment: Assignment) -> Assignment:
    """`assignment` with every UNPLACED task, largest first, on the node it talks to most among those with room."""
    result = assignment.copy()
    free = free_room(problem, result)
    waiting = np.flatnonzero(result == UNPLACED)
    shares = demand_shares(problem)
    for task in waiting[np.argsort(-shares[waiting], kind="stable")]:
        node = _most_connected(problem, int(task), result, free)
        if node is None:
            return first_fit(problem)
        result[task] = node
        free[node] -= problem.loads[task]
    return result


def _most_connected(problem: PlacementProblem, task: int, assignment: Assignment, free: Floats) -> int | None:
    fitting: Ints = np.flatnonzero(room_for(problem.loads[task], free))
    if not len(fitting):
        return None
    towards = connections(problem, task, assignment)[fitting]
    best = fitting[towards == towards.max()]
    # Among equals the node with least room left, so that large tasks find room later.
    return int(best[np.argmin((free[best] - problem.loads[task]).min(axis=1))])


def _shed(problem: PlacementProblem, assignment: Assignment, node: int) -> None:
    """Take tasks off an overfull node, those first that keep least traffic for their size."""
    members = np.flatnonzero(assignment == node)
    inside = problem.adjacency[members][:, members].sum(axis=1) + 1e-12
    worth = np.asarray(inside).ravel() / np.maximum(demand_shares(problem)[members], 1e-12)
    load = problem.loads[members].sum(axis=0)
    for task in members[np.argsort(worth, kind="stable")]:
        over = load > problem.limits[node]
        if not over.any():
            return
        if np.any(problem.loads[task][over] > 0):
            assignment[task] = UNPLACED
            load = load - problem.loads[task]


def contracted(problem: PlacementProblem, labels: Ints) -> PlacementProblem:
    """The problem in which the tasks with one label are a single task; labels are 0 … k-1.

    Every placement of it, expanded with `assignment[labels]`, costs the same.
    """
    vertices = int(labels.max(initial=-1)) + 1
    loads = np.zeros((vertices, problem.loads.shape[1]))
    np.add.at(loads, labels, problem.loads)
    first = np.full(vertices, -1, dtype=np.int64)
    first[labels[::-1]] = np.arange(problem.tasks)[::-1]
    return replace(
        problem,
        loads=loads,
        sources=labels[problem.sources],
        targets=labels[problem.targets],
        operators=problem.operators[first],
        running=np.full(vertices, UNPLACED),
        move_prices=np.zeros(vertices),
        task_ids=tuple(problem.task_ids[t] for t in first),
    )
