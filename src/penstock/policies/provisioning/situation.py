"""What the policy remembers, the numbers of one cycle, and how a choice becomes switches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from penstock.policies.actions import Action, Expectation, Switch
from penstock.policies.elasticity.foresight import Foresight
from penstock.policies.elasticity.microbatch import WAIT_SHARE
from penstock.policies.provisioning.capacity import Efficiency, backlog_records
from penstock.policies.provisioning.choosing import needs
from penstock.policies.provisioning.options import ProvisioningOptions
from penstock.policies.provisioning.problem import Bools, Floats, Graph, Ints
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import Snapshot

NAME = "provisioning"
LEAST_UTILISATION = 0.4
"""A latency bound never asks for emptier cores than this: what is fixed in a batch is the cause then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """Nodes that were asked for, and what was processed before they came."""

    asked_s: float
    machine: str
    count: int
    """Nodes of the class that there will be."""
    power: float
    """Reference cores there were."""
    served_rps: float
    came_s: float | None = None


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
    """Since when a node could be given back."""
    planned: tuple[int, ...] = ()
    """Alternates for which the nodes were last counted."""
    purchase: Purchase | None = None
    """The last one, until its nodes are there and have shown what they bring."""
    pause_s: float = 0.0
    """How long nothing is bought after a purchase that brought nothing; doubles each time."""
    paused_until_s: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Situation:
    """The numbers of one cycle."""

    graph: Graph
    active: Ints
    rates_rps: Floats
    foreseen_rps: Floats
    capacity: float
    """Reference cores that work can be planned for."""
    full: float
    """Share of a node's cores that work can be planned for."""
    tasks: Floats
    """Cores that each operator can use at most; infinite where any task can run anywhere."""
    backlog: float
    """Records beyond what is ordinary."""
    at_once: float
    """Share of the input that must be carried as it comes; the rest may wait for the end of a peak."""
    tolerance: float

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
    """The numbers of this cycle, shedding on streams included; the capacity is still to be filled in."""
    row = snapshot.dataflow.row
    feeds = graph.feeds.copy()
    for stream, keep in zip(snapshot.dataflow.streams, snapshot.streams.keep, strict=True):
        if np.isfinite(keep):
            feeds[row[stream.source], row[stream.target]] = min(1.0, max(0.0, float(keep)))
    batched = snapshot.batches is not None
    busy = _highest_utilisation(snapshot, memory, options) if batched else options.utilisation
    ordinary = float(rates.sum()) * max(options.lag_s, 2 * memory.efficiency.length_s if batched else 0.0)
    # The runtime's own ends (sources, sinks) are bound to their tasks like everything else.
    tasks = np.maximum(snapshot.operators.parallelism, 1).astype(np.float64)
    return Situation(
        graph=replace(graph, feeds=feeds),
        active=np.asarray(snapshot.operators.alternate, dtype=np.int64),
        rates_rps=rates,
        foreseen_rps=foreseen(snapshot, rates, memory, options.foresight_s, options.caution, most=0.3),
        capacity=0.0,
        full=(memory.efficiency.share if batched else 1.0) * busy,
        tasks=np.full(len(tasks), np.inf) if batched else tasks * busy,
        backlog=max(0.0, backlog_records(snapshot) - ordinary),
        # Where a latency is bounded, nothing may wait.
        at_once=1.0 if snapshot.dataflow.constraints else snapshot.dataflow.goals.throughput,
        tolerance=snapshot.dataflow.goals.throughput_tolerance,
    )


def usual_level(memory: ProvisioningMemory, within_s: float, otherwise: float) -> float:
    """Records per second of all sources, over the last so many seconds."""
    seen = memory.foresight
    if seen is None or not len(seen.history):
        return otherwise
    rows = max(1, round(within_s / seen.step_s))
    return float(np.nanmean(np.nansum(seen.history[-rows:], axis=1)))


def foreseen(
    snapshot: Snapshot, rates: Floats, memory: ProvisioningMemory, within_s: float, sigmas: float, most: float
) -> Floats:
    """Per operator, the highest rate to be ready for within so many seconds, at least that of now."""
    found = rates.copy()
    if memory.foresight is not None and memory.foresight.seen > 3:
        ahead = memory.foresight.highest_rps(within_s, sigmas=sigmas, most=most)
        np.maximum.at(found, snapshot.sources.operator, np.where(np.isfinite(ahead), ahead, 0.0))
    return found


def _highest_utilisation(
    snapshot: Snapshot, memory: ProvisioningMemory, options: ProvisioningOptions
) -> float:
    """ρ at which every latency bound holds: a record waits for its batch and stays for it, o/(1-ρ) each."""
    fixed_s, line = memory.efficiency.line.overhead_s, memory.efficiency.line
    if not line.known:
        return options.utilisation
    limits = [
        1 - (1 + WAIT_SHARE[c.statistic]) * fixed_s * 1e3 / c.bound_ms
        for c in snapshot.dataflow.constraints
        if c.bound_ms > 0
    ]
    return min(options.utilisation, max(LEAST_UTILISATION, min(limits, default=1.0)))


def switches(
    snapshot: Snapshot, now: Situation, target: Ints, code: str, power: float, money: dict[str, Fact]
) -> tuple[Action, ...]:
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
        **money,
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
