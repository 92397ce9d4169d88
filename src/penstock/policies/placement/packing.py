"""Any placement that fits, traffic or not: what is left when the search finds none."""

from __future__ import annotations

import numpy as np

from penstock.policies.placement.problem import UNPLACED, Assignment, Floats, PlacementProblem, no_packing


def demand_shares(problem: PlacementProblem) -> Floats:
    """[tasks]: the largest share of any resource of the whole cluster that a task needs."""
    total = problem.capacities.sum(axis=0)
    shares: Floats = (problem.loads / np.where(total > 0, total, 1.0)).max(axis=1)
    return shares


def supply_shares(problem: PlacementProblem) -> Floats:
    """[nodes]: the share of all demand a node could carry, in the resource where it carries least."""
    demand = problem.loads.sum(axis=0)
    shares: Floats = (problem.capacities / np.where(demand > 0, demand, 1.0)).min(axis=1)
    return shares


def first_fit(problem: PlacementProblem) -> Assignment:
    """Any placement that fits: largest tasks first, in the tightest and then in the largest node with room.

    Raises DoesNotFitError if neither order finds one; that proves nothing, but says which task was left.
    """
    problem.require_room()
    order, stuck = np.argsort(-demand_shares(problem), kind="stable"), 0
    by_size = np.argsort(-supply_shares(problem), kind="stable")
    for tightest in (True, False):
        free = problem.limits.copy()
        result = np.full(problem.tasks, UNPLACED, dtype=np.int64)
        for task in order:
            fitting = by_size[np.all(problem.loads[task] <= free[by_size], axis=1)]
            if not len(fitting):
                stuck = int(task)
                break
            left = (free[fitting] - problem.loads[task]).min(axis=1)
            result[task] = fitting[np.argmin(left)] if tightest else fitting[0]
            free[result[task]] -= problem.loads[task]
        else:
            return result
    raise no_packing(problem.task_ids[stuck])
