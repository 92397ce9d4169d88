"""Ω of deployments in the steady state, of one and of many, and where it is lost; for the paper's deciders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from penstock.policies.provisioning.flow import FREE_S, lowest_share, mean_share
from penstock.policies.provisioning.problem import Demand, Floats, Graph, Ints, full_rates


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


def throughput(graph: Graph, input_rps: Floats, alternates: Ints, power: Floats) -> float:
    """Ω of a deployment in the steady state, `power` in reference cores per operator."""
    cost, selectivity = graph.of(alternates)
    wanted = full_rates(graph, input_rps, selectivity)
    processed = steady(graph.order, graph.feeds, input_rps, cost, selectivity, power)
    return mean_share(processed, wanted, graph.outputs)


def largest_class(demand: Demand) -> int:
    """The class of the greatest power."""
    return int(np.argmax(demand.cores * demand.core_speed))


class Goal(NamedTuple):
    """A flow with its alternates chosen, and how much of it must get through; for kernels."""

    order: Ints
    feeds: Floats
    outputs: Ints
    input_rps: Floats
    cost: Floats
    selectivity: Floats
    wanted: Floats
    """Records per second that reach each operator when nothing is short of power."""
    throughput: float
    least_share: float


def goal_of(demand: Demand, alternates: Ints, input_rps: Floats) -> Goal:
    """The goal of a demand with these alternates at these rates."""
    graph = demand.graph
    cost, selectivity = graph.of(alternates)
    return Goal(
        order=graph.order,
        feeds=graph.feeds,
        outputs=graph.outputs,
        input_rps=input_rps,
        cost=cost,
        selectivity=selectivity,
        wanted=full_rates(graph, input_rps, selectivity),
        throughput=demand.throughput,
        least_share=demand.least_share,
    )


@njit(cache=True)
def passed(goal: Goal, power: Floats) -> tuple[Floats, bool]:
    """(records per second that each operator processes with this power, whether that is enough)."""
    processed = steady(goal.order, goal.feeds, goal.input_rps, goal.cost, goal.selectivity, power)
    enough = mean_share(processed, goal.wanted, goal.outputs) >= goal.throughput - 1e-9
    return processed, enough and lowest_share(processed, goal.wanted) >= goal.least_share - 1e-9


@njit(cache=True)
def bottleneck(goal: Goal, processed: Floats) -> int:
    """The operator that processes the smallest share of what reaches it; -1 if all process everything."""
    arriving = goal.input_rps.copy()
    lowest, found = 1.0 - 1e-12, -1
    for i in goal.order:
        if arriving[i] > 0:
            share = processed[i] / arriving[i]
            if share < lowest:
                lowest, found = share, i
        for j in range(len(arriving)):
            if goal.feeds[i, j] > 0:
                arriving[j] += processed[i] * goal.selectivity[i]
    return found


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
