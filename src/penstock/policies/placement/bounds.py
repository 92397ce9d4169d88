"""Traffic that must cross nodes whatever the placement: a quick lower bound for problems of any size."""

from __future__ import annotations

import numpy as np

from penstock.policies.placement.problem import UNPLACED, PlacementProblem


def quick_bound(problem: PlacementProblem) -> float:
    """A lower bound on the objective from each task's best possible neighbourhood.

    On any node at most the capacity of the largest node is left beside a task, so of its traffic it can keep at
    most a fractional knapsack of its heaviest streams per load. Each kept stream is counted at both its ends:
    cost ≥ traffic - ½ Σ_t kept(t). With several resources the tightest one counts.
    """
    if problem.tasks == 0:
        return 0.0
    rows = problem.adjacency
    ends = np.repeat(np.arange(problem.tasks), np.diff(rows.indptr))
    kept = np.asarray(rows.sum(axis=1)).ravel().astype(np.float64)
    for r in range(problem.loads.shape[1]):
        load = problem.loads[:, r]
        room = problem.limits[:, r].max(initial=0.0) - load
        weight = load[rows.indices]
        density = np.where(weight > 0, rows.data / np.where(weight > 0, weight, 1.0), np.inf)
        order = np.lexsort((-density, ends))
        filled = np.cumsum(weight[order])
        before = filled - weight[order]
        # Sums restart with each task: subtract what was filled when its first stream came.
        start = (
            before[np.minimum(rows.indptr[:-1], max(len(before) - 1, 0))]
            if len(before)
            else np.zeros(problem.tasks)
        )
        left = room[ends[order]] - (before - start[ends[order]])
        part = np.clip(
            np.divide(left, weight[order], out=np.ones_like(left), where=weight[order] > 0), 0.0, 1.0
        )
        kept = np.minimum(
            kept, np.bincount(ends[order], weights=rows.data[order] * part, minlength=problem.tasks)
        )
    return max(0.0, problem.traffic - 0.5 * float(kept.sum())) + _forced_moves(problem)


def _forced_moves(problem: PlacementProblem) -> float:
    """Move prices that no placement avoids: of tasks whose running node cannot hold even them alone."""
    running = problem.running != UNPLACED
    alone = np.all(problem.loads[running] <= problem.limits[problem.running[running]], axis=1)
    return float(problem.move_prices[running][~alone].sum())
