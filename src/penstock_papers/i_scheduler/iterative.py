"""I-Scheduler: partition, fuse, repeat with the next node size, and let an exact solver finish.

Eskandari, Mair, Huang and Eyers, I-Scheduler: Iterative scheduling for distributed stream processing systems,
Future Generation Computer Systems, 2020, algorithm 1. The pseudo-code prints floors on lines 27 and 38; the
text's ceilings are used. Equation 8 counts the vertices still in the graph, fused ones included: with unfused
tasks only, the paper's own example would fuse nothing in its second iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.policies.placement.budget import Budget, Clock, budget_of
from penstock.policies.placement.exact import proved
from penstock.policies.placement.packing import demand_shares, supply_shares
from penstock.policies.placement.partition import k_way
from penstock.policies.placement.problem import (
    UNPLACED,
    Assignment,
    DoesNotFitError,
    Floats,
    Ints,
    PlacementProblem,
    placement_problem,
)
from penstock.policies.placement.search import searched
from penstock_papers.i_scheduler.packing import contracted, placed_rest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Iteration:
    """One round of the first level, as the paper's figure 2 shows it."""

    capacity: Floats
    """Capacity of the node size of this round."""
    parts: int
    """k, parts the unfused tasks were divided into."""
    wanted: int
    """β, fusions that would reach φ (or k, without a solver)."""
    fused: tuple[Ints, ...]
    """Tasks of each of the α fused parts."""
    vertices: int
    """Vertices left in the graph, fused and unfused."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstLevel:
    """What the first level did and where it put every task."""

    iterations: tuple[Iteration, ...]
    labels: Ints
    """[tasks]: vertex of the last graph that holds the task."""
    solver: bool
    """True if the exact solver placed the last graph, False if parts were mapped directly."""
    assignment: Assignment


def first_level(problem: PlacementProblem, *, threshold: int, budget: Budget) -> FirstLevel:
    """Placement on nodes by iterative partitioning; `threshold` is φ, 0 to never use the solver."""
    problem.require_room()
    solver, phi = threshold > 0, threshold
    labels = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    direct = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    iterations: list[Iteration] = []
    fusions = 0
    for nodes in _node_sizes(problem):
        unfused = np.flatnonzero(labels == UNPLACED)
        if not len(unfused) or len(unfused) + fusions <= phi:
            break
        capacity = problem.limits[nodes[0]]
        k = _parts_needed(problem.loads[unfused], capacity)
        if k == 1:
            parts, wanted = [unfused], 1
        else:
            if solver and k > phi:
                solver, phi = False, 0
            wanted = (
                _fusions_wanted(len(unfused) + fusions - phi, _tasks_per_part(problem, unfused, capacity))
                if solver
                else k
            )
            parts = _parts(problem, unfused, k, capacity)
        fused = tuple(parts[: min(wanted, len(nodes))])
        for part, node in zip(fused, nodes, strict=False):
            labels[part], direct[part] = fusions, node
            fusions += 1
        left = int(np.count_nonzero(labels == UNPLACED))
        iterations.append(
            Iteration(
                capacity=problem.capacities[nodes[0]],
                parts=k,
                wanted=wanted,
                fused=fused,
                vertices=left + fusions,
            )
        )
        if k == 1:
            break
    singles = np.flatnonzero(labels == UNPLACED)
    labels[singles] = fusions + np.arange(len(singles))
    assignment = _solved(problem, labels, direct, budget) if solver else placed_rest(problem, direct)
    return FirstLevel(iterations=tuple(iterations), labels=labels, solver=solver, assignment=assignment)


def i_scheduler(problem: PlacementProblem, *, threshold: int, budget: Budget) -> Assignment:
    """The nodes I-Scheduler chooses; its workers within nodes are `partition.worker_groups` of them."""
    return first_level(problem, threshold=threshold, budget=budget).assignment


def calibrated_threshold(seconds: float, clock: Clock, *, largest: int = 40, seed: int = 0) -> int:
    """φ: the most tasks the exact solver places, proved, within `seconds` on this machine; 0 for θ = 0.

    Tried on graphs without any symmetry (every rate differs), the hardest of their size, on the paper's unequal
    cluster scaled to the tasks; the search stops at the first size that takes too long.
    """
    threshold = 0
    for tasks in range(4, largest + 1, 2):
        if seconds <= 0.0:
            break
        trial = _trial(tasks, seed + tasks)
        began_s = clock()
        budget = budget_of(seconds, clock)
        answer = proved(trial, searched(trial, None, budget, rounds=1, seed=seed), budget)
        if clock() - began_s > seconds or answer.lower_bound < trial.objective(answer.assignment):
            break
        threshold = tasks
    return threshold


def _trial(tasks: int, seed: int) -> PlacementProblem:
    rng = np.random.default_rng(seed)
    linked = np.triu(rng.random((tasks, tasks)) < min(1.0, 4.0 / tasks), 1)
    sources, targets = np.nonzero(linked)
    capacities = np.tile([6.0, 4.0, 2.0], -(-5 * tasks // 48))  # a fifth of the cluster stays free
    return placement_problem(
        loads=np.ones(tasks),
        capacities=capacities,
        sources=sources,
        targets=targets,
        rates=rng.integers(1, 100, len(sources)),
    )


def _node_sizes(problem: PlacementProblem) -> list[Ints]:
    """Nodes of equal capacity, the largest size first."""
    sizes: dict[bytes, list[int]] = {}
    for node in np.argsort(-supply_shares(problem), kind="stable"):
        sizes.setdefault(problem.capacities[node].tobytes(), []).append(int(node))
    return [np.array(nodes, dtype=np.int64) for nodes in sizes.values()]


def _parts_needed(loads: Floats, capacity: Floats) -> int:
    """The parts k = ceil(t / c) (equation 6), in the resource that needs most parts."""
    need = loads.sum(axis=0)
    return max(1, int(np.ceil(np.max(np.divide(need, capacity, out=np.zeros_like(need), where=need > 0)))))


def _tasks_per_part(problem: PlacementProblem, tasks: Ints, capacity: Floats) -> float:
    """The c of equation 8: how many tasks of mean load a node of this size holds."""
    mean = problem.loads[tasks].mean(axis=0)
    return float(np.min(np.divide(capacity, mean, out=np.full_like(mean, np.inf), where=mean > 0)))


def _fusions_wanted(excess: int, tasks_per_part: float) -> int:
    """β = ceil((t - φ) / (c - 1)) (equation 8); parts of one task fuse nothing."""
    whole = round(tasks_per_part, 6)
    return 0 if whole <= 1.0 else int(np.ceil(excess / (whole - 1.0)))


def _parts(problem: PlacementProblem, tasks: Ints, k: int, capacity: Floats) -> list[Ints]:
    """The k parts of the unfused tasks that fit the capacity, the one that keeps most traffic first."""
    inside = problem.adjacency[tasks][:, tasks].tocsr()
    numbers = k_way(inside, demand_shares(problem)[tasks], k)
    parts = [_trimmed(problem, tasks[numbers == i], capacity) for i in range(k)]
    kept = [float(problem.adjacency[part][:, part].sum()) for part in parts]
    order = np.argsort([-value for value in kept], kind="stable")
    return [parts[i] for i in order if len(parts[i])]


def _trimmed(problem: PlacementProblem, part: Ints, capacity: Floats) -> Ints:
    """`part` without the tasks that keep least, until it fits: METIS sizes its parts only roughly."""
    while len(part) and np.any(problem.loads[part].sum(axis=0) > capacity):
        kept = np.asarray(problem.adjacency[part][:, part].sum(axis=1)).ravel()
        over = problem.loads[part].sum(axis=0) > capacity
        helps = np.any(problem.loads[part][:, over] > 0, axis=1)
        part = np.delete(part, np.flatnonzero(helps)[np.argmin(kept[helps])])
    return part


def _solved(problem: PlacementProblem, labels: Ints, direct: Assignment, budget: Budget) -> Assignment:
    """The exact solver's placement of the fused graph, or direct mapping where it finds none."""
    small = contracted(problem, labels)
    try:
        return proved(small, searched(small, None, budget, rounds=1), budget).assignment[labels]
    except DoesNotFitError:
        return placed_rest(problem, direct)
