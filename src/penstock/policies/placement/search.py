"""Search for a good placement of any size: starts from several coarse graphs, and combinations of what they found.

A round places the clusters of a coarse graph and then single tasks. The first rounds improve what METIS finds, where
that is installed; fresh ones cluster tasks that talk much. Later ones take two good placements and cluster
the tasks that are together in both, so that what they agree on moves as a whole (as the combinations of KaFFPaE do;
Sanders and Schulz, Distributed evolutionary graph partitioning, 2012).
"""

from __future__ import annotations

import math

import numpy as np

from penstock.policies.placement import partition
from penstock.policies.placement.annealing import Schedule, annealed, chances
from penstock.policies.placement.budget import Budget
from penstock.policies.placement.graph import graph_of
from penstock.policies.placement.problem import Assignment, PlacementProblem, placement_problem

SHARES = (2.0, 1.0, 0.5, 0.25, 0.12, 0.0)
"""Largest cluster of each fresh start, as a share of a middling node; 0: single tasks. Nodes differ: some hold two."""
PARTITIONED = 8 if partition.INSTALLED else 0
"""How many first rounds begin with METIS, onto all nodes and onto the fewest largest ones in turn."""
NEARLY_FULL = 0.97
"""How full the fewest nodes may get."""
MANY_TASKS = 1500
"""Above, a round takes a good part of a second: fewer and longer ones are better."""
FRESH = Schedule(hot=8.0, soft=0.01)
COMBINED = Schedule(hot=2.0, soft=0.1)
FINE = Schedule(hot=1.0, soft=1.0, repair=True), Schedule(hot=4.0, soft=0.1, repair=True)
"""In turn: the first keeps what the clusters found, the second lets tasks out of a corner where nodes are full."""
POLISH = Schedule(hot=0.3, soft=3.0, repair=True)
"""Not so hot that what METIS found is lost."""
FRESH_SHARE = 0.15
"""How many rounds start afresh once the population is complete."""
LONGEST = 8
"""Rounds get longer, up to so many times: many short ones find the groups, long ones the last percents."""


def searched(
    problem: PlacementProblem,
    start: Assignment | None,
    budget: Budget,
    *,
    rounds: int | None,
    seed: int = 0,
    enough: float = -math.inf,
) -> Assignment | None:
    """The best placement of some rounds (None: as many as the budget allows); None if nothing fitted.

    Never worse than `start`. Ends early at an objective of `enough`. With a number of rounds, the answer depends on the
    budget only where that runs out before.
    """
    graph, nodes = graph_of(problem), problem.nodes
    rng, chance = np.random.default_rng(seed), chances(seed)
    best, best_cost = start, math.inf if start is None else problem.objective(start)
    small = problem.tasks <= MANY_TASKS
    population, short = (8, max(20_000, 250 * problem.tasks)) if small else (3, 2000 * problem.tasks)
    supply = np.maximum(graph.limits.min(axis=1, initial=np.inf), 1e-12)
    penalty = 4.0 * problem.traffic / max(1, problem.tasks)
    members = [] if start is None else [(best_cost, start)]
    number = 0
    while rounds is None or number < rounds:
        if number and (budget.spent() or best_cost <= enough):
            break
        proposals = short * min(LONGEST, 1 + number // (2 * population))
        if small and number < PARTITIONED:
            onto = np.arange(nodes) if number % 2 == 0 else partition.largest_nodes(problem, NEARLY_FULL)
            at, last, found = partition.partitioned(problem, onto, seed=seed + number), POLISH, []
        else:
            if len(members) < population or rng.random() < FRESH_SHARE:
                share = SHARES[number % len(SHARES)]
                schedule, labels = FRESH, graph.clusters(share, rng) if share else np.arange(problem.tasks)
                begin = rng.choice(nodes, int(labels.max(initial=-1)) + 1, p=supply / supply.sum())
            else:
                one, other = (members[i][1] for i in rng.choice(len(members), 2, replace=False))
                schedule, (_, labels) = COMBINED, np.unique(one * nodes + other, return_inverse=True)
                begin = np.empty(int(labels.max(initial=-1)) + 1, dtype=np.int64)
                begin[labels] = one
            rough = annealed(graph.coarse(labels), begin, schedule, proposals, chance, budget.share(0.4))
            at, last, found = rough.last[labels], FINE[number % 2], [(rough.best_cost, rough.best[labels])]
        fine = annealed(graph, at, last, proposals, chance, budget.share(0.9))
        for cost, assignment in (*found, (fine.best_cost, fine.best)):
            if cost < best_cost * (1 - 1e-12) and problem.fits(assignment):
                best, best_cost = assignment, cost
        # One that does not fit may still hold groups that others lack.
        worth = graph.cost(fine.last) + penalty * graph.excess(fine.last)
        member = (worth, fine.last) if worth < fine.best_cost else (fine.best_cost, fine.best)
        if all(abs(member[0] - known) > 1e-9 * max(1.0, known) for known, _ in members):
            members = sorted([*members, member], key=lambda m: m[0])[:population]
        number += 1
    return best


def compile_kernels() -> None:
    """Let Numba compile the kernels, or load what it kept: some seconds, once per machine."""
    pair = placement_problem(loads=[1, 1], capacities=[1, 1], sources=[0], targets=[1])
    searched(pair, None, Budget(clock=lambda: 0.0, deadline_s=1.0), rounds=PARTITIONED + 1)
