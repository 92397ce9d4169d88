"""Penstock's own policies: the proved optimum where that is possible, the best of several ways everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from penstock.policies.placement.bounds import quick_bound
from penstock.policies.placement.budget import Budget, budget_of
from penstock.policies.placement.exact import Bounded, proved
from penstock.policies.placement.iterative import i_scheduler
from penstock.policies.placement.partition import largest_nodes, metis_on
from penstock.policies.placement.problem import UNPLACED, Assignment, DoesNotFitError, PlacementProblem
from penstock.policies.placement.refinement import COMPILE_ABOVE_TASKS, refined

FILLS = (1.0, 0.97, 0.93, 0.85)
"""How full the nodes are packed in the first attempts: full nodes are few, slack lets good parts fit."""
RESTARTS = 20
"""Further METIS seeds, for problems too small for annealing that could not be proved."""


def best_found(problem: PlacementProblem, budget: Budget, *, seed: int = 0) -> Bounded:
    """The default policy: the optimum, proved, or the best placement the budget allows, with a bound.

    Starts from the best of the running placement, I-Scheduler without its solver, and METIS at the `FILLS` there is
    time for, so it is never worse than what runs.
    """
    start = _best_start(problem, budget.share(0.4), seed)
    large = problem.tasks > COMPILE_ABOVE_TASKS
    answer = proved(problem, start, budget.share(0.3) if large else budget)
    best = answer.assignment
    if answer.lower_bound < problem.objective(best):
        best = refined(problem, best, budget, seed=seed) if large else _restarted(problem, best, budget, seed)
    return Bounded(assignment=best, lower_bound=answer.lower_bound)


def optimum(problem: PlacementProblem, budget: Budget) -> Bounded:
    """The exact policy: all time goes into the proof; the bound is returned even when it runs out."""
    return proved(problem, _best_start(problem, budget.share(0.4), 0), budget)


def _best_start(problem: PlacementProblem, budget: Budget, seed: int) -> Assignment | None:
    """The best of the quick ways, each refined by moves and swaps; None if none of them fits."""
    problem.require_room()
    ways: list[Callable[[], Assignment]] = [
        partial(i_scheduler, problem, threshold=0, budget=budget),
        *(partial(metis_on, problem, largest_nodes(problem, fill), seed=seed) for fill in FILLS),
    ]
    if np.all(problem.running != UNPLACED) and problem.fits(problem.running):
        ways.insert(0, problem.running.copy)
    bound = quick_bound(problem)
    best: Assignment | None = None
    for way in ways:
        if best is not None and (budget.spent() or problem.objective(best) <= bound):
            break
        with suppress(DoesNotFitError):
            best = _better(problem, best, way(), budget)
    return best


def _restarted(problem: PlacementProblem, best: Assignment, budget: Budget, seed: int) -> Assignment:
    """`best`, or something better from other METIS seeds, while there is time."""
    for again in range(1, RESTARTS + 1):
        if budget.spent():
            break
        nodes = largest_nodes(problem, FILLS[again % len(FILLS)])
        with suppress(DoesNotFitError):
            best = _better(problem, best, metis_on(problem, nodes, seed=seed + again), budget)
    return best


def _better(
    problem: PlacementProblem, best: Assignment | None, other: Assignment, budget: Budget
) -> Assignment:
    """The cheaper of `best` and `other` after moves and swaps, without annealing."""
    found = refined(problem, other, budget_of(0.0, budget.clock))
    return found if best is None or problem.objective(found) < problem.objective(best) else best
