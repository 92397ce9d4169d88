"""What the policy remembers, the numbers of one cycle, and how a choice becomes switches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from penstock.policies.actions import Action, Expectation, Switch
from penstock.policies.elasticity.foresight import Foresight
from penstock.policies.provisioning.capacity import Efficiency, backlog_records, usable_cores
from penstock.policies.provisioning.choosing import needs
from penstock.policies.provisioning.options import ProvisioningOptions
from penstock.policies.provisioning.problem import Bools, Floats, Graph, Ints
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import Snapshot

NAME = "provisioning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningMemory:
    """What was learnt, and since when something better would have fitted."""

    efficiency: Efficiency = field(default_factory=Efficiency)
    foresight: Foresight | None = None
    fits_since_s: float | None = None
    patience_s: float = 0.0
    """How long something better must fit now; grows with returns that did not last."""
    returned_s: float = float("-inf")
    relieved_s: float = float("-inf")
    spare_since_s: float | None = None
    """Since when a machine could be given back; only with `rent`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Situation:
    """The numbers of one cycle."""

    graph: Graph
    active: Ints
    rates_rps: Floats
    foreseen_rps: Floats
    capacity: float
    """Reference cores that work can be planned for."""
    tasks: Floats
    """Cores that each operator can use at most; infinite where any task can run anywhere."""
    backlog: float
    """Records beyond what is ordinary."""

    @property
    def drain(self) -> float:
        """The backlog relative to the rate, in seconds of production."""
        return self.backlog / max(float(self.rates_rps.sum()), 1e-9)

    def carried(self, chosen: Ints, factor: float, rates: Floats) -> tuple[Bools, Floats, Floats]:
        """(which choices fit into `factor` of the capacity, cores each needs, value of each)."""
        power, value = needs(self.graph, rates, chosen)
        fits = power.sum(axis=1) <= factor * self.capacity + 1e-12
        fits &= (power <= factor * self.tasks + 1e-12).all(axis=1)
        return fits, power.sum(axis=1), value


def situation(
    snapshot: Snapshot, graph: Graph, rates: Floats, memory: ProvisioningMemory, options: ProvisioningOptions
) -> Situation:
    """The numbers of this cycle, shedding on streams included."""
    row = snapshot.dataflow.row
    feeds = graph.feeds.copy()
    for stream, keep in zip(snapshot.dataflow.streams, snapshot.streams.keep, strict=True):
        if np.isfinite(keep):
            feeds[row[stream.source], row[stream.target]] = min(1.0, max(0.0, float(keep)))
    foreseen = rates.copy()
    if memory.foresight is not None and memory.foresight.seen > 3:
        ahead = memory.foresight.highest_rps(options.foresight_s, sigmas=options.caution, most=0.3)
        ahead = np.where(np.isfinite(ahead), ahead, 0.0)
        np.maximum.at(foreseen, snapshot.sources.operator, ahead)
    batched = snapshot.batches is not None
    efficiency = memory.efficiency.share if batched else 1.0
    cores = usable_cores(snapshot)
    ordinary = float(rates.sum()) * max(options.lag_s, 2 * memory.efficiency.length_s if batched else 0.0)
    if batched:
        tasks = np.full(len(graph.operators), np.inf)
    else:
        # The runtime's own ends (sources, sinks) are bound to their tasks like everything else.
        tasks = np.maximum(snapshot.operators.parallelism, 1).astype(np.float64)
    return Situation(
        graph=replace(graph, feeds=feeds),
        active=np.asarray(snapshot.operators.alternate, dtype=np.int64),
        rates_rps=options.throughput * rates,
        foreseen_rps=options.throughput * foreseen,
        capacity=cores * efficiency * options.utilisation,
        tasks=tasks * options.utilisation,
        backlog=max(0.0, backlog_records(snapshot) - ordinary),
    )


def switches(snapshot: Snapshot, now: Situation, target: Ints, code: str, power: float) -> tuple[Action, ...]:
    """The switches from the active alternates to the target, each with the numbers behind it."""
    current_power = float(needs(now.graph, now.rates_rps, now.active[None, :])[0].sum())
    facts: dict[str, Fact] = {
        "rate_rps": float(now.rates_rps.sum()),
        "backlog_records": now.backlog,
        "capacity_cores": now.capacity,
        "needs_cores": current_power,
        "then_needs_cores": power,
        "value": now.graph.worth(now.active),
        "then_value": now.graph.worth(target),
    }
    return tuple(
        Switch(
            operator=snapshot.dataflow.operators[i].id,
            current=now.graph.names[i][now.active[i]],
            target=now.graph.names[i][target[i]],
            reason=Reason(code=code, facts=facts),
            expects=Expectation(
                metric="alternate",
                subject=snapshot.dataflow.operators[i].id,
                value=float(target[i]),
                within_s=3 * snapshot.interval_s,
            ),
        )
        for i in np.flatnonzero(target != now.active).tolist()
    )
