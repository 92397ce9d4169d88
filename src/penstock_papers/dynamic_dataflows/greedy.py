"""Centralised (CE) and sharded (SH) greedy deployment: dynamic-dataflows.txt, algorithm 1 and table 1.

The paper reads machines as bins of cores. Both give cores on the largest class to operators in depth-first order and
then to the one with the lowest Ω_i; CE knows the cost of what follows an alternate, and repacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from penstock.policies.provisioning.deployment import Deployment, Provision, assess
from penstock.policies.provisioning.flow import FREE_S
from penstock.policies.provisioning.limits import downstream_costs, explain_if_impossible, out_of_reach
from penstock.policies.provisioning.problem import Demand, Ints
from penstock_papers.dynamic_dataflows.throughput import (
    Goal,
    bottleneck,
    goal_of,
    largest_class,
    passed,
    steady,
)


def deploy_greedy(demand: Demand, *, centralised: bool) -> Provision:
    """The greedy deployment, CE or SH. Raises DemandError where it cannot keep the throughput or the budget."""
    explain_if_impossible(demand)
    alternates = ranked_alternates(demand, centralised=centralised)
    owners = core_by_core(demand, alternates)
    deployment = _on_largest(demand, alternates, owners)
    why = ["alternates by value over " + ("cost with what follows" if centralised else "own cost")]
    if centralised:
        deployment = _repacked(demand, deployment)
        why.append("over-provisioned instances on the smallest class that fits, machines repacked")
    found = assess(demand, deployment)
    if not found.meets:
        raise out_of_reach(demand, found.cost_per_hour, found.throughput)
    name = "ce" if centralised else "sh"
    return Provision(decider=name, deployment=deployment, assessment=found, why=tuple(why))


def ranked_alternates(demand: Demand, *, centralised: bool) -> Ints:
    """Per operator the alternate of the highest value over cost; free ones by value alone."""
    graph = demand.graph
    cost = downstream_costs(demand) if centralised else graph.cost_s
    ratio = np.where(graph.value > 0, graph.value / np.maximum(cost, FREE_S), -1.0)
    return np.asarray(ratio.argmax(axis=1))


def core_by_core(demand: Demand, alternates: Ints) -> Ints:
    """The owner of each core, in the order they are given out, until Ω ≥ Ω̂ on cores of the largest class."""
    goal = goal_of(demand, alternates, demand.input_rps)
    speed = float(demand.core_speed[largest_class(demand)])
    # Enough for every operator to carry everything: the loop ends there at the latest.
    most = int(np.ceil(goal.cost * goal.wanted / speed).sum()) + len(goal.cost)
    return np.asarray(give_cores(goal, demand.graph.depth_first, speed, most))


@njit(cache=True)
def give_cores(goal: Goal, depth_first: Ints, speed: float, most: int) -> Ints:
    """Owners of cores of one speed: one for each operator, then always to the lowest Ω_i, until enough gets through."""
    owners = np.empty(most, np.int64)
    power = np.zeros(len(goal.order))
    given = 0
    for i in depth_first:
        if goal.cost[i] > FREE_S and goal.wanted[i] > 0:
            owners[given] = i
            power[i] += speed
            given += 1
    while given < most:
        processed, enough = passed(goal, power)
        i = -1 if enough else bottleneck(goal, processed)
        if i < 0:
            break
        owners[given] = i
        power[i] += speed
        given += 1
    return owners[:given]


def _on_largest(demand: Demand, alternates: Ints, owners: Ints) -> Deployment:
    cores = int(demand.cores[largest_class(demand)])
    count = -(-len(owners) // cores)
    table = np.zeros((count, len(alternates)), dtype=np.int64)
    np.add.at(table, (np.arange(len(owners)) // cores, owners), 1)
    return Deployment(
        alternates=alternates, machines=np.full(count, largest_class(demand), dtype=np.int64), cores=table
    )


@dataclass(slots=True)
class Machine:
    """A machine while it is repacked."""

    row: int
    table: Ints


def _repacked(demand: Demand, deployment: Deployment) -> Deployment:
    """CE's two levels: over-provisioned instances to smaller machines, then machines with free cores too."""
    graph = demand.graph
    cost, selectivity = graph.of(deployment.alternates)
    power = deployment.power(demand.core_speed[deployment.machines])
    used = cost * steady(graph.order, graph.feeds, demand.input_rps, cost, selectivity, power)
    machines, table = deployment.machines.copy(), deployment.cores.copy()
    extra: list[Machine] = []
    speed = float(demand.core_speed[largest_class(demand)])
    for i in np.flatnonzero(table.sum(axis=0)):
        rest = float(used[i] - (table[:, i].sum() - 1) * speed)
        fits = [k for k in range(len(demand.classes)) if demand.core_speed[k] >= rest - 1e-9]
        smallest = min(fits, key=lambda k: (demand.hourly[k], demand.cores[k]))
        if rest <= 0 or demand.core_speed[smallest] < speed:
            at = int(np.flatnonzero(table[:, i])[-1])
            table[at, i] -= 1
            if rest > 0:
                own = np.zeros(table.shape[1], dtype=np.int64)
                own[i] = 1
                extra.append(Machine(int(smallest), own))
    fullness = table.sum(axis=1)
    whole = fullness == demand.cores[machines]
    loose = [Machine(int(machines[m]), table[m].copy()) for m in np.flatnonzero(~whole & (fullness > 0))]
    packed = repack_loose(demand, loose) + extra
    tables = [table[whole], *(m.table[None, :] for m in packed)]
    rows = [machines[whole], np.array([m.row for m in packed], dtype=np.int64)]
    return Deployment(
        alternates=deployment.alternates, machines=np.concatenate(rows), cores=np.vstack(tables)
    )


def repack_loose(demand: Demand, loose: list[Machine]) -> list[Machine]:
    """Iterative repacking: all instances on machines with free cores, put onto the cheapest machines of that speed."""
    speeds = sorted({float(demand.core_speed[m.row]) for m in loose})
    packed: list[Machine] = []
    for speed in speeds:
        mine = [m for m in loose if demand.core_speed[m.row] == speed]
        instances = [int(i) for m in mine for i in np.repeat(np.arange(len(m.table)), m.table)]
        sizes = sorted(
            (k for k in range(len(demand.classes)) if demand.core_speed[k] == speed),
            key=lambda k: -demand.cores[k],
        )
        while instances:
            # The largest machine that is filled, else the cheapest that holds the rest.
            filled = [k for k in sizes if demand.cores[k] <= len(instances)]
            k = filled[0] if filled else min(sizes, key=lambda k: demand.hourly[k])
            taken, instances = instances[: int(demand.cores[k])], instances[int(demand.cores[k]) :]
            table = np.bincount(taken, minlength=len(mine[0].table)).astype(np.int64)
            packed.append(Machine(k, table))
    return packed
