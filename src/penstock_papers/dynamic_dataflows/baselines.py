"""CE, SH and GA at run time as policies of the loop: what they decide for the cores becomes actions.

They keep a table of which operator has which core, as the paper does. Machines that were acquired get their row of the
table when they are first seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.policies.actions import Acquire, Action, Release, Switch
from penstock.policies.policy import Proposal
from penstock.policies.provisioning.problem import Demand
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock_papers.dynamic_dataflows.deciders import DECIDERS
from penstock_papers.dynamic_dataflows.genetic_running import EVERY, adapt_genetic
from penstock_papers.dynamic_dataflows.greedy_running import adapt_greedy
from penstock_papers.dynamic_dataflows.running import Running

BECAUSE = Reason(
    code="throughput-low", facts={"needs_cores": None, "capacity_cores": None, "then_needs_cores": None}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Which operator has how many cores, by machine id; and of machines that are still to come."""

    step: int = 0
    cores: dict[str, tuple[int, ...]] = field(default_factory=dict)
    coming: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Baseline:
    """A decider of the paper, asked to keep `demand.throughput`."""

    def __init__(self, decider: str, demand: Demand) -> None:
        self.name, self._demand = decider, demand

    def start(self, options: None) -> Owners:
        """The deployment that runs when the period begins."""
        first = DECIDERS[self.name](self._demand).deployment
        return Owners(cores={str(m): tuple(row.tolist()) for m, row in enumerate(first.cores)})

    def decide(self, snapshot: Snapshot, memory: Owners, options: None) -> tuple[Proposal, Owners]:
        """The changes for the coming interval."""
        demand, nodes = self._demand, snapshot.nodes
        names = [c.name for c in demand.classes]
        coming = list(memory.coming)
        known = dict(memory.cores)
        for id_, machine in zip(nodes.ids, nodes.machines, strict=True):
            if id_ not in known:
                at = next(i for i, (name, _) in enumerate(coming) if name == machine)
                known[id_] = coming.pop(at)[1]
        running = Running(
            step=memory.step + 1,
            time_s=snapshot.time_s,
            interval_s=snapshot.interval_s,
            alternates=np.asarray(snapshot.operators.alternate, np.int64),
            rows=np.array([names.index(m) for m in nodes.machines], np.int64),
            started_s=nodes.started_s,
            speed=nodes.speed,
            cores=np.array([known[i] for i in nodes.ids], np.int64).reshape(len(nodes), -1),
            input_rps=_produced(snapshot),
            throughput=_throughput(snapshot),
        )
        if self.name == "ga" and running.step % EVERY:
            return Proposal(policy=self.name), Owners(step=running.step, cores=known)
        if self.name == "ga":
            change = adapt_genetic(demand, running)
        else:
            change = adapt_greedy(demand, running, centralised=self.name == "ce")
        kept = [i for i, keep in zip(nodes.ids, change.keep, strict=True) if keep]
        tables = [tuple(row) for row in change.cores.tolist()]
        fresh = [names[k] for k in change.acquire]
        actions: list[Action] = [
            Release(node=i, reason=BECAUSE)
            for i, keep in zip(nodes.ids, change.keep, strict=True)
            if not keep
        ]
        actions += [Acquire(machine=n, count=fresh.count(n), reason=BECAUSE) for n in dict.fromkeys(fresh)]
        graph = demand.graph
        for i in np.flatnonzero(change.alternates != running.alternates).tolist():
            before, after = (graph.names[i][a[i]] for a in (running.alternates, change.alternates))
            actions.append(
                Switch(
                    operator=snapshot.dataflow.operators[i].id, current=before, target=after, reason=BECAUSE
                )
            )
        after_ = Owners(
            step=memory.step + 1,
            cores=dict(zip(kept, tables[: len(kept)], strict=True)),
            coming=tuple(zip(fresh, tables[len(kept) :], strict=True)),
        )
        return Proposal(policy=self.name, actions=tuple(actions)), after_


def _produced(snapshot: Snapshot) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rates = np.zeros(len(snapshot.dataflow.operators))
    rates[snapshot.sources.operator] = snapshot.sources.produced_rps
    return rates


def _throughput(snapshot: Snapshot) -> float:
    """Ω of the interval: what was processed of what came."""
    came = float(snapshot.sources.produced_rps.sum())
    return min(1.0, float(snapshot.sources.read_rps.sum()) / came) if came > 0 else 1.0
