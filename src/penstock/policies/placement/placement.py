"""One call for every policy: a problem, the name of a policy and seconds in; a checked placement out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from penstock.policies.placement.bounds import quick_bound
from penstock.policies.placement.budget import Budget, Clock, budget_of
from penstock.policies.placement.exact import Bounded
from penstock.policies.placement.instances import random_cluster
from penstock.policies.placement.iterative import calibrated_threshold, i_scheduler
from penstock.policies.placement.partition import metis_alone
from penstock.policies.placement.portfolio import best_found, optimum
from penstock.policies.placement.problem import UNPLACED, Assignment, PlacementProblem
from penstock.policies.placement.refinement import COMPILE_ABOVE_TASKS
from penstock.policies.placement.slots import flink, least_cpu
from penstock.policies.placement.storm import ols, r_storm, round_robin, t_storm

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
class _Run:
    budget: Budget
    seed: int
    threshold: int


_POLICIES: dict[str, Callable[[PlacementProblem, _Run], Bounded | Assignment]] = {
    DEFAULT_POLICY: lambda problem, run: best_found(problem, run.budget, seed=run.seed),
    "exact": lambda problem, run: optimum(problem, run.budget),
    "i-scheduler": lambda problem, run: i_scheduler(problem, threshold=run.threshold, budget=run.budget),
    "metis": lambda problem, run: metis_alone(problem, seed=run.seed),
    "round-robin": lambda problem, run: round_robin(problem),
    "r-storm": lambda problem, run: r_storm(problem),
    "ols": lambda problem, run: ols(problem),
    "t-storm": lambda problem, run: t_storm(problem),
    "flink": lambda problem, run: flink(problem),
    "least-cpu": lambda problem, run: least_cpu(problem, preferred=problem.running, seed=run.seed),
}

POLICIES = tuple(_POLICIES)
BASELINES = ("metis", "round-robin", "r-storm", "ols", "t-storm", "flink", "least-cpu")


def place(
    problem: PlacementProblem,
    *,
    clock: Clock,
    policy: str = DEFAULT_POLICY,
    seconds: float = 1.0,
    seed: int = 0,
    threshold: int | None = None,
) -> Placement:
    """The placement of `policy`, found within about `seconds` on the injected clock.

    `threshold` is I-Scheduler's φ; None calibrates it for `seconds` first, outside the time that is reported (the
    paper takes it from earlier runs). Raises DoesNotFitError with what is missing, ValueError for an unknown policy.
    """
    if policy not in _POLICIES:
        raise ValueError(f"unknown policy {policy!r}; known: {', '.join(POLICIES)}")
    if policy == "i-scheduler" and threshold is None:
        threshold = calibrated_threshold(seconds, clock)
    began_s = clock()
    run = _Run(budget=budget_of(seconds, clock), seed=seed, threshold=threshold or 0)
    answer = _POLICIES[policy](problem, run)
    if not isinstance(answer, Bounded):
        answer = Bounded(assignment=answer, lower_bound=quick_bound(problem))
    assignment = settled(problem, answer.assignment)
    return described(problem, assignment, policy, answer.lower_bound, clock() - began_s)


def compile_kernels(clock: Clock) -> None:
    """Let Numba compile what large problems need, or load what it kept: some seconds, once per machine.

    For callers that hold themselves to a time: what is compiled within it is not used for placing.
    """
    small = random_cluster(tasks=COMPILE_ABOVE_TASKS + 1, nodes=10, seed=0)
    for policy in (DEFAULT_POLICY, "ols"):
        place(small, policy=policy, clock=clock, seconds=0.05)


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
