"""The schedulers of the Storm family as they are published: what placement is compared with.

Each keeps its own rule for choosing. All of them leave a node alone that has no room, and a task that its rule
cannot place any more goes to the node it talks to most among those with room, so that capacities always hold.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.policies.placement.problem import UNPLACED, Assignment, Floats, PlacementProblem
from penstock_papers.i_scheduler.jobs import jobs, members, neighbours
from penstock_papers.i_scheduler.packing import connections, contracted, placed_rest, room_for
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


def r_storm(problem: PlacementProblem) -> Assignment:
    """R-Storm as Storm 1.1.1 ships it, the version of the paper's trials: components by connections, nodes in order.

    Apache Storm, DefaultResourceAwareStrategy (Peng, Hosseini, Hong, Farivar and Campbell, R-Storm: Resource-aware
    scheduling in Storm, Middleware 2015, is its origin). One job after the other. Nodes are sorted once for a job, by
    the smallest share of what is free in any resource, then by the mean share, then by id; every executor goes to the
    first of them that has room in all resources. It sees numbers of tasks and connections, not traffic.
    """
    problem.require_room()
    free = problem.limits.copy()
    result = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    for job in executor_orders(problem):
        share = _ratio(free, np.maximum(free.sum(axis=0), 1e-300))
        nodes = np.lexsort((np.arange(problem.nodes), -share.mean(axis=1), -share.min(axis=1)))
        for task in job:
            fitting = nodes[room_for(problem.loads[task], free[nodes])]
            if len(fitting):
                result[task] = fitting[0]
                free[fitting[0]] -= problem.loads[task]
    return placed_rest(problem, result)


def executor_orders(problem: PlacementProblem) -> list[list[int]]:
    """Tasks of each job in the order in which Storm 1.1.1 places them.

    Components by the connections they need (tasks times tasks of each neighbour), most first; then of each such
    component and of each of its neighbours, those with most tasks first, one task in turn, until they have none left.
    """
    job_of, tasks_of = jobs(problem), members(problem)
    beside = neighbours(problem)
    waiting = {operator: list(tasks) for operator, tasks in tasks_of.items()}
    needed = {o: len(tasks_of[o]) * sum(len(tasks_of[n]) for n in beside[o]) for o in tasks_of}
    orders: dict[int, list[int]] = {int(job): [] for job in np.unique(job_of)}
    for component in sorted(tasks_of, key=lambda o: (-needed[o], o)):
        near = sorted(set(beside[component]), key=lambda o: (-len(tasks_of[o]), o))
        order = orders[int(job_of[tasks_of[component][0]])]
        while turn := [waiting[o].pop(0) for o in (component, *near) if waiting[o]]:
            order.extend(turn)
    return list(orders.values())


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
    between_workers = contracted(problem, labels)
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
