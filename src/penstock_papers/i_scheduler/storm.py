"""The schedulers of the Storm family as they are published: what placement is compared with.

Each keeps its own rule for choosing. All of them leave a node alone that has no room, and a task that its rule
cannot place any more goes to the node it talks to most among those with room, so that capacities always hold.
"""

from __future__ import annotations

import math
from itertools import zip_longest

import numpy as np

from penstock.policies.placement.packing import connections, placed_rest, room_for
from penstock.policies.placement.problem import UNPLACED, Assignment, Floats, PlacementProblem
from penstock_papers.i_scheduler.jobs import breadth_first, jobs, members
from penstock_papers.i_scheduler.pairing import paired


def round_robin(problem: PlacementProblem) -> Assignment:
    """Storm's even scheduler: tasks in order, one to each node in turn, nodes with most room first.

    Apache Storm, org.apache.storm.scheduler.EvenScheduler: slots sorted by free slots per supervisor,
    descending, and interleaved; executor i goes to slot i modulo the number of slots.
    """
    problem.require_room()
    order = np.argsort(-_sizes(problem.limits, problem), kind="stable")
    free = problem.limits.copy()
    result = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    turn = 0
    for task in range(problem.tasks):
        for step in range(problem.nodes):
            node = order[(turn + step) % problem.nodes]
            if np.all(problem.loads[task] <= free[node]):
                result[task] = node
                free[node] -= problem.loads[task]
                turn = (turn + step + 1) % problem.nodes
                break
    return placed_rest(problem, result)


