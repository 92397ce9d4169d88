"""The problem over counts: interchangeable tasks are one group, interchangeable nodes one class.

Tasks of one operator that send and receive alike can be swapped without changing any cost, and so can nodes of
one size. A placement is then how many tasks of each group sit on each node: far smaller than which task sits
where. The paper's diamond of 32 tasks has two groups, whatever its number of operators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.policies.placement.problem import UNPLACED, Assignment, Floats, Ints, PlacementProblem

Counts = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountProblem:
    """Groups of interchangeable tasks on classes of interchangeable nodes."""

    members: tuple[Ints, ...]
    """Tasks of each group."""
    sizes: Ints
    """[groups]"""
    loads: Floats
    """[groups, resources] of one task"""
    rates: Floats
    """[groups, groups] between one task of the one and one task of the other; the diagonal is 0."""
    classes: tuple[Ints, ...]
    """Nodes of each class."""
    limits: Floats
    """[classes, resources] of one node"""
    bonus: Floats
    """[groups, classes]: price saved for each task of the group that stays on this (then single) node."""
    total: float
    """Objective if nothing were kept together: all traffic and all move prices."""


def count_problem(problem: PlacementProblem, members: tuple[Ints, ...]) -> CountProblem:
    """`problem` over counts of its `task_groups`; both have the same optimum."""
    first = np.array([m[0] for m in members], dtype=np.int64)
    homes = _priced(problem)
    classes = _node_classes(problem, np.unique(problem.running[homes]))
    bonus = np.zeros((len(members), len(classes)))
    for k, nodes in enumerate(classes):
        stays = homes[first] & (problem.running[first] == nodes[0])
        bonus[stays, k] = problem.move_prices[first[stays]]
    return CountProblem(
        members=members,
        sizes=np.array([len(m) for m in members], dtype=np.int64),
        loads=problem.loads[first],
        rates=problem.adjacency[first][:, first].toarray(),
        classes=classes,
        limits=problem.limits[[nodes[0] for nodes in classes]],
        bonus=bonus,
        total=problem.traffic + float(problem.move_prices[problem.running != UNPLACED].sum()),
    )


def spread(counts: CountProblem, chosen: list[tuple[int, Counts]], tasks: int) -> Assignment:
    """An assignment of the single tasks for a choice of (class, tasks of each group) per used node."""
    assignment = np.full(tasks, UNPLACED, dtype=np.int64)
    used = [0] * len(counts.classes)
    taken = np.zeros(len(counts.members), dtype=np.int64)
    for k, pattern in chosen:
        node = counts.classes[k][used[k]]
        used[k] += 1
        for g in np.flatnonzero(pattern):
            assignment[counts.members[g][taken[g] : taken[g] + pattern[g]]] = node
            taken[g] += pattern[g]
    return assignment


def patterns_of(counts: CountProblem, assignment: Assignment) -> list[tuple[int, Counts]]:
    """The (class, tasks of each group) of every node that `assignment` uses."""
    group = np.empty(len(assignment), dtype=np.int64)
    for g, members in enumerate(counts.members):
        group[members] = g
    chosen = []
    for k, nodes in enumerate(counts.classes):
        for node in nodes:
            pattern = np.bincount(group[assignment == node], minlength=len(counts.members)).astype(np.int16)
            if pattern.any():
                chosen.append((k, pattern))
    return chosen


def enumerate_patterns(counts: CountProblem, limit: int) -> list[Counts] | None:
    """Every way to fill one node, for each class, or None if there are more than `limit` in all."""
    found = []
    for k in range(len(counts.classes)):
        patterns = _fillings(counts, counts.limits[k], limit)
        if patterns is None:
            return None
        limit -= len(patterns)
        found.append(patterns)
    return found


def pattern_values(counts: CountProblem, patterns: Counts, k: int) -> Floats:
    """Traffic kept on a node of class `k` (and move prices saved) by each pattern: ½ cᵀRc + b·c."""
    wide = patterns.astype(np.float64)
    kept: Floats = 0.5 * np.einsum("pg,pg->p", wide @ counts.rates, wide) + wide @ counts.bonus[:, k]
    return kept


def _fillings(counts: CountProblem, limit_of_node: Floats, limit: int) -> Counts | None:
    groups = len(counts.sizes)
    patterns = np.zeros((1, groups), dtype=np.int16)
    loads = np.zeros((1, counts.loads.shape[1]))
    for g in range(groups):
        grown, grown_loads = [patterns], [loads]
        current, current_loads = patterns, loads
        for _ in range(int(counts.sizes[g])):
            current_loads = current_loads + counts.loads[g]
            fit = np.all(current_loads <= limit_of_node, axis=1)
            if not fit.any():
                break
            current, current_loads = current[fit], current_loads[fit]
            current = current.copy()
            current[:, g] += 1
            grown.append(current)
            grown_loads.append(current_loads)
            if sum(map(len, grown)) > limit:
                return None
        patterns, loads = np.concatenate(grown), np.concatenate(grown_loads)
    return patterns


def _priced(problem: PlacementProblem) -> npt.NDArray[np.bool_]:
    priced: npt.NDArray[np.bool_] = (problem.running != UNPLACED) & (problem.move_prices > 0)
    return priced


def task_groups(problem: PlacementProblem) -> tuple[Ints, ...]:
    """Tasks with the same load, the same traffic to every other task, and the same home and price."""
    priced = _priced(problem)
    rows = problem.adjacency
    groups: dict[bytes, list[int]] = {}
    for t in range(problem.tasks):
        ends = slice(rows.indptr[t], rows.indptr[t + 1])
        home = problem.running[t] if priced[t] else UNPLACED
        price = problem.move_prices[t] if priced[t] else 0.0
        key = b"|".join(
            part.tobytes()
            for part in (problem.loads[t], rows.indices[ends], rows.data[ends], np.array([home, price]))
        )
        groups.setdefault(key, []).append(t)
    return tuple(np.array(tasks, dtype=np.int64) for tasks in groups.values())


def _node_classes(problem: PlacementProblem, homes: Ints) -> tuple[Ints, ...]:
    """Nodes of one capacity; a node that priced tasks call home is a class of its own."""
    classes: dict[tuple[bytes, int], list[int]] = {}
    for n in range(problem.nodes):
        own = n if n in homes else UNPLACED
        classes.setdefault((problem.capacities[n].tobytes(), own), []).append(n)
    return tuple(np.array(nodes, dtype=np.int64) for nodes in classes.values())
