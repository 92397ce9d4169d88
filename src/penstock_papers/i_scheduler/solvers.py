"""Every way to place tasks by name: ours, and the rivals under the same call and with the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec

from penstock.policies.placement.budget import Clock
from penstock.policies.placement.packing import first_fit
from penstock.policies.placement.partition import largest_nodes
from penstock.policies.placement.placement import DEFAULT_POLICY, SOLVERS, Attempt, Placement, Solver
from penstock.policies.placement.placement import place as place_by
from penstock.policies.placement.problem import Assignment, DoesNotFitError, PlacementProblem
from penstock_papers.i_scheduler import iterative, partition, slots, storm
from penstock_papers.i_scheduler.instances import random_cluster


def i_scheduler(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """I-Scheduler with θ = the time there is."""
    phi = threshold(round(attempt.budget.remaining_s(), 1))
    return iterative.i_scheduler(problem, threshold=phi, budget=attempt.budget)


def i_scheduler_0(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """I-Scheduler with θ = 0: no solver."""
    return iterative.i_scheduler(problem, threshold=0, budget=attempt.budget)


@cache
def threshold(seconds: float) -> int:
    """φ for θ = `seconds` of CPU time on this machine; the paper takes it from earlier runs, so it costs no time."""
    return iterative.calibrated_threshold(seconds, time.process_time)


def metis(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """METIS with as many seeds as there is time for, onto all nodes and onto the fewest largest ones in turn."""

    def once(seed: int) -> Assignment:
        fill = (None, 1.0, 0.97, 0.93, 0.85)[seed % 5]
        if fill is None:
            return partition.metis_alone(problem, seed=attempt.seed + seed)
        return partition.metis_on(problem, largest_nodes(problem, fill), seed=attempt.seed + seed)

    return _best_of(problem, attempt, once)


def kahypar(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """Mt-KaHyPar with as many seeds as there is time for."""
    return _best_of(problem, attempt, lambda s: partition.kahypar_alone(problem, seed=attempt.seed + s))


def _best_of(problem: PlacementProblem, attempt: Attempt, once: Callable[[int], Assignment]) -> Assignment:
    """The best of several seeds; the last one starts while there is time."""
    found: list[Assignment] = []
    for seed in range(10_000):
        try:
            found = [min([*found, once(seed)], key=problem.cost)]
        except DoesNotFitError as refused:
            if refused.proved:
                raise
        if attempt.budget.spent():
            break
    return found[0] if found else first_fit(problem)


def in_turn(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """Storm's default: round robin."""
    return storm.round_robin(problem)


def r_storm(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """R-Storm."""
    return storm.r_storm(problem)


def ols(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """OLS."""
    return storm.ols(problem)


def ols_few(problem: PlacementProblem, attempt: Attempt) -> Assignment:
    """OLS on as few nodes as it can (its β is 0)."""
    return storm.ols(problem, beta=0.0)


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
    "i-scheduler": i_scheduler,
    "i-scheduler-0": i_scheduler_0,
    "metis": metis,
    **({"kahypar": kahypar} if find_spec("mtkahypar") else {}),
    "round-robin": in_turn,
    "r-storm": r_storm,
    "ols": ols,
    "ols-few": ols_few,
    "t-storm": t_storm,
    "flink": flink,
    "least-cpu": least_cpu,
}
POLICIES = (*SOLVERS, *RIVALS)


def place(
    problem: PlacementProblem,
    *,
    clock: Clock,
    policy: str = DEFAULT_POLICY,
    seconds: float = 1.0,
    rounds: int | None = None,
    seed: int = 0,
) -> Placement:
    """The placement of any policy here (`penstock.policies.placement.place`)."""
    return place_by(
        problem,
        clock=clock,
        policy=policy,
        seconds=seconds,
        rounds=rounds,
        seed=seed,
        solvers={**SOLVERS, **RIVALS},
    )


def compile_kernels(clock: Clock) -> None:
    """Let Numba compile what placing needs, or load what it kept: some seconds, once per machine.

    For callers that hold themselves to a time: what is compiled within it is not used for placing.
    """
    small = random_cluster(tasks=200, nodes=10, seed=0)
    for policy in (DEFAULT_POLICY, "ols"):
        place(small, policy=policy, clock=clock, rounds=1, seconds=0.05)
