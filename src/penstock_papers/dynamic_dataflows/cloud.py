"""A cloud by intervals, as the paper simulates it: rates and machine speeds vary, deciders adapt, the bill runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from penstock.policies.provisioning import Demand, Deployment
from penstock.policies.provisioning.deployment import carried_rps
from penstock.policies.provisioning.flow import advance, mean_share
from penstock.policies.provisioning.problem import Floats, Ints, full_rates
from penstock.policies.provisioning.running import Adaptation, Running
from penstock.policies.provisioning.steering import SteeringMemory, SteeringOptions, steer
from penstock_papers.dynamic_dataflows.deciders import DECIDERS
from penstock_papers.dynamic_dataflows.genetic_running import adapt_genetic
from penstock_papers.dynamic_dataflows.greedy_running import adapt_greedy
from penstock_papers.dynamic_dataflows.roads import STEP_S, MachineSpeeds, roads_demand


class Adapter(Protocol):
    """Decides at run time; keeps its own memory."""

    def __call__(self, demand: Demand, running: Running) -> Adaptation:
        """What to change."""
        ...


class Steerer:
    """Our run-time decider, with its memory."""

    def __init__(self, options: SteeringOptions | None = None) -> None:
        self._memory, self._options = SteeringMemory(), options or SteeringOptions()

    def __call__(self, demand: Demand, running: Running) -> Adaptation:
        """What to change."""
        adaptation, self._memory = steer(demand, running, self._memory, self._options)
        return adaptation


def adapter(name: str) -> Adapter:
    """The run-time decider of that name, afresh."""
    if name == "best":
        return Steerer()
    if name == "ga":
        return adapt_genetic
    return lambda demand, running: adapt_greedy(demand, running, centralised=name == "ce")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """What happened, an entry per interval."""

    throughput: Floats
    value: Floats
    rate_rps: Floats
    machines: Ints
    cores: Ints
    decide_s: Floats
    """CPU seconds."""
    switches: int
    cost: float
    """The whole bill."""
    profit: float

    @property
    def held_share(self) -> float:
        """Share of the intervals with Ω ≥ Ω̂ - ε."""
        return float((self.throughput >= 0.75 - 1e-9).mean())


def play(
    rate_rps: float,
    decider: str,
    *,
    rates: Floats,
    speeds: MachineSpeeds,
    adaptive: bool = True,
    alternates: bool = True,
    seed: int = 0,
) -> Course:
    """One run: deployed for the mean rate, then `rates` (relative, a step each) and `speeds` as they come."""
    demand = roads_demand(rate_rps, alternates=alternates, seed=seed)
    graph = demand.graph
    first = demand
    if decider == "best" and adaptive:
        first = replace(demand, throughput=0.9)
    found: Deployment = DECIDERS[decider](first).deployment
    decide = adapter(decider)
    rows, table, active = found.machines.copy(), found.cores.copy(), found.alternates.copy()
    serial = np.arange(len(rows))
    started = np.full(len(rows), -1e9)  # ready when the period begins; billed from then on
    began = np.zeros(len(rows))
    queued = np.zeros(len(active))
    cost, switches, born = 0.0, 0, len(rows)
    shares, values, counts, used, spent = [], [], [], [], []
    seen_rates, seen_speed, share = demand.input_rps, demand.core_speed[rows], 1.0
    for step, relative in enumerate(rates):
        now = step * STEP_S
        taken = 0.0
        if adaptive and step:
            running = Running(
                step=step,
                time_s=now,
                interval_s=STEP_S,
                alternates=active,
                rows=rows,
                started_s=began,
                speed=seen_speed,
                cores=table,
                input_rps=seen_rates,
                throughput=share,
            )
            mark = time.process_time()
            change = decide(demand, running)
            taken = time.process_time() - mark
            for m in np.flatnonzero(~change.keep):
                cost += demand.classes[rows[m]].bill(now - began[m])
            switches += int((change.alternates != active).sum())
            fresh = len(change.acquire)
            rows = np.concatenate([rows[change.keep], change.acquire])
            began = np.concatenate([began[change.keep], np.full(fresh, now)])
            started = np.concatenate([started[change.keep], np.full(fresh, now)])
            serial = np.concatenate([serial[change.keep], np.arange(born, born + fresh)])
            born += fresh
            table, active = change.cores, change.alternates
        factor = speeds.of(range(born), step)[serial]
        speed = demand.core_speed[rows] * factor
        startup = np.array([c.startup_s for c in demand.classes])[rows]
        ready = np.clip((now + STEP_S - started - startup) / STEP_S, 0.0, 1.0)
        incoming = demand.input_rps * relative
        cost_s, selectivity = graph.of(active)
        deployment = Deployment(alternates=active, machines=rows, cores=table)
        bandwidth = np.array([c.bandwidth_bytes_per_s for c in demand.classes])[rows]
        carried = carried_rps(graph, deployment, bandwidth)
        processed, queued = advance(
            graph.order,
            graph.feeds,
            incoming,
            cost_s,
            selectivity,
            deployment.power(speed * ready),
            carried,
            queued,
            STEP_S,
        )
        share = float(mean_share(processed, full_rates(graph, incoming, selectivity), graph.outputs))
        seen_rates = incoming
        seen_speed = np.where(ready > 0, speed, demand.core_speed[rows])
        shares.append(share)
        values.append(graph.worth(active))
        counts.append(len(rows))
        used.append(int(table.sum()))
        spent.append(taken)
    end = len(rates) * STEP_S
    cost += sum(demand.classes[k].bill(end - b) for k, b in zip(rows, began, strict=True))
    per_hour = cost / (end / 3600)
    return Course(
        throughput=np.array(shares),
        value=np.array(values),
        rate_rps=rate_rps * rates,
        machines=np.array(counts),
        cores=np.array(used),
        decide_s=np.array(spent),
        switches=switches,
        cost=cost,
        profit=demand.profit(float(np.mean(values)), per_hour),
    )
