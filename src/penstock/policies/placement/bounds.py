"""Traffic that must cross nodes whatever the placement: a quick lower bound for problems of any size."""

from __future__ import annotations

import numpy as np

from penstock.policies.placement.problem import UNPLACED, PlacementProblem


def quick_bound(problem: PlacementProblem) -> float:
    """A lower bound on the objective from each task's best possible neighbourhood, for problems of any size.

    On any node at most the capacity of the largest node is left beside a task, so of its traffic it can keep at
    most a fractional knapsack of its heaviest streams per load. Each kept stream is counted at both its ends:
    cost ≥ traffic - ½ Σ_t kept(t). With several resources the tightest one counts. On top come the prices of moves
    that no placement avoids: of tasks that their running node cannot hold even alone.
    """
    rows = problem.adjacency
    ends = np.repeat(np.arange(problem.tasks), np.diff(rows.indptr))
    kept = np.bincount(ends, rows.data, problem.tasks)
    for r in range(problem.loads.shape[1]):
        room = problem.limits[:, r].max(initial=0.0) - problem.loads[:, r]
        weight = problem.loads[rows.indices, r]
        order = np.lexsort((np.where(weight > 0, -rows.data / np.maximum(weight, 1e-300), -np.inf), ends))
        weight = weight[order]
        # What the heavier streams of the same task have filled before each stream; sums restart with each task.
        before = np.concatenate([[0.0], np.cumsum(weight)])
        before = before[:-1] - before[rows.indptr[:-1]][ends]
        part = np.divide(room[ends] - before, weight, out=np.ones_like(weight), where=weight > 0)
        kept = np.minimum(kept, np.bincount(ends, rows.data[order] * np.clip(part, 0.0, 1.0), problem.tasks))
    running = problem.running != UNPLACED
    alone = np.all(problem.loads[running] <= problem.limits[problem.running[running]], axis=1)
    forced = float(problem.move_prices[running][~alone].sum())
    return max(0.0, problem.traffic - 0.5 * float(kept.sum())) + forced
