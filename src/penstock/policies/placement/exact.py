"""Optimal placement, proved; or the best one found and a lower bound, when the time runs out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.policies.placement.bounds import quick_bound
from penstock.policies.placement.budget import Budget
from penstock.policies.placement.counts import (
    CountProblem,
    count_problem,
    enumerate_patterns,
    spread,
    task_groups,
)
from penstock.policies.placement.master import Columns, all_columns, choose, relax
from penstock.policies.placement.problem import (
    UNPLACED,
    Assignment,
    DoesNotFitError,
    Floats,
    Ints,
    Missing,
    PlacementProblem,
)

PATTERN_LIMIT = 250_000
"""Above this many ways to fill a node the problem is too large to be proved; the quick bound remains."""

GROUP_LIMIT = 200
"""Above this many kinds of task not even the first step is worth its time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bounded:
    """A placement and a lower bound on the objective of every placement."""

    assignment: Assignment
    lower_bound: float


def proved(problem: PlacementProblem, start: Assignment | None, budget: Budget) -> Bounded:
    """The optimum if the budget allows to prove it, else the better of `start` and what was found, with a bound.

    Raises DoesNotFitError, proved, if no placement exists; or with the packing that failed if none was found.
    """
    problem.require_room()
    bound = quick_bound(problem)
    best = start
    if best is not None and problem.objective(best) <= bound + 1e-9:
        return Bounded(assignment=best, lower_bound=bound)
    groups = task_groups(problem)
    if len(groups) > GROUP_LIMIT:
        return _unproved(problem, best, bound)
    counts = count_problem(problem, groups)
    patterns = enumerate_patterns(counts, PATTERN_LIMIT)
    if patterns is None:
        return _unproved(problem, best, bound)
    columns = all_columns(counts, patterns)
    relaxation = relax(counts, columns, _first_columns(counts, columns), budget)
    bound = max(bound, counts.total - relaxation.bound)
    kept = None if best is None else counts.total - problem.objective(best)
    choice = choose(columns, relaxation, kept=kept, grain=grain_of(problem), budget=budget)
    if choice.columns is not None:
        chosen = [(int(columns.classes[c]), columns.patterns[c]) for c in choice.columns]
        best = spread(counts, chosen, problem.tasks)
    elif choice.bound == -math.inf:
        raise DoesNotFitError([Missing(kind="proved")])
    if best is None:
        return _unproved(problem, best, bound)
    # Rounding in the solvers must not put the bound above what was found.
    bound = min(max(bound, counts.total - choice.bound), problem.objective(best))
    return Bounded(assignment=best, lower_bound=_settled(bound, problem.objective(best)))


def grain_of(problem: PlacementProblem) -> float | None:
    """The largest number that divides every rate and every move price, or None if they are not integers."""
    values = np.concatenate([problem.adjacency.data, problem.move_prices[problem.running != UNPLACED]])
    values = values[values > 0]
    if not len(values) or values.max() > 2**40 or np.any(values != np.rint(values)):
        return None
    return float(np.gcd.reduce(values.astype(np.int64)))


def _first_columns(counts: CountProblem, columns: Columns) -> Ints:
    """Patterns to begin with: single tasks, and those that keep most for each class."""
    single = np.flatnonzero(columns.patterns.sum(axis=1) == 1)
    best = [
        rows[np.argsort(-columns.values[rows], kind="stable")[:20]]
        for rows in (np.flatnonzero(columns.classes == k) for k in range(len(counts.classes)))
    ]
    return np.unique(np.concatenate([single, *best]))


def _unproved(problem: PlacementProblem, best: Assignment | None, bound: float) -> Bounded:
    if best is None:
        raise DoesNotFitError(
            [Missing(kind="packing", task=problem.task_ids[int(np.argmax(_size(problem)))])]
        )
    return Bounded(assignment=best, lower_bound=min(bound, problem.objective(best)))


def _size(problem: PlacementProblem) -> Floats:
    largest = problem.capacities.max(axis=0)
    sizes: Floats = (problem.loads / np.where(largest > 0, largest, 1.0)).max(axis=1)
    return sizes


def _settled(bound: float, objective: float) -> float:
    """`bound`, or `objective` itself when they differ by rounding only."""
    return objective if objective - bound <= 1e-9 * max(1.0, objective) else bound
