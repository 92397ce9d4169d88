"""How much gets through: equations 4 to 7 of dynamic-dataflows.txt.

Ω compares what leaves the output operators with what would leave them *for the current input* if nothing were short
of power (definition 4). The printed o^max also counts the queue; then a constant deployment at Ω = 0.8, which the
paper's table 2 has, would sink towards 0 within an hour.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from penstock.policies.provisioning.problem import Floats, Graph, Ints, full_rates

FREE_S = 1e-12
"""Cheaper than this per record counts as free."""


def throughput(graph: Graph, input_rps: Floats, alternates: Ints, power: Floats) -> float:
    """Ω of a deployment in the steady state, `power` in reference cores per operator."""
    cost, selectivity = graph.of(alternates)
    wanted = full_rates(graph, input_rps, selectivity)
    processed = steady(graph.order, graph.feeds, input_rps, cost, selectivity, power)
    return mean_share(processed, wanted, graph.outputs)


@njit(cache=True)
def steady(
    order: Ints, feeds: Floats, input_rps: Floats, cost: Floats, selectivity: Floats, power: Floats
) -> Floats:
    """Records per second that each operator processes when its queue is empty: min(i, φ/c)."""
    arriving = input_rps.copy()
    processed = np.zeros(len(order))
    for i in order:
        limit = power[i] / cost[i] if cost[i] > FREE_S else np.inf
        processed[i] = min(arriving[i], limit)
        for j in range(len(order)):
            if feeds[i, j] > 0:
                arriving[j] += processed[i] * selectivity[i]
    return processed


@njit(cache=True)
def mean_share(processed: Floats, wanted: Floats, outputs: Ints) -> float:
    """Ω: mean over the outputs of what they process relative to what they should (equation 7)."""
    total = 0.0
    for o in outputs:
        total += min(1.0, processed[o] / wanted[o]) if wanted[o] > 0 else 1.0
    return total / len(outputs)


@njit(cache=True)
def lowest_share(processed: Floats, wanted: Floats) -> float:
    """The smallest share of its full input that any operator processes."""
    lowest = 1.0
    for i in range(len(wanted)):
        if wanted[i] > 0:
            lowest = min(lowest, processed[i] / wanted[i])
    return lowest


@njit(cache=True)
def advance(
    order: Ints,
    feeds: Floats,
    input_rps: Floats,
    cost: Floats,
    selectivity: Floats,
    power: Floats,
    carried_rps: Floats,
    queued: Floats,
    interval_s: float,
) -> tuple[Floats, Floats]:
    """(records per second processed, records queued) after one interval.

    o = min(q + i·Δt, φ·Δt/c)·s/Δt (equation 4); what flows on is capped by `carried_rps` (equation 5), what is left
    over stays queued.
    """
    arriving = input_rps.copy()
    processed = np.zeros(len(order))
    left = queued.copy()
    for i in order:
        there = left[i] + arriving[i] * interval_s
        limit = power[i] * interval_s / cost[i] if cost[i] > FREE_S else np.inf
        done = min(there, limit)
        left[i] = there - done
        processed[i] = done / interval_s
        for j in range(len(order)):
            if feeds[i, j] > 0:
                arriving[j] += min(processed[i] * selectivity[i], carried_rps[i, j])
    return processed, left


def throughputs(graph: Graph, input_rps: Floats, alternates: Ints, power: Floats) -> tuple[Floats, Floats]:
    """(Ω, lowest share of any operator) of many deployments at once: rows of `alternates` and `power`."""
    rows = np.arange(len(graph.operators))
    cost, selectivity = graph.cost_s[rows, alternates], graph.selectivity[rows, alternates]
    wanted = np.tile(input_rps, (len(power), 1))
    arriving = wanted.copy()
    processed = np.zeros_like(arriving)
    for i in graph.order:
        free = cost[:, i] <= FREE_S
        limit = np.where(free, np.inf, power[:, i] / np.where(free, 1.0, cost[:, i]))
        processed[:, i] = np.minimum(arriving[:, i], limit)
        arriving += np.outer(processed[:, i] * selectivity[:, i], graph.feeds[i])
        wanted += np.outer(wanted[:, i] * selectivity[:, i], graph.feeds[i])
    share = np.where(wanted > 0, np.minimum(processed / np.maximum(wanted, 1e-300), 1.0), 1.0)
    return share[:, graph.outputs].mean(axis=1), share.min(axis=1)
