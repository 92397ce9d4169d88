"""Brute force with pruning (BR): the optimum of small demands, and nothing clever that could be wrong.

For each choice of alternates, operators are given cores one after the other, in topological order, in every number that
could be of use. A branch is left when the operators so far already let too little through, or already cost as much as
the best deployment found. What a number of cores costs comes from a table over all ways to rent them.
"""

from __future__ import annotations

import itertools

import numpy as np
from numba import njit

from penstock.policies.provisioning.deployment import Deployment, Provision, assess, laid_out
from penstock.policies.provisioning.flow import FREE_S
from penstock.policies.provisioning.limits import explain_if_impossible, out_of_reach
from penstock.policies.provisioning.problem import Demand, DemandError, Floats, Ints, full_rates
from penstock_papers.dynamic_dataflows.greedy import deploy_greedy

MOST_CORES = 64
"""Of one speed, over all operators: beyond this the table and the search are too large."""
MOST_BRANCHES = 400_000_000


def deploy_brute(demand: Demand) -> Provision:
    """The optimum, by trying everything. Raises DemandError also where that would take too long."""
    explain_if_impossible(demand)
    speeds = np.array(sorted(set(demand.core_speed.tolist())))
    if len(speeds) > 2:
        raise DemandError("brute force tries classes of at most two different core speeds; use 'best'")
    if any(c.available is not None for c in demand.classes):
        raise DemandError("brute force does not know limited numbers of machines; use 'best'")
    graph = demand.graph
    choices = [[int(j) for j in np.flatnonzero(graph.value[i] > 0)] for i in range(len(graph.operators))]
    best: tuple[float, Ints, Ints] | None = None
    start = _start(demand)
    for combination in itertools.product(*choices):
        alternates = np.array(combination, dtype=np.int64)
        value = graph.worth(alternates)
        floor = max(start, -np.inf if best is None else best[0])
        # What may be spent so that this choice is worth more than the best so far.
        limit = (value - 1.0 - floor) / demand.sigma + demand.break_even.full_per_hour
        limit = min(limit, demand.budget_per_hour)
        found = _cheapest(demand, alternates, speeds, limit)
        if found is not None and (best is None or demand.profit(value, found[0]) > best[0]):
            best = (demand.profit(value, found[0]), alternates, found[1])
    if best is None:
        raise out_of_reach(demand, None, None)
    deployment = _deployment(demand, best[1], best[2], speeds)
    return Provision(
        decider="br",
        deployment=deployment,
        assessment=assess(demand, deployment),
        why=("every deployment tried",),
    )


def _start(demand: Demand) -> float:
    """A profit that is surely reached, a hair less so that it is found again."""
    try:
        return deploy_greedy(demand, centralised=True).assessment.profit - 1e-9
    except DemandError:
        return -np.inf


def _cheapest(demand: Demand, alternates: Ints, speeds: Floats, limit: float) -> tuple[float, Ints] | None:
    graph = demand.graph
    cost, selectivity = graph.of(alternates)
    wanted = full_rates(graph, demand.input_rps, selectivity)
    need = cost * wanted
    most = int(np.ceil(need / speeds[0]).sum()) + len(need)
    if most > MOST_CORES * len(speeds) and not np.isfinite(limit):
        raise DemandError(f"brute force gives up above {MOST_CORES} cores (this takes {most}); use 'best'")
    prices = _price_table(demand, speeds, limit)
    if prices.size == 0:
        return None
    options: list[Floats] = []
    for i in graph.order:
        if cost[i] <= FREE_S or wanted[i] <= 0:
            options.append(np.zeros((1, 3)))
            continue
        options.append(_ways(float(need[i]), speeds, prices.shape))
    if any(not len(ways) for ways in options):
        return None  # the limit does not even pay for a core each
    widest = max(len(o) for o in options)
    table = np.full((len(options), widest, 3), -1.0)
    for row, ways in enumerate(options):
        table[row, : len(ways)] = ways
    price, cores, branches = _search(
        graph.order,
        graph.feeds,
        graph.outputs,
        demand.input_rps,
        cost,
        selectivity,
        wanted,
        table,
        np.array([len(o) for o in options]),
        prices,
        demand.throughput,
        demand.least_share,
        limit,
        MOST_BRANCHES,
    )
    if branches >= MOST_BRANCHES:
        raise DemandError("brute force gives up: too many deployments to try; use 'best'")
    return (float(price), np.asarray(cores)) if np.isfinite(price) else None


def _ways(need: float, speeds: Floats, shape: tuple[int, ...]) -> Floats:
    """(slow, fast, power) of an operator: none has a core that could be left out while the need is still met."""
    fast = speeds[-1]
    ways = []
    for f in range(min(shape[1], int(np.ceil(need / fast)) + 1)):
        slow_most = int(np.ceil(max(0.0, need - f * fast) / speeds[0])) if len(speeds) > 1 else 0
        ways += [
            (s, f, s * speeds[0] + f * fast) for s in range(min(slow_most, shape[0] - 1) + 1) if s + f > 0
        ]
    return np.array(ways, dtype=np.float64)


