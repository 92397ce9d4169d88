"""Which operators belong together, and in which order: what the published schedulers ask of a dataflow."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from penstock.policies.placement.problem import Ints, PlacementProblem


def jobs(problem: PlacementProblem) -> Ints:
    """[tasks] job number: operators that streams connect are one job."""
    known, index = np.unique(problem.operators, return_inverse=True)
    shape = (len(known), len(known))
    joined = coo_array(
        (np.ones(len(problem.rates)), (index[problem.sources], index[problem.targets])), shape=shape
    )
    _, job = connected_components(joined, directed=False)
    return np.asarray(job, dtype=np.int64)[index]


def members(problem: PlacementProblem) -> dict[int, list[int]]:
    """Tasks of each operator, in order."""
    tasks: dict[int, list[int]] = {}
    for task, operator in enumerate(problem.operators.tolist()):
        tasks.setdefault(operator, []).append(task)
    return tasks


def neighbours(problem: PlacementProblem) -> dict[int, list[int]]:
    """Operators that each operator sends to, then those it gets from; one that does both stands twice."""
    followers = _followers(problem)
    before: dict[int, list[int]] = {operator: [] for operator in followers}
    for operator, after in followers.items():
        for b in after:
            before[b].append(operator)
    return {operator: followers[operator] + before[operator] for operator in followers}


def producers_first(problem: PlacementProblem) -> list[int]:
    """Operators with producers before consumers; what a cycle hides comes last, by number."""
    followers = _followers(problem)
    waiting = dict.fromkeys(followers, 0)
    for after in followers.values():
        for b in after:
            waiting[b] += 1
    order = [o for o, count in waiting.items() if count == 0]
    for operator in order:
        for b in followers[operator]:
            waiting[b] -= 1
            if waiting[b] == 0:
                order.append(b)
    return order + [o for o, count in waiting.items() if count > 0]


def _followers(problem: PlacementProblem) -> dict[int, list[int]]:
    """Operators each operator sends to, in ascending order."""
    pairs = np.unique(
        np.stack([problem.operators[problem.sources], problem.operators[problem.targets]]), axis=1
    )
    followers: dict[int, list[int]] = {int(o): [] for o in np.unique(problem.operators)}
    for a, b in pairs.T.tolist():
        if a != b:
            followers[a].append(b)
    return followers
