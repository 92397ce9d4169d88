"""CE and SH at run time: dynamic-dataflows.txt, algorithm 2 and equation 10."""

from __future__ import annotations

import numpy as np
from numba import njit

from penstock.policies.provisioning.flow import FREE_S
from penstock.policies.provisioning.limits import downstream_costs
from penstock.policies.provisioning.problem import Demand, Floats, Ints, full_rates
from penstock_papers.dynamic_dataflows.greedy import Machine, repack_loose
from penstock_papers.dynamic_dataflows.running import Adaptation, Running
from penstock_papers.dynamic_dataflows.throughput import Goal, bottleneck, goal_of, largest_class, passed

EVERY = 2
"""Intervals between two choices of alternates, and of resources: never both in one interval, one after the other."""


def adapt_greedy(demand: Demand, running: Running, *, centralised: bool) -> Adaptation:
    """Alternates in odd intervals, resources in even ones; an empty machine goes when its paid time ends."""
    alternates, cores = running.alternates, running.cores.copy()
    fresh = np.zeros((0, cores.shape[1]), dtype=np.int64)
    low = running.throughput <= demand.throughput - demand.tolerance
    high = running.throughput >= demand.throughput + demand.tolerance
    if running.step % EVERY and (low or high):
        alternates = _alternates(demand, running, cores, low=low, centralised=centralised)
    elif low or high:
        goal = goal_of(demand, alternates, running.input_rps)
        size = demand.cores[running.rows]
        if low:
            largest = largest_class(demand)
            speed, there = float(demand.core_speed[largest]), int(demand.cores[largest])
            most = int(np.ceil(goal.cost * goal.wanted / speed).sum()) // there + len(goal.cost) + 1
            cores, fresh, used = grow(goal, cores, running.speed, size, speed, there, most)
            fresh = fresh[:used]
        else:
            hourly = np.array([c.price_per_hour for c in demand.classes])[running.rows]
            worth = size * running.speed / np.maximum(hourly, 1e-9)
            cores = shrink(goal, cores, running.speed, size, running.paid_left_s(demand), worth)
        if centralised:
            cores = repack(cores, size)
    keep = cores.any(axis=1) | (running.paid_left_s(demand) > running.interval_s)
    new = [Machine(largest_class(demand), table) for table in fresh]
    if centralised and new and new[-1].table.sum() < demand.cores[largest_class(demand)]:
        new = [*new[:-1], *repack_loose(demand, new[-1:])]  # as in deployment: no larger than it must be
    return Adaptation(
        alternates=alternates,
        keep=keep,
        acquire=np.array([machine.row for machine in new], dtype=np.int64),
        cores=np.vstack([cores[keep], *(machine.table[None, :] for machine in new)]),
    )


def _alternates(demand: Demand, running: Running, cores: Ints, *, low: bool, centralised: bool) -> Ints:
    """Feasible are those that need no more when Ω is low, no less when it is high; the best value/cost that fits.

    What fits is what the operator has, and with Ω high also the free cores of machines that are paid: they become its
    own, in `cores`.
    """
    graph = demand.graph
    found = running.alternates.copy()
    power = running.speed @ cores
    free = demand.cores[running.rows] - cores.sum(axis=1)
    rank = downstream_costs(demand) if centralised else graph.cost_s
    arriving = full_rates(graph, running.input_rps, graph.of(found)[1])
    for i in np.flatnonzero(graph.counts > 1):
        need = graph.cost_s[i] * arriving[i] * demand.throughput
        mine = need[found[i]]
        feasible = [
            int(j)
            for j in np.flatnonzero(graph.value[i] > 0)
            if (need[j] <= mine if low else need[j] >= mine)
        ]
        ratio = graph.value[i] / np.maximum(rank[i], FREE_S)
        has = float(power[i]) + (0.0 if low else float(free @ running.speed))
        for j in sorted(feasible, key=lambda j: -ratio[j]):
            if need[j] < has:
                found[i] = j
                break
        for m in np.flatnonzero(free):
            while not low and free[m] and power[i] < need[found[i]]:
                cores[m, i] += 1
                free[m] -= 1
                power[i] += running.speed[m]
    return found