def r_storm(problem: PlacementProblem, *, soft: tuple[str, ...] = ()) -> Assignment:
    """R-Storm: tasks breadth-first over the operators, each to the node nearest in resource space.

    Peng, Hosseini, Hong, Farivar and Campbell, R-Storm: Resource-aware scheduling in Storm, Middleware 2015,
    in our reading without the original at hand. One job after the other: operators in breadth-first order from the
    sources, one task of each in turn; the first task on the node with most resources (the reference), every other
    on the node that minimises the Euclidean distance between what the task needs and what the node has left, with
    the network distance to the reference node as one more axis. Resources in `soft` may be exceeded, as the paper
    allows for CPU and bandwidth; none by default, so that its placements can be compared.
    """
    problem.require_room()
    hard = np.array([name not in soft for name in problem.resources])
    scale = problem.limits.max(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    free = problem.limits.copy()
    result = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    for job in _task_order(problem):
        reference: int | None = None
        for task in job:
            fitting = np.flatnonzero(room_for(problem.loads[task][hard], free[:, hard]))
            if not len(fitting):
                continue
            if reference is None:
                node = reference = int(fitting[np.argmax((free[fitting] / scale).sum(axis=1))])
            else:
                apart = ((free[fitting] - problem.loads[task]) / scale) ** 2
                node = int(fitting[np.argmin(apart.sum(axis=1) + (fitting != reference))])
            result[task] = node
            free[node] -= problem.loads[task]
    return placed_rest(problem, result)


def t_storm(problem: PlacementProblem, *, consolidation: float = 2.0) -> Assignment:
    """T-Storm: tasks by total traffic, each where it adds least traffic between nodes.

    Xu, Chen, Tang and Su, T-Storm: Traffic-aware online scheduling in Storm, ICDCS 2014, in our reading without the
    original at hand (γ = 2 is our choice): executors in
    descending order of incoming and outgoing traffic; one worker per node; a node takes no more than its capacity
    and no more than `consolidation` (γ) times its even share of the executors. Ties go to the first node.
    """
    problem.require_room()
    most = math.ceil(consolidation * problem.tasks / problem.nodes)
    order = np.argsort(-_sizes(problem.limits, problem), kind="stable")
    traffic = np.asarray(problem.adjacency.sum(axis=1)).ravel()
    free = problem.limits.copy()
    count = np.zeros(problem.nodes, dtype=np.int64)
    result = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    for task in np.argsort(-traffic, kind="stable"):
        fitting = order[room_for(problem.loads[task], free[order]) & (count[order] < most)]
        if not len(fitting):
            continue
        # Least added traffic is most traffic kept with the tasks that are already there.
        node = fitting[np.argmax(connections(problem, int(task), result)[fitting])]
        result[task] = node
        free[node] -= problem.loads[task]
        count[node] += 1
    return placed_rest(problem, result)


def ols(
    problem: PlacementProblem, *, alpha: float = 0.0, beta: float = 1.0, delta: float = 0.0
) -> Assignment:
    """OLS: pairs of tasks by traffic into workers, then pairs of workers by traffic onto nodes, least loaded first.

    Aniello, Baldoni and Querzoni, Adaptive online scheduling in Storm, DEBS 2013, as in the authors'
    OnlineScheduler (github.com/leonardoaniello/storm-adaptive-schedulers), with its formulas and defaults: α is how
    unevenly tasks may be spread over workers, β how many nodes are used, δ how unevenly workers may be spread over
    them; by default evenly over all. How many workers there are is the user's choice there; here every node offers
    as many as slots of the smallest node's size fit on it. Capacities hold before α, β and δ do.
    """
    problem.require_room()
    slot = problem.limits[np.argmin(_sizes(problem.limits, problem))]
    slots = int(np.floor(_ratio(problem.limits, slot).min(axis=1) + 1e-9).sum())
    workers = max(1, min(slots, problem.tasks))
    in_worker = paired(problem, np.tile(slot, (workers, 1)), _most(problem.tasks, workers, alpha))
    if np.any(in_worker == UNPLACED):
        waiting = np.flatnonzero(in_worker == UNPLACED)
        used = int(in_worker.max(initial=-1)) + 1
        in_worker[waiting] = used + np.arange(len(waiting))
    _, labels = np.unique(in_worker, return_inverse=True)
    between_workers = problem.contracted(labels)
    workers = between_workers.tasks
    most = max(1, min(problem.nodes, workers))
    fewest = math.ceil(workers / most)
    nodes = min(most, max(1, fewest + math.ceil(beta * (most - fewest))))
    on_node = paired(between_workers, problem.limits, _most(workers, nodes, delta))
    return placed_rest(problem, _on_more_nodes(between_workers, on_node, nodes)[labels])


def _most(parts: int, bins: int, uneven: float) -> int:
    """How many of `parts` one of `bins` may hold: its even share (0) up to all that leave one to each other bin (1)."""
    even = math.ceil(parts / bins)
    return even + math.ceil(uneven * (parts - bins + 1 - even))


def _on_more_nodes(problem: PlacementProblem, assignment: Assignment, wanted: int) -> Assignment:
    """`assignment` on at least `wanted` nodes, if they have room: what shares a node and talks least there leaves."""
    result = assignment.copy()
    ends = np.repeat(np.arange(problem.tasks), np.diff(problem.adjacency.indptr))
    peers, rates = problem.adjacency.indices, problem.adjacency.data
    while True:
        count = np.bincount(result[result != UNPLACED], minlength=problem.nodes)
        if np.count_nonzero(count) >= wanted:
            return result
        shared = np.flatnonzero((result != UNPLACED) & (count[result] > 1))
        kept = np.bincount(ends, rates * (result[peers] == result[ends]), problem.tasks)[shared]
        empty = np.flatnonzero(count == 0)
        for task in shared[np.argsort(kept, kind="stable")]:
            fitting = empty[room_for(problem.loads[task], problem.limits[empty])]
            if len(fitting):
                result[task] = fitting[0]
                break
        else:
            return result


def _task_order(problem: PlacementProblem) -> list[list[int]]:
    """Tasks of each job in R-Storm's order: operators breadth-first, then one task of each in turn."""
    job_of, tasks_of = jobs(problem), members(problem)
    operators: dict[int, list[list[int]]] = {}
    for operator in breadth_first(problem):
        operators.setdefault(int(job_of[tasks_of[operator][0]]), []).append(tasks_of[operator])
    return [
        [t for turn in zip_longest(*lists) for t in turn if t is not None] for lists in operators.values()
    ]


def _ratio(part: Floats, whole: Floats) -> Floats:
    """`part` of `whole`, infinite where there is no whole."""
    ratio: Floats = np.full(np.broadcast_shapes(part.shape, whole.shape), np.inf)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio


def _sizes(limits: Floats, problem: PlacementProblem) -> Floats:
    """[nodes]: size of each node over all resources, each as a share of the largest node's."""
    largest = problem.limits.max(axis=0)
    sizes: Floats = (limits / np.where(largest > 0, largest, 1.0)).sum(axis=1)
    return sizes
