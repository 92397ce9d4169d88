"""One call for every policy: a problem, the name of a policy and seconds in; a checked placement out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from penstock.policies.placement.bounds import quick_bound
from penstock.policies.placement.budget import Budget, Clock, budget_of
from penstock.policies.placement.exact import Bounded
from penstock.policies.placement.iterative import calibrated_threshold, i_scheduler
from penstock.policies.placement.portfolio import best_found, optimum
from penstock.policies.placement.problem import UNPLACED, Assignment, PlacementProblem

DEFAULT_POLICY = "default"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Where every task goes, what that costs, and how much better any placement could be."""

    policy: str
    assignment: Assignment
    """[tasks] node index"""
    cost: float
    """Traffic between nodes."""
    move_cost: float
    """Price of the moves from the running placement; 0 without prices."""
    lower_bound: float
    """No placement has a smaller cost + move_cost."""
    optimal: bool
    """True if that is proved: the bound is reached."""
    nodes_used: int
    moves: int
    """Tasks that leave the node they run on."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a solver may use: time, chance, and I-Scheduler's φ."""

    budget: Budget
    seed: int = 0
    threshold: int = 0


Solver = Callable[[PlacementProblem, Attempt], Bounded | Assignment]

SOLVERS: Mapping[str, Solver] = {
    DEFAULT_POLICY: lambda problem, attempt: best_found(problem, attempt.budget, seed=attempt.seed),
    "exact": lambda problem, attempt: optimum(problem, attempt.budget),
    "i-scheduler": lambda problem, attempt: i_scheduler(
        problem, threshold=attempt.threshold, budget=attempt.budget
    ),
}


def place(
    problem: PlacementProblem,
    *,
    clock: Clock,
    policy: str = DEFAULT_POLICY,
    seconds: float = 1.0,
    seed: int = 0,
    threshold: int | None = None,
    solvers: Mapping[str, Solver] = SOLVERS,
) -> Placement:
    """The placement of `policy`, found within about `seconds` on the injected clock.

    `threshold` is I-Scheduler's φ; None calibrates it for `seconds` first, outside the time that is reported (the
    paper takes it from earlier runs). Raises DoesNotFitError with what is missing, ValueError for an unknown policy.
    """
    if policy not in solvers:
        raise ValueError(f"unknown policy {policy!r}; known: {', '.join(solvers)}")
    if policy == "i-scheduler" and threshold is None:
        threshold = calibrated_threshold(seconds, clock)
    began_s = clock()
    attempt = Attempt(budget=budget_of(seconds, clock), seed=seed, threshold=threshold or 0)
    answer = solvers[policy](problem, attempt)
    if not isinstance(answer, Bounded):
        answer = Bounded(assignment=answer, lower_bound=quick_bound(problem))
    assignment = settled(problem, answer.assignment)
    return described(problem, assignment, policy, answer.lower_bound, clock() - began_s)


def described(
    problem: PlacementProblem, assignment: Assignment, policy: str, lower_bound: float, seconds: float
) -> Placement:
    """`assignment` with its cost recomputed; ValueError if it breaks a capacity, which would be a bug."""
    if not problem.fits(assignment):
        raise ValueError(f"policy {policy!r} returned a placement that does not fit")
    cost, move_cost = problem.cost(assignment), problem.move_cost(assignment)
    tolerance = 1e-9 * max(1.0, cost + move_cost)
    return Placement(
        policy=policy,
        assignment=assignment,
        cost=cost,
        move_cost=move_cost,
        lower_bound=min(lower_bound, cost + move_cost),
        optimal=cost + move_cost <= lower_bound + tolerance,
        nodes_used=len(np.unique(assignment)),
        moves=int(np.count_nonzero(problem.moved(assignment))),
        seconds=seconds,
    )


def settled(problem: PlacementProblem, assignment: Assignment) -> Assignment:
    """`assignment` with nodes of equal capacity renamed so that as much as possible stays where it runs."""
    if np.all(problem.running == UNPLACED):
        return assignment
    stays = np.zeros((problem.nodes, problem.nodes))
    known = problem.running != UNPLACED
    np.add.at(
        stays, (assignment[known], problem.running[known]), 1.0 + problem.move_prices[known] * problem.tasks
    )
    renamed = np.arange(problem.nodes)
    _, kind = np.unique(problem.capacities, axis=0, return_inverse=True)
    for k in range(int(kind.max()) + 1):
        same = np.flatnonzero(kind.ravel() == k)
        old, new = linear_sum_assignment(stays[np.ix_(same, same)], maximize=True)
        renamed[same[old]] = same[new]
    better = renamed[assignment]
    return better if problem.move_cost(better) <= problem.move_cost(assignment) else assignment
