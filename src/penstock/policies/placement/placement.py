"""One call for every way to place: a problem, a name and seconds in; a checked placement out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from penstock.extras import require
from penstock.policies.placement.bounds import quick_bound
from penstock.policies.placement.budget import Budget, Clock, budget_of
from penstock.policies.placement.exact import Bounded, proved
from penstock.policies.placement.packing import first_fit
from penstock.policies.placement.problem import UNPLACED, Assignment, DoesNotFitError, PlacementProblem
from penstock.policies.placement.search import searched

DEFAULT_POLICY = "default"
FIRST_ROUNDS = 2
"""Rounds of search before a proof is tried."""


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
    """What a solver may use: time, chance, and rounds of search (None: as many as there is time for)."""

    budget: Budget
    seed: int = 0
    rounds: int | None = None


Solver = Callable[[PlacementProblem, Attempt], Bounded | Assignment]


def best_found(problem: PlacementProblem, attempt: Attempt) -> Bounded:
    """The default: the optimum, proved, or the best placement that rounds and budget allow, with a bound.

    Never worse than what runs. Where the proof succeeds or the rounds end before the budget, the clock does not matter.
    """
    problem.require_room()
    if not problem.flat:
        return _two_levels(problem, attempt, best_found)
    start = problem.running if problem.fits(problem.running) else None
    bound = quick_bound(problem)
    best = _searched(problem, start, attempt, FIRST_ROUNDS, bound, 0.4)
    try:
        answer = proved(problem, best, attempt.budget.share(0.5))
        best, bound = answer.assignment, answer.lower_bound
    except DoesNotFitError as refused:
        if refused.proved:
            raise
    left = None if attempt.rounds is None else max(0, attempt.rounds - FIRST_ROUNDS)
    if best is None or bound < problem.objective(best):
        best = _searched(problem, best, replace(attempt, seed=attempt.seed + 1), left, bound, 1.0)
    return Bounded(assignment=first_fit(problem) if best is None else best, lower_bound=bound)


def optimum(problem: PlacementProblem, attempt: Attempt) -> Bounded:
    """Exact: after a short search all time goes into the proof; the bound is returned even when it runs out."""
    require("highspy")
    problem.require_room()
    if not problem.flat:
        return _two_levels(problem, attempt, optimum)
    start = _searched(problem, None, attempt, FIRST_ROUNDS, quick_bound(problem), 0.4)
    return proved(problem, start, attempt.budget)


def _searched(
    problem: PlacementProblem,
    start: Assignment | None,
    attempt: Attempt,
    rounds: int | None,
    enough: float,
    share: float,
) -> Assignment | None:
    """What the search finds in its share of the budget, or any placement that fits, or None."""
    budget = attempt.budget.share(share)
    found = searched(problem, start, budget, rounds=rounds, seed=attempt.seed, enough=enough)
    if found is None:
        with suppress(DoesNotFitError):
            found = first_fit(problem)
    return found


def _two_levels(problem: PlacementProblem, attempt: Attempt, solve: Callable[..., Bounded]) -> Bounded:
    """Tasks to hosts, then those of each host to its nodes: I-Scheduler's second level (algorithm 1, lines 55 to 62).

    The bound of the first level holds for both. Where a host's tasks do not fit its nodes, all nodes count as hosts.
    """
    above = solve(problem.on_hosts(), replace(attempt, budget=attempt.budget.share(0.6)))
    found = np.empty(problem.tasks, dtype=np.int64)
    hosts = int(problem.hosts.max()) + 1
    try:
        for host in range(hosts):
            tasks, nodes = np.flatnonzero(above.assignment == host), np.flatnonzero(problem.hosts == host)
            within = replace(attempt, budget=attempt.budget.share(1.0 / (hosts - host)))
            found[tasks] = nodes[solve(problem.part(tasks, nodes), within).assignment]
    except DoesNotFitError:
        found = solve(replace(problem, hosts=np.arange(problem.nodes)), attempt).assignment
    runs = problem.fits(problem.running) and problem.objective(problem.running) <= problem.objective(found)
    return Bounded(assignment=problem.running if runs else found, lower_bound=above.lower_bound)


SOLVERS: Mapping[str, Solver] = {DEFAULT_POLICY: best_found, "exact": optimum}


def place(
    problem: PlacementProblem,
    *,
    clock: Clock,
    policy: str = DEFAULT_POLICY,
    seconds: float = 1.0,
    rounds: int | None = None,
    seed: int = 0,
    solvers: Mapping[str, Solver] = SOLVERS,
) -> Placement:
    """The placement of `policy`, found within about `seconds` on the injected clock, or in so many rounds of search.

    Raises DoesNotFitError with what is missing, ValueError for an unknown policy.
    """
    if policy not in solvers:
        raise ValueError(f"unknown policy {policy!r}; known: {', '.join(solvers)}")
    began_s = clock()
    answer = solvers[policy](problem, Attempt(budget=budget_of(seconds, clock), seed=seed, rounds=rounds))
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