@njit(cache=True)
def grow(
    goal: Goal, cores: Ints, speed: Floats, size: Ints, new_speed: float, new_size: int, most_new: int
) -> tuple[Ints, Ints, int]:
    """Cores to the bottlenecks, free ones first, until enough gets through; (cores, new machines, how many)."""
    count, operators = cores.shape
    fresh = np.zeros((most_new, operators), np.int64)
    power = np.zeros(operators)
    free = np.zeros(count, np.int64)
    for m in range(count):
        free[m] = size[m]
        for i in range(operators):
            free[m] -= cores[m, i]
            power[i] += cores[m, i] * speed[m]
    at, used, left = 0, 0, 0
    while True:
        processed, enough = passed(goal, power)
        i = -1 if enough else bottleneck(goal, processed)
        if i < 0:
            break
        while at < count and free[at] == 0:
            at += 1
        if at < count:
            free[at] -= 1
            cores[at, i] += 1
            power[i] += speed[at]
            continue
        if left == 0:
            if used == most_new:
                break
            used += 1
            left = new_size
        left -= 1
        fresh[used - 1, i] += 1
        power[i] += new_speed
    return cores, fresh, used


@njit(cache=True)
def shrink(
    goal: Goal, cores: Ints, speed: Floats, size: Ints, paid_left_s: Floats, power_per_price: Floats
) -> Ints:
    """Instances of the most over-provisioned operator go, from the machine of the least weight (equation 10)."""
    count, operators = cores.shape
    power = np.zeros(operators)
    instances = np.zeros(operators, np.int64)
    used = np.zeros(count, np.int64)
    for m in range(count):
        for i in range(operators):
            power[i] += cores[m, i] * speed[m]
            instances[i] += cores[m, i]
            used[m] += cores[m, i]
    done = np.zeros(operators, np.bool_)
    while True:
        processed, _ = passed(goal, power)
        over, highest = -1, 0.0
        for i in range(operators):
            need = goal.cost[i] * processed[i]
            if instances[i] > 1 and not done[i] and goal.cost[i] > FREE_S:
                ratio = power[i] / max(need, 1e-12)
                if over < 0 or ratio > highest:
                    over, highest = i, ratio
        if over < 0:
            return cores
        at, lightest = -1, np.inf
        for m in range(count):
            if cores[m, over] > 0:
                free = (size[m] - used[m]) / size[m]
                share = cores[m, over] / instances[over]
                weight = paid_left_s[m] * max(free, 1e-3) * (1 - share) * power_per_price[m]
                if weight < lightest:
                    at, lightest = m, weight
        power[over] -= speed[at]
        if not passed(goal, power)[1]:
            power[over] += speed[at]
            done[over] = True
            continue
        cores[at, over] -= 1
        instances[over] -= 1
        used[at] -= 1


@njit(cache=True)
def repack(cores: Ints, size: Ints) -> Ints:
    """Iterative repacking: instances of the emptiest machines move to free cores of fuller ones, if all fit."""
    count, operators = cores.shape
    used = cores.sum(axis=1)
    order = np.argsort(used)
    free_total = 0
    for m in range(count):
        if used[m] > 0:
            free_total += size[m] - used[m]
    to = count - 1
    for a in range(count):
        m = order[a]
        if used[m] == 0:
            continue
        others = free_total - (size[m] - used[m])
        if others < used[m] or to <= a:
            break
        for i in range(operators):
            while cores[m, i] > 0:
                while to > a and used[order[to]] >= size[order[to]]:
                    to -= 1
                if to <= a:
                    return cores
                cores[m, i] -= 1
                used[m] -= 1
                cores[order[to], i] += 1
                used[order[to]] += 1
                free_total -= 1
        free_total -= size[m]
    return cores
