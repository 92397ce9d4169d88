"""What cannot be had, said before anything is searched for."""

from __future__ import annotations

import math

import numpy as np

from penstock.policies.provisioning.problem import Demand, DemandError, Ints, full_rates

MOST_MACHINES = 200_000
"""A demand beyond this is taken for a slip of the pen."""


def cheapest(demand: Demand) -> Ints:
    """Per operator, the alternate whose own cost and selectivity cause the least work, downstream included."""
    return np.asarray(downstream_costs(demand).argmin(axis=1))


def downstream_costs(demand: Demand) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """[operator, alternate]: c + s·Σ cost of what follows, each with its cheapest; from the outputs back (table 1)."""
    graph = demand.graph
    total = np.full(graph.value.shape, np.inf)
    least = np.zeros(len(graph.operators))
    usable = graph.value > 0
    for i in graph.order[::-1]:
        after = float(graph.feeds[i] @ least)
        total[i] = np.where(usable[i], graph.cost_s[i] + graph.selectivity[i] * after, np.inf)
        least[i] = total[i].min()
    return total


def explain_if_impossible(demand: Demand) -> None:
    """Raise a DemandError where even the cheapest alternates on fully used machines cannot be had or paid.

    The bound: at least Ω̂ of one output's input must pass everything on one way to it.
    """
    graph = demand.graph
    alternates = cheapest(demand)
    cost, selectivity = graph.of(alternates)
    rates = full_rates(graph, demand.input_rps, selectivity)
    power = demand.throughput * float((cost * rates).sum())
    strongest = float((demand.cores * demand.core_speed).max())
    if power / strongest > MOST_MACHINES:
        raise DemandError(
            f"{_demanded(demand)} takes some {power:.3g} reference cores even with the cheapest alternates, "
            f"{power / strongest:.3g} of the largest machines; at most {MOST_MACHINES:,} are planned. "
            f"{_most(demand, MOST_MACHINES * strongest / power)}"
        )
    offered = _offered(demand)
    if power > offered:
        raise DemandError(
            f"{_demanded(demand)} takes {power:.4g} reference cores with the cheapest alternates; all machines that "
            f"can be had make {offered:.4g}. {_most(demand, offered / power)}, or offer more machines"
        )
    needed = int((cost > 0).sum())
    cores = sum(math.inf if c.available is None else c.available * c.cores for c in demand.classes)
    if needed > cores:
        raise DemandError(
            f"{needed} operators need a core each, and all machines that can be had have {cores:.0f}; "
            "offer more machines"
        )
    price = min(h / (n * s) for h, n, s in zip(demand.hourly, demand.cores, demand.core_speed, strict=True))
    least = power * price
    if least > demand.budget_per_hour:
        raise DemandError(
            f"{_demanded(demand)} costs at least {least:.4g} an hour with the cheapest alternates on the cheapest "
            f"machines; the budget is {demand.budget_per_hour:.4g}. "
            f"{_most(demand, demand.budget_per_hour / least)}, or raise the budget"
        )


def out_of_reach(demand: Demand, cost_per_hour: float | None, throughput: float | None) -> DemandError:
    """The error for a demand that passed the quick bound and that no decider could meet all the same."""
    if cost_per_hour is not None and cost_per_hour > demand.budget_per_hour:
        return DemandError(
            f"{_demanded(demand)} costs {cost_per_hour:.4g} an hour as found; the budget is "
            f"{demand.budget_per_hour:.4g}. Raise the budget, lower the rate, or ask for less throughput"
        )
    reached = "" if throughput is None else f" {throughput:.1%} is what was reached;"
    return DemandError(
        f"{_demanded(demand)} does not fit:{reached} the machines that can be had or their network are too small. "
        "Offer more or larger machines, lower the rate, or ask for less throughput"
    )


def _offered(demand: Demand) -> float:
    return sum(math.inf if c.available is None else c.available * c.cores * c.speed for c in demand.classes)


def _demanded(demand: Demand) -> str:
    return f"keeping {demand.throughput:.0%} of {demand.input_rps.sum():,.6g} records/s"


def _most(demand: Demand, share: float) -> str:
    return f"That carries about {share * demand.input_rps.sum():,.3g} records/s: lower the rate"
