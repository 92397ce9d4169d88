"""Which alternates run on which machines, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.policies.provisioning.flow import advance, lowest_share, mean_share
from penstock.policies.provisioning.problem import Demand, Floats, Graph, Ints, full_rates


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deployment:
    """Active alternates, machines, and the operators that have their cores."""

    alternates: Ints
    """Per operator, the index of the active one."""
    machines: Ints
    """Per machine, the row of its class."""
    cores: Ints
    """[machine, operator]: cores of the machine that the operator has."""

    def power(self, speed: Floats) -> Floats:
        """φ per operator in reference cores, `speed` being that of a core of each machine."""
        return np.asarray(speed @ self.cores, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What a deployment brings and costs, at rated speed."""

    value: float
    throughput: float
    cost_per_hour: float
    profit: float
    meets: bool
    """Whether the throughput is kept, no operator is starved, and the budget is kept too."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Provision:
    """A decider's answer."""

    decider: str
    deployment: Deployment
    assessment: Assessment
    why: tuple[str, ...] = field(default=())


def assess(demand: Demand, deployment: Deployment) -> Assessment:
    """Value, throughput, cost and profit of a deployment, with its machines as fast as rated."""
    graph = demand.graph
    power = deployment.power(demand.core_speed[deployment.machines])
    cost, selectivity = graph.of(deployment.alternates)
    bandwidth = np.array([c.bandwidth_bytes_per_s for c in demand.classes])[deployment.machines]
    processed, _ = advance(
        graph.order,
        graph.feeds,
        demand.input_rps,
        cost,
        selectivity,
        power,
        carried_rps(graph, deployment, bandwidth),
        np.zeros(len(power)),
        1.0,
    )
    wanted = full_rates(graph, demand.input_rps, selectivity)
    share = mean_share(processed, wanted, graph.outputs)
    starved = lowest_share(processed, wanted) < demand.least_share - 1e-6
    value = graph.worth(deployment.alternates)
    hourly = float(demand.hourly[deployment.machines].sum())
    return Assessment(
        value=value,
        throughput=share,
        cost_per_hour=hourly,
        profit=demand.profit(value, hourly),
        meets=bool(
            share >= demand.throughput - 1e-6 and not starved and hourly <= demand.budget_per_hour + 1e-9
        ),
    )


def carried_rps(graph: Graph, deployment: Deployment, bandwidth_bytes_per_s: Floats) -> Floats:
    """[operator, operator]: records per second that the network carries; infinite where no machine boundary is crossed.

    Instances are spread evenly: of the records from i to j the share Σ_m (n_im/n_i)·(n_jm/n_j) stays in memory, the
    rest shares the bandwidth of the machines that hold i, and of those that hold j.
    """
    cores = deployment.cores.astype(np.float64)
    totals = cores.sum(axis=0)
    shares = np.where(totals > 0, cores / np.where(totals > 0, totals, 1.0), 0.0)
    together = shares.T @ shares
    reach = bandwidth_bytes_per_s @ (cores > 0)
    between = np.minimum.outer(reach, reach) / np.maximum(graph.record_bytes, 1e-9)[:, None]
    apart = np.clip(1.0 - together, 0.0, 1.0)
    # Operators without cores ride along with their neighbours.
    riding = (totals[:, None] == 0) | (totals[None, :] == 0) | (apart <= 1e-12)
    return np.asarray(np.where(riding, np.inf, between / np.where(riding, 1.0, apart)))


def laid_out(per_class: Ints, cores_of: Ints, order: Ints) -> tuple[Ints, Ints]:
    """(class of each machine, [machine, operator] cores) for `per_class[class, operator]` cores.

    Each class's cores are handed out in `order`, so that neighbours share machines; the last machine of a class may
    have free cores.
    """
    machines: list[Ints] = []
    tables: list[Ints] = []
    for k, wanted in enumerate(per_class):
        total = int(wanted.sum())
        if not total:
            continue
        owners = np.repeat(order, wanted[order])
        count = -(-total // int(cores_of[k]))
        table = np.zeros((count, len(wanted)), dtype=np.int64)
        np.add.at(table, (np.arange(total) // int(cores_of[k]), owners), 1)
        machines.append(np.full(count, k, dtype=np.int64))
        tables.append(table)
    if not machines:
        return np.zeros(0, np.int64), np.zeros((0, per_class.shape[1]), np.int64)
    return np.concatenate(machines), np.vstack(tables)
