"""Hold a latency bound with the fewest nodes, on a runtime that works in micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.dataflow import Constraint
from penstock.policies.elasticity.microbatch import BatchCost, batch_length_s, cores_to_drain, latency_s
from penstock.policies.elasticity.options import NodeOptions
from penstock.policies.proposal import Cost, Expectation, Notice, Proposal, Reason, Scale
from penstock.telemetry import Snapshot, Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """What batches cost, what was wanted lately as (time, nodes), and when the number last changed."""

    cost: BatchCost = field(default_factory=BatchCost)
    wanted: tuple[tuple[float, int], ...] = ()
    changed_s: float = float("-inf")
    nodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Nodes that one constraint needs, and the numbers behind it."""

    constraint: Constraint
    nodes: int
    predicted_s: float
    feasible: bool
    for_backlog: bool


class NodeElasticity:
    """As few nodes as hold every latency constraint, backlog included; grows at once, shrinks with patience."""

    name = "elasticity"

    def start(self, options: NodeOptions) -> NodeMemory:
        """Nothing learnt yet."""
        return NodeMemory()

    def decide(
        self, snapshot: Snapshot, memory: NodeMemory, options: NodeOptions
    ) -> tuple[Proposal, NodeMemory]:
        """Scale the nodes, or say which bound cannot be held."""
        nodes = snapshot.nodes
        staying = ~nodes.draining
        current = int(staying.sum())
        cores = float(nodes.cores[staying & nodes.ready].sum())
        cost = memory.cost
        if snapshot.batches is not None:
            cost = cost.learn(snapshot.batches, cores, _kept(snapshot.sources))
        changed = snapshot.time_s if current != memory.nodes else memory.changed_s
        seen = NodeMemory(cost=cost, wanted=memory.wanted, changed_s=changed, nodes=current)
        if not cost.known or not current or not snapshot.dataflow.constraints:
            return Proposal(policy=self.name), seen
        needs = [need_of(snapshot, c, cost, options) for c in snapshot.dataflow.constraints]
        need = max(needs, key=lambda n: n.nodes)
        notices = tuple(_out_of_reach(n, options) for n in needs if not n.feasible)
        recent = tuple((t, n) for t, n in memory.wanted if t > snapshot.time_s - options.shrink_after_s)
        wanted = (*recent, (snapshot.time_s, need.nodes))
        seen = NodeMemory(cost=cost, wanted=wanted, changed_s=changed, nodes=current)
        target = need.nodes if need.nodes > current else min(current, max(n for _, n in wanted))
        patient = (
            snapshot.time_s - changed >= max(options.settle_s, options.shrink_after_s)
            and wanted[0][0] <= snapshot.time_s - 0.7 * options.shrink_after_s
        )
        if target == current or (target < current and not patient):
            return Proposal(policy=self.name, notices=notices), seen
        action = Scale(
            current=current,
            target=target,
            reason=_reason(snapshot, need, cost, grows=target > current),
            expects=Expectation(
                metric="latency_s",
                subject=need.constraint.name,
                value=need.constraint.bound_ms / 1e3,
                within_s=options.settle_s + options.catch_up_s,
            ),
            cost=Cost(per_hour=(target - current) * float(nodes.price_per_hour.mean())),
        )
        return Proposal(policy=self.name, actions=(action,), notices=notices), seen


def need_of(snapshot: Snapshot, constraint: Constraint, cost: BatchCost, options: NodeOptions) -> Need:
    """The fewest nodes that the model says hold one constraint with the whole load and backlog, nothing shed."""
    nodes, sources = snapshot.nodes, snapshot.sources
    per_node = float(nodes.cores[nodes.known].mean()) if nodes.known.any() else float(nodes.cores.mean())
    known = sources.known
    rate = float(sources.produced_rps[known].sum())
    backlog = float(sources.backlog_records[known].sum())
    limit = (
        options.max_nodes or next((c.available for c in snapshot.classes if c.available), None) or len(nodes)
    )
    counts = np.arange(options.min_nodes, max(options.min_nodes, limit) + 1)
    cores = counts.astype(np.float64) * per_node
    interval = snapshot.batches.interval_s if snapshot.batches is not None else 0.0
    o, s = cost.overhead_s, cost.record_s
    bound = constraint.bound_ms / 1e3
    predicted = latency_s(o, s, rate, cores, interval, constraint.statistic)
    holds = (predicted <= options.margin * bound) & (rate * s / cores <= options.utilisation)
    # What one ordinary batch holds is no backlog: it is read by the next one.
    length = batch_length_s(o, s, rate, cores[-1:], interval)[0]
    spare = max(0.0, backlog - 2 * rate * (length if np.isfinite(length) else bound))
    drains = cores >= cores_to_drain(o, s, rate, spare, options.catch_up_s, bound / 2) - 1e-9
    enough = holds & (drains | (spare <= 0))
    feasible = bool(enough.any())
    at = int(np.argmax(enough)) if feasible else len(counts) - 1
    return Need(
        constraint=constraint,
        nodes=int(counts[at]),
        predicted_s=float(predicted[at]),
        feasible=feasible,
        for_backlog=feasible and bool(holds[:at].any()),
    )


def _kept(sources: Sources) -> float:
    """Share of all records read that the sources let pass."""
    read = np.where(sources.known, np.maximum(sources.read_rps, 0.0), 0.0)
    if read.sum() > 0:
        return float((read * sources.keep).sum() / read.sum())
    return float(sources.keep[sources.known].mean()) if sources.known.any() else 1.0


def _reason(snapshot: Snapshot, need: Need, cost: BatchCost, *, grows: bool) -> Reason:
    sources = snapshot.sources
    growth = "backlog" if need.for_backlog else "bound-needs-nodes"
    code = growth if grows else "fewer-nodes-suffice"
    return Reason(
        code=code,
        facts={
            "constraint": need.constraint.name,
            "bound_ms": need.constraint.bound_ms,
            "predicted_ms": 1e3 * need.predicted_s,
            "rate_rps": float(sources.produced_rps[sources.known].sum()),
            "backlog_records": float(sources.backlog_records[sources.known].sum()),
            "batch_overhead_ms": 1e3 * cost.overhead_s,
            "record_core_us": 1e6 * cost.record_s,
        },
    )


def _out_of_reach(need: Need, options: NodeOptions) -> Notice:
    predicted = 1e3 * need.predicted_s
    return Notice(
        goal=need.constraint.name,
        reason=Reason(
            code="bound-out-of-reach",
            facts={
                "bound_ms": need.constraint.bound_ms,
                "nodes": need.nodes,
                "predicted_ms": predicted if np.isfinite(predicted) else None,
            },
        ),
        helps="more nodes, a cheaper alternate, or shedding"
        if not np.isfinite(predicted)
        else f"more nodes, or a bound of at least {predicted / options.margin:.0f} ms",
    )