def _price_table(demand: Demand, speeds: Floats, limit: float) -> Floats:
    """[slow, fast]: least price of machines that have at least so many cores of each speed, up to the limit."""
    alone = len(speeds) == 1
    sides = []
    for speed in speeds:
        rows = [k for k in range(len(demand.classes)) if demand.core_speed[k] == speed]
        line = [0.0]
        while len(line) <= 4 * MOST_CORES:
            count = len(line)
            line.append(
                min(float(demand.hourly[k]) + line[max(0, count - int(demand.cores[k]))] for k in rows)
            )
            if line[-1] > limit:
                line.pop()
                break
        sides.append(np.array(line))
    slow, fast = (np.zeros(1), sides[0]) if alone else (sides[0], sides[1])
    return np.asarray(slow[:, None] + fast[None, :])


@njit(cache=True)
def _search(
    order: Ints,
    feeds: Floats,
    outputs: Ints,
    input_rps: Floats,
    cost: Floats,
    selectivity: Floats,
    wanted: Floats,
    table: Floats,
    ways: Ints,
    prices: Floats,
    target: float,
    least_share: float,
    limit: float,
    most_branches: int,
) -> tuple[float, Ints, int]:
    """(price, cores[operator, slow or fast], branches) of the cheapest deployment; price infinite if none is found."""
    count = len(order)
    at = np.full(count, -1)
    best_cores = np.zeros((count, 2), np.int64)
    best = limit + 1e-9
    found = False
    power = np.full(count, np.inf)
    slow = np.zeros(count + 1, np.int64)
    fast = np.zeros(count + 1, np.int64)
    depth = 0
    branches = 0
    arriving = np.zeros(count)
    processed = np.zeros(count)
    while depth >= 0 and branches < most_branches:
        at[depth] += 1
        if at[depth] >= ways[depth]:
            at[depth] = -1
            power[order[depth]] = np.inf
            depth -= 1
            continue
        branches += 1
        row = at[depth]
        s, f = slow[depth] + int(table[depth, row, 0]), fast[depth] + int(table[depth, row, 1])
        if s >= prices.shape[0] or f >= prices.shape[1] or prices[s, f] >= best - 1e-12:
            continue
        i = order[depth]
        power[i] = np.inf if cost[i] <= 1e-12 else table[depth, row, 2]
        arriving[:] = input_rps
        for a in order:
            able = np.inf if power[a] == np.inf else power[a] / cost[a]
            processed[a] = min(arriving[a], able)
            for b in range(count):
                if feeds[a, b] > 0:
                    arriving[b] += processed[a] * selectivity[a]
        starved = False
        for a in order:
            starved = starved or processed[a] < least_share * wanted[a] - 1e-9
        if starved:
            continue
        share = 0.0
        for o in outputs:
            share += min(1.0, processed[o] / wanted[o]) if wanted[o] > 0 else 1.0
        if share / len(outputs) < target - 1e-9:
            continue
        if depth == count - 1:
            best = prices[s, f]
            found = True
            for d in range(count):
                best_cores[order[d], 0] = int(table[d, at[d], 0])
                best_cores[order[d], 1] = int(table[d, at[d], 1])
            continue
        slow[depth + 1], fast[depth + 1] = s, f
        depth += 1
    return (best if found else np.inf), best_cores, branches


def _deployment(demand: Demand, alternates: Ints, cores: Ints, speeds: Floats) -> Deployment:
    """Machines for the cores of each speed: the cheapest cover, traced back as the price table was made."""
    per_class = np.zeros((len(demand.classes), len(alternates)), dtype=np.int64)
    order = demand.graph.depth_first
    for column, speed in ((1, speeds[-1]), *(((0, speeds[0]),) if len(speeds) > 1 else ())):
        rows = [k for k in range(len(demand.classes)) if demand.core_speed[k] == speed]
        owners = np.repeat(order, cores[order, column])
        line = [0.0]
        picks = [-1]
        for count in range(1, len(owners) + 1):
            prices = [float(demand.hourly[k]) + line[max(0, count - int(demand.cores[k]))] for k in rows]
            pick = int(np.argmin(prices))
            line.append(prices[pick])
            picks.append(rows[pick])
        left = len(owners)
        while left > 0:
            k = picks[left]
            taken = owners[max(0, left - int(demand.cores[k])) : left]
            np.add.at(per_class[k], taken, 1)
            left -= len(taken)
    machines, table = laid_out(per_class, demand.cores, order)
    return Deployment(alternates=alternates, machines=machines, cores=table)
