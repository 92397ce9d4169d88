"""How many nodes one latency constraint needs, by the model of micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats
from penstock.dataflow import Constraint
from penstock.policies.elasticity.microbatch import BatchCost, batch_length_s, cores_to_drain, latency_s
from penstock.policies.elasticity.options import NodeOptions
from penstock.policies.elasticity.query_demand import Demand, cores_per_node, free_cores, work_cores
from penstock.telemetry import Snapshot

LATENCY_IN_BATCHES = 1.5
"""A record waits half a batch on average for the next one, which then takes a whole."""
NEAR_BEST = 1.1
"""Where no number of nodes holds a bound: a latency within this factor of the best that nodes can bring is near it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Nodes that one constraint needs, and the numbers behind it."""

    query: int
    constraint: Constraint
    nodes: int
    rate_rps: float
    predicted_s: float
    fixed_s: float
    feasible: bool
    for_backlog: bool


def need_of(
    snapshot: Snapshot,
    demand: Demand,
    costs: Mapping[str, BatchCost],
    query: int,
    constraint: Constraint,
    options: NodeOptions,
    *,
    rates_rps: Floats,
) -> Need:
    """The fewest nodes that the model says hold one constraint with that load and the backlog, nothing shed."""
    cost, rate = costs[demand.names[query]], float(rates_rps[query])
    counts = np.arange(options.min_nodes, max(options.min_nodes, node_limit(snapshot, options)) + 1)
    cores = counts.astype(np.float64) * cores_per_node(snapshot)
    # A longer interval is given up before a node is bought for it.
    work = work_cores(demand, costs, rates_rps, demand.least_interval_s)
    free = free_cores(demand, query, cores, work)
    o, s, interval = cost.overhead_on(free), cost.record_s, float(demand.least_interval_s[query])
    bound = constraint.bound_ms / 1e3
    predicted = latency_s(o, s, rate, free, interval, constraint.statistic, cost.variation)
    keeps_up = work.sum() / cores <= options.utilisation
    holds = (predicted <= options.margin * bound) & keeps_up
    # What one ordinary batch holds is no backlog: it is read by the next one. Ordinary is what the model says, or what
    # is seen, as long as such batches hold the bound.
    seen = min(_longest_batch_s(snapshot, query), bound / LATENCY_IN_BATCHES)
    length = max(batch_length_s(o, s, rate, free, interval)[-1], demand.interval_s[query], seen)
    spare = max(0.0, float(demand.backlog[query]) - 2 * rate * (length if np.isfinite(length) else bound))
    drains = (spare <= 0) | (
        free >= cores_to_drain(float(o[-1]), s, rate, spare, options.catch_up_s, bound / 2) - 1e-9
    )
    enough = holds & drains
    feasible = bool(enough.any())
    if (
        not feasible
    ):  # then the fewest that come near to what is best: nodes that bring nothing are not bought
        possible = drains & keeps_up & np.isfinite(predicted)
        best = np.min(predicted, where=possible, initial=np.inf)
        enough = possible & (predicted <= NEAR_BEST * best)
    at = int(np.argmax(enough)) if enough.any() else len(counts) - 1
    return Need(
        query=query,
        constraint=constraint,
        nodes=int(counts[at]),
        rate_rps=rate,
        predicted_s=float(predicted[at]),
        fixed_s=float(o[at]),
        feasible=feasible,
        for_backlog=feasible and bool(holds[:at].any()),
    )


def _longest_batch_s(snapshot: Snapshot, query: int) -> float:
    """The longest batch of a query that ended lately, or 0."""
    if snapshot.batches is None:
        return 0.0
    mine = snapshot.batches.of_query(query) if len(snapshot.queries) else snapshot.batches
    return float(mine.duration_s.max(initial=0.0))


def node_limit(snapshot: Snapshot, options: NodeOptions) -> int:
    """The most nodes that can be had."""
    available = next((c.available for c in snapshot.classes if c.available), None)
    return options.max_nodes or available or len(snapshot.nodes)
