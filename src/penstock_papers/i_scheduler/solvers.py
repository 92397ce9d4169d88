"""Every way to place tasks by name: ours, and the published schedulers under the same call."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.policies.placement.budget import Clock
from penstock.policies.placement.partition import metis_alone
from penstock.policies.placement.placement import DEFAULT_POLICY, SOLVERS, Attempt, Placement, Solver
from penstock.policies.placement.placement import place as place_by
from penstock.policies.placement.problem import Assignment, PlacementProblem
from penstock.policies.placement.refinement import COMPILE_ABOVE_TASKS
from penstock_papers.i_scheduler import slots, storm
from penstock_papers.i_scheduler.instances import random_cluster


def metis(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """METIS alone."""
    return metis_alone(problem, seed=attempt.seed)


def in_turn(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """Storm's default: round robin."""
    return storm.round_robin(problem)


def r_storm(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """R-Storm."""
    return storm.r_storm(problem)


def ols(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """OLS."""
    return storm.ols(problem)


def t_storm(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """T-Storm."""
    return storm.t_storm(problem)


def flink(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """Flink's slots."""
    return slots.flink(problem)


def least_cpu(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """The machine with the lowest CPU use."""
    return slots.least_cpu(problem, preferred=problem.running, seed=attempt.seed)


RIVALS: Mapping[str, Solver] = {
    "metis": metis,
    "round-robin": in_turn,
    "r-storm": r_storm,
    "ols": ols,
    "t-storm": t_storm,
    "flink": flink,
    "least-cpu": least_cpu,
}
BASELINES = tuple(RIVALS)
POLICIES = (*SOLVERS, *RIVALS)


def place(
    problem: PlacementProblem,
    *,
    clock: Clock,
    policy: str = DEFAULT_POLICY,
    seconds: float = 1.0,
    seed: int = 0,
    threshold: int | None = None,
) -> Placement:
    """The placement of any policy here (`penstock.policies.placement.place`)."""
    return place_by(
        problem,
        clock=clock,
        policy=policy,
        seconds=seconds,
        seed=seed,
        threshold=threshold,
        solvers={**SOLVERS, **RIVALS},
    )


def compile_kernels(clock: Clock) -> None:
    """Let Numba compile what large problems need, or load what it kept: some seconds, once per machine.

    For callers that hold themselves to a time: what is compiled within it is not used for placing.
    """
    small = random_cluster(tasks=COMPILE_ABOVE_TASKS + 1, nodes=10, seed=0)
    for policy in (DEFAULT_POLICY, "ols"):
        place(small, policy=policy, clock=clock, seconds=0.05)
