"""Our decider for deployments: the most profitable one as an integer program over counts, solved with HiGHS.

Cores of a class are alike and belong to one operator each, so a deployment is fully described by how many cores of each
class every operator has: no packing is left to do. The program does not grow with the rate; only laying out the
machines does.

    max  Γ - σ·µ   over   z[i,j] alternate j of i is active, x[i,j] share of the full input d[i] it processes,
                          n[i,k] cores of class k for i, y[k] machines of class k
    s.t. Σ_j z[i,j] = 1,  x[i,j] ≤ z[i,j],  d[i]·Σ_j x[i,j] ≤ inputs of i,  Σ_k π_k·n[i,k] ≥ d[i]·Σ_j c[i,j]·x[i,j],
         Σ_k n[i,k] ≥ Σ_j z[i,j] over those with c > 0,  Σ_i n[i,k] ≤ N_k·y[k],  Σ_k price_k·y[k] ≤ budget,
         mean over outputs of Σ_j x[o,j] ≥ Ω̂,  Σ_j x[i,j] ≥ Ω̂-ε

d depends on which alternates are active upstream; it is exact where selectivities do not differ between alternates,
and otherwise each combination of the alternates that do is solved for itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from penstock.policies.provisioning.deployment import Deployment, Provision, assess, laid_out
from penstock.policies.provisioning.flow import FREE_S
from penstock.policies.provisioning.limits import explain_if_impossible, out_of_reach
from penstock.policies.provisioning.problem import Demand, Floats, Ints, full_rates

GAP = 5e-4
"""Relative gap at which the solver may stop."""
NODES = 3_000
"""Branches the solver may look at: a count, not a time, so that the answer is always the same."""
COMBINATIONS = 64
"""Most combinations of selectivities that are tried one by one."""
MANY_CORES = 500
"""From this many cores on, counts are rounded up from the continuous program: at most one core per operator more."""


def deploy_best(demand: Demand) -> Provision:
    """The most profitable deployment that keeps the throughput. Raises DemandError where nothing keeps it."""
    explain_if_impossible(demand)
    solved = [found for fixed in _combinations(demand) if (found := _solve(demand, fixed)) is not None]
    assessed = [(assess(demand, deployment), deployment) for deployment in solved]
    kept = [each for each in assessed if each[0].meets]
    if not kept:
        near = max((a for a, _ in assessed), key=lambda a: a.throughput, default=None)
        raise out_of_reach(
            demand, None if near is None else near.cost_per_hour, None if near is None else near.throughput
        )
    best, deployment = max(kept, key=lambda each: each[0].profit)
    why = ("integer program over counts of cores and machines",)
    return Provision(decider="best", deployment=deployment, assessment=best, why=why)


def _combinations(demand: Demand) -> Iterator[dict[int, float]]:
    """Selectivities to fix: for every operator whose alternates differ in it, one of them."""
    graph = demand.graph
    choices: dict[int, list[float]] = {}
    for i in range(len(graph.operators)):
        usable = graph.value[i] > 0
        levels = sorted(set(graph.selectivity[i][usable].tolist()), reverse=True)
        if len(levels) > 1:
            choices[i] = levels
    for combination in itertools.islice(itertools.product(*choices.values()), COMBINATIONS):
        yield dict(zip(choices, combination, strict=True))


def _solve(demand: Demand, fixed: dict[int, float]) -> Deployment | None:
    graph = demand.graph
    P, K = len(graph.operators), len(demand.classes)
    allowed = graph.value > 0
    for i, level in fixed.items():
        allowed[i] &= graph.selectivity[i] == level
    pairs = [(i, int(j)) for i in range(P) for j in np.flatnonzero(allowed[i])]
    selectivity = np.array([graph.selectivity[i][allowed[i]][0] for i in range(P)])
    wanted = full_rates(graph, demand.input_rps, selectivity)
    scale = np.where(wanted > 0, wanted, 1.0)
    A = len(pairs)
    z, x, n, y = 0, A, 2 * A, 2 * A + P * K
    size = y + K
    rows: list[tuple[dict[int, float], float, float]] = []
    of_operator: list[list[int]] = [[] for _ in range(P)]
    for a, (i, _) in enumerate(pairs):
        of_operator[i].append(a)
        rows.append(({x + a: 1.0, z + a: -float(wanted[i] > 0)}, -np.inf, 0.0))
    for i in range(P):
        rows.append(({z + a: 1.0 for a in of_operator[i]}, 1.0, 1.0))
        arriving = {x + a: 1.0 for a in of_operator[i]}
        for h in np.flatnonzero(graph.feeds[:, i]):
            for a in of_operator[int(h)]:
                arriving[x + a] = -float(selectivity[h] * wanted[h] / scale[i])
        rows.append((arriving, -np.inf, float(demand.input_rps[i] / scale[i])))
        powered = {n + i * K + k: -float(demand.core_speed[k]) for k in range(K)}
        for a in of_operator[i]:
            powered[x + a] = float(graph.cost_s[pairs[a]] * wanted[i])
        rows.append((powered, -np.inf, 0.0))
        if wanted[i] > 0:
            # However little comes in: below the solver's tolerance it would do without a core.
            a_core = {n + i * K + k: 1.0 for k in range(K)}
            a_core |= {z + a: -1.0 for a in of_operator[i] if graph.cost_s[pairs[a]] > FREE_S}
            rows.append((a_core, 0.0, np.inf))
            rows.append(({x + a: 1.0 for a in of_operator[i]}, demand.least_share, np.inf))
    for k in range(K):
        shared = {n + i * K + k: 1.0 for i in range(P)}
        shared[y + k] = -float(demand.cores[k])
        rows.append((shared, -np.inf, 0.0))
    live = [o for o in graph.outputs if wanted[o] > 0]
    if live:
        share = {x + a: 1.0 / len(live) for o in live for a in of_operator[int(o)]}
        idle = len(graph.outputs) - len(live)
        least = (demand.throughput * len(graph.outputs) - idle) / len(live)
        rows.append((share, min(1.0, least), np.inf))
    if np.isfinite(demand.budget_per_hour):
        spent = {y + k: float(demand.hourly[k]) for k in range(K)}
        rows.append((spent, -np.inf, demand.budget_per_hour))
    objective = np.zeros(size)
    for a, pair in enumerate(pairs):
        # Value given up rather than value: of a sum of nearly 1 the gap would be more than a machine costs.
        objective[z + a] = (graph.value[pair[0]].max() - graph.value[pair]) / P
    # Of equally priced machines the larger: fewer boundaries for records to cross.
    objective[y : y + K] = demand.sigma * demand.hourly * (1 - 1e-7 * demand.cores)
    upper = np.full(size, np.inf)
    upper[z:x] = 1.0
    upper[y:] = [np.inf if c.available is None else c.available for c in demand.classes]
    integral = np.ones(size)
    integral[x:n] = 0
    relaxed = float((graph.cost_s.min(axis=1, initial=np.inf, where=allowed) * wanted).sum()) > MANY_CORES
    if relaxed:
        integral[n:] = 0
    result = milp(
        objective,
        integrality=integral,
        bounds=Bounds(0.0, upper),
        constraints=_constraint(rows, size),
        options={"mip_rel_gap": GAP, "node_limit": NODES},
    )
    if result.x is None:
        return None
    alternates: Ints = np.zeros(P, dtype=np.int64)
    for a, (i, j) in enumerate(pairs):
        if result.x[z + a] > 0.5:
            alternates[i] = j
    counts = np.clip(result.x[n : n + P * K].reshape(P, K), 0.0, None)
    cores = _rounded(demand, counts) if relaxed else np.rint(counts).astype(np.int64)
    machines, table = laid_out(np.ascontiguousarray(cores.T), demand.cores, graph.depth_first)
    return Deployment(alternates=alternates, machines=machines, cores=table)


def _constraint(rows: list[tuple[dict[int, float], float, float]], size: int) -> LinearConstraint:
    where = [(r, c, v) for r, (entries, _, _) in enumerate(rows) for c, v in entries.items()]
    r, c, v = zip(*where, strict=True)
    matrix = coo_array((v, (r, c)), shape=(len(rows), size)).tocsr()
    return LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows])


def _rounded(demand: Demand, counts: Floats) -> Ints:
    """Whole cores for the power that the continuous program gave each operator.

    Where any number can be had: the largest class of the best price for power, and for the rest the cheapest core that
    is fast enough. Where numbers are limited: the program's own classes, rounded up.
    """
    if any(c.available is not None for c in demand.classes):
        return np.ceil(counts - 1e-6).astype(np.int64)
    power = counts @ demand.core_speed
    per_power = np.round(demand.hourly / (demand.cores * demand.core_speed), 12)
    bulk = int(np.lexsort((-demand.cores, per_power))[0])
    cores = np.zeros(counts.shape, dtype=np.int64)
    cores[:, bulk] = np.floor(power / demand.core_speed[bulk] + 1e-9)
    per_core = demand.hourly / demand.cores
    for i, rest in enumerate(power - cores[:, bulk] * demand.core_speed[bulk]):
        if rest > 1e-9:
            fits = np.flatnonzero(demand.core_speed >= rest - 1e-9)
            cores[i, fits[np.lexsort((-demand.cores[fits], per_core[fits]))[0]]] += 1
    return cores
