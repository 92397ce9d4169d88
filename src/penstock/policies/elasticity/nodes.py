"""Hold the latency bounds of all queries of an application with the fewest nodes, where they work in micro-batches.

Nodes belong to the application: its queries share their cores. A query has what the others leave, so its bound decides
how many cores there must be in all, and the query that needs the most decides how many nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats
from penstock.policies.actions import Cost, Expectation, Scale
from penstock.policies.elasticity.batching import Situation, intervals, limits, situations, unpaced_s
from penstock.policies.elasticity.microbatch import BatchCost, batch_length_s
from penstock.policies.elasticity.node_memory import TRIAL_REST_S, NodeMemory, Trial, is_dear, observed
from penstock.policies.elasticity.node_need import Need, need_of, node_limit
from penstock.policies.elasticity.options import NodeOptions
from penstock.policies.elasticity.query_demand import Demand, cores_per_node, work_cores
from penstock.policies.policy import Notice, Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot

STEADY = 1.1
"""A rate within this factor of its slow mean counts as steady."""
FAR = 4.0
"""A latency is far below its bound when this many times as much would still hold it."""
LONG = 2.0
"""A batch that runs this many times as long as expected says that the expectation is wrong."""
DEAR = 6.0
"""So many times the usual patience before a node is given back whose return would break a bound."""
ROOM = 0.6
"""Share of the margin that fewer nodes may use then: what nearly breaks a bound would soon be taken back."""
COLD = 0.5
"""Share of a new node's cores that do not count until it has settled."""
FIXED_SHARE = 0.3
"""From this share of the latency on, what a batch costs without records is named as what stands in the way."""


class NodeElasticity:
    """As few nodes as hold every latency constraint: ready before a foreseen rise, backlog included.

    It grows at once and shrinks with patience. What was measured overrules the model: nodes that hold the bounds with
    a steady load are enough, and where there is room for a mistake one node fewer is tried. While a batch runs longer
    than it should, or a query's figures are missing, nothing is given back.
    """

    name = "elasticity"

    def start(self, options: NodeOptions) -> NodeMemory:
        """Nothing learnt yet."""
        return NodeMemory()

    def decide(
        self, snapshot: Snapshot, memory: NodeMemory, options: NodeOptions
    ) -> tuple[Proposal, NodeMemory]:
        """Scale the nodes and pace the queries, or say which bound cannot be held."""
        demand = Demand.of(snapshot)
        memory = observed(snapshot, demand, memory, options)
        rates = np.nan_to_num(demand.rate_rps)
        soon, later = _foreseen(rates, memory, options)
        found = _situations(snapshot, demand, memory, options, np.maximum(rates, soon))
        proposal, memory = self._sized(snapshot, demand, memory, options, soon, later, found)
        if not options.pacing:
            return proposal, memory
        fewer = [a.target for a in proposal.actions if isinstance(a, Scale) and a.target < a.current]
        if fewer:  # the nodes that stay have to hold the bounds with the intervals set now
            found = _situations(snapshot, demand, memory, options, np.maximum(rates, soon), nodes=fewer[0])
        settled = snapshot.time_s - memory.changed_s >= options.settle_s and memory.asked is None
        paced = intervals(snapshot, demand, found, options, settled=settled)
        bounded = limits(snapshot, demand, found)
        return replace(proposal, actions=(*proposal.actions, *paced, *bounded)), memory

    def _sized(
        self,
        snapshot: Snapshot,
        demand: Demand,
        memory: NodeMemory,
        options: NodeOptions,
        soon: Floats,
        later: Floats,
        found: Mapping[int, list[Situation]],
    ) -> tuple[Proposal, NodeMemory]:
        current, now_s = memory.nodes, snapshot.time_s
        known = [q for q, name in enumerate(demand.names) if memory.costs.get(name, BatchCost()).known]
        ours = [(q, c) for q, c in demand.constraints if q in known and np.isfinite(demand.rate_rps[q])]
        if not current or not ours:
            return Proposal(policy=self.name), memory
        rates = np.nan_to_num(demand.rate_rps)
        needs = [
            need_of(snapshot, demand, memory.costs, q, c, options, rates_rps=np.maximum(rates, soon))
            for q, c in ours
        ]
        need = max(needs, key=lambda n: n.nodes)
        late_s = unpaced_s(snapshot, found)
        content = _content(snapshot, demand, memory, late_s, options)
        feasible = all(n.feasible for n in needs)
        wants = need.nodes if feasible else max(need.nodes, current)
        if content and soon.sum() <= STEADY * rates.sum():
            wants = min(wants, current)
        if feasible:
            wants = max(wants, min(wants + options.spare_nodes, node_limit(snapshot, options)))
        if wants < current and is_dear(now_s, memory):
            careful = replace(options, margin=ROOM * options.margin)
            fewest = [
                need_of(snapshot, demand, memory.costs, q, c, careful, rates_rps=np.maximum(rates, soon))
                for q, c in ours
            ]
            wants = min(current, max(wants, *(n.nodes if n.feasible else current for n in fewest)))
        missed = {
            c.name
            for c, held in zip(snapshot.dataflow.constraints, _held(snapshot, options), strict=True)
            if not held
        }
        # Batches that began when all was cold say nothing about what can be reached, until they are all there is.
        early = now_s - max(memory.changed_s, memory.ready_s) <= options.settle_s + options.catch_up_s
        unsure = set(memory.cold) if early else set()
        notices = tuple(
            _out_of_reach(n, options)
            for n in needs
            if not n.feasible and n.constraint.name in missed and demand.names[n.query] not in unsure
        )
        # Not worth giving back what will be needed again before it could be had again.
        then = max(
            need_of(snapshot, demand, memory.costs, n.query, n.constraint, options, rates_rps=later).nodes
            for n in needs
        )
        recent = tuple((t, n) for t, n in memory.wanted if t > now_s - _patience_s(now_s, memory, options))
        memory = replace(memory, wanted=(*recent, (now_s, max(wants, min(then, current)))))
        target = wants if wants > current else min(current, max(n for _, n in memory.wanted))
        if wants <= current and not (_patient(now_s, memory, options) and _certain(snapshot, demand, memory)):
            target = current
        elif target == current and content and _trial_is_safe(snapshot, memory, rates.sum(), late_s, options):
            target = current - 1
            memory = replace(memory, trial=Trial(time_s=now_s, nodes=target, rate_rps=float(rates.sum())))
        if target == current:
            return Proposal(policy=self.name, notices=notices), memory
        if target > current:
            memory = replace(memory, asked=memory.asked or (now_s, target))
        action = Scale(
            current=current,
            target=target,
            reason=_reason(snapshot, demand, need, memory, target=target),
            expects=Expectation(
                metric="latency_s",
                subject=need.constraint.name,
                value=need.constraint.bound_ms / 1e3,
                within_s=options.settle_s + options.catch_up_s,
            ),
            cost=Cost(per_hour=(target - current) * float(snapshot.nodes.price_per_hour.mean())),
        )
        return Proposal(policy=self.name, actions=(action,), notices=notices), memory


def _situations(
    snapshot: Snapshot,
    demand: Demand,
    memory: NodeMemory,
    options: NodeOptions,
    rates_rps: Floats,
    nodes: int | None = None,
) -> dict[int, list[Situation]]:
    """The queries on the cores that work now, or on those of fewer nodes; a new node is slow at first."""
    cores, each = float(snapshot.nodes.cores[snapshot.nodes.staying].sum()), cores_per_node(snapshot)
    cold = snapshot.time_s - memory.ready_s < options.settle_s and memory.warm > 0
    if cold:
        cores -= COLD * each * (memory.ready - memory.warm)
    if nodes is not None:
        cores = min(cores, nodes * each)
    startup_s = options.startup_s if memory.startup_s is None else memory.startup_s
    return situations(
        snapshot,
        demand,
        memory.costs,
        rates_rps=rates_rps,
        nodes_cores=cores,
        startup_s=startup_s,
        may_grow=cold or (memory.asked is not None and snapshot.time_s - memory.refused_s > TRIAL_REST_S),
    )


def _foreseen(rates: Floats, memory: NodeMemory, options: NodeOptions) -> tuple[Floats, Floats]:
    """The highest rates to be ready for: until nodes asked for now would work, and if they were asked for later."""
    foresight, caution = memory.foresight, options.caution
    if foresight is None or not foresight.season_steps:
        return rates, rates  # without a known cycle the best forecast of a step is no forecast
    startup_s = options.startup_s if memory.startup_s is None else memory.startup_s
    within = (startup_s + foresight.step_s, startup_s + foresight.step_s + options.shrink_after_s)
    soon, later = (
        np.nan_to_num(foresight.highest_rps(w, sigmas=caution, most=options.most_caution)) for w in within
    )
    return soon, np.maximum(soon, later)


def _content(
    snapshot: Snapshot, demand: Demand, memory: NodeMemory, late_s: Floats, options: NodeOptions
) -> bool:
    """Whether all bounds are held with room to spare, and will be: by far, or under a load that stays as it is."""
    table, rate = snapshot.constraints, demand.total_rps
    # What waits in the steady state is what comes in the two batches of a record's latency at most.
    ordinary = 1.5 * rate * float(table.latency_s.max(initial=0.0))
    if not _held(snapshot, options).all() or demand.backlog.sum() > ordinary:
        return False
    steady = memory.usual_rps / STEADY <= rate <= STEADY * memory.usual_rps
    if steady:
        return True
    work = work_cores(demand, memory.costs, np.nan_to_num(demand.rate_rps), demand.least_interval_s).sum()
    keeps_up = work <= memory.nodes * cores_per_node(snapshot)
    return bool(keeps_up and np.all(FAR * late_s <= options.margin * table.bound_s))


def _certain(snapshot: Snapshot, demand: Demand, memory: NodeMemory) -> bool:
    """Whether enough is known to give something back: every query is seen, and no batch runs longer than it should."""
    if not demand.fresh.all() or snapshot.constraints.at_least.any():
        return False
    cores = np.full(1, max(1.0, memory.nodes * cores_per_node(snapshot)))
    for q, name in enumerate(demand.names):
        cost, rate = memory.costs[name], float(np.nan_to_num(demand.rate_rps[q]))
        overhead_s, interval_s = cost.overhead_on(cores), float(demand.interval_s[q])
        usual_s = batch_length_s(overhead_s, cost.record_s, rate, cores, interval_s)[0]
        if cost.known and demand.running_s[q] > LONG * usual_s + snapshot.interval_s:
            return False
    return True


def _held(snapshot: Snapshot, options: NodeOptions) -> NDArray[np.bool_]:
    """Which bounds are seen to be held, with the margin."""
    table = snapshot.constraints
    return np.asarray(table.known & (table.latency_s <= options.margin * table.bound_s))


def _trial_is_safe(
    snapshot: Snapshot, memory: NodeMemory, rate: float, late_s: Floats, options: NodeOptions
) -> bool:
    """Whether one node fewer may be tried: if it turned out wrong, the bounds would still hold until it is back.

    At worst all cores are busy now; then lag grows by the share of the node given up, until a new one works.
    """
    if memory.nodes <= max(1, options.min_nodes) or is_dear(snapshot.time_s, memory):
        return False
    if options.spare_nodes:  # what is kept spare on purpose is not tried away
        return False
    trial = memory.trial
    taken_back = (
        trial is not None and trial.nodes == memory.nodes - 1
    )  # one that went well is where we are now
    if trial is not None and taken_back and rate >= trial.rate_rps / STEADY:
        return False
    startup_s = options.startup_s if memory.startup_s is None else memory.startup_s
    lag_s = (startup_s + options.settle_s + 2 * snapshot.interval_s) / memory.nodes
    return bool(np.all(late_s + 2 * lag_s <= options.margin * snapshot.constraints.bound_s))


def _patient(now_s: float, memory: NodeMemory, options: NodeOptions) -> bool:
    """Whether fewer nodes have sufficed for long enough."""
    patience_s = _patience_s(now_s, memory, options)
    settled = now_s - memory.changed_s >= max(options.settle_s, patience_s)
    return settled and memory.wanted[0][0] <= now_s - 0.7 * patience_s


def _patience_s(now_s: float, memory: NodeMemory, options: NodeOptions) -> float:
    """How long fewer nodes must have sufficed: shorter where the load to come is known, longer where an error hurts."""
    if memory.foresight is not None and memory.foresight.season_steps > 0:
        return min(options.settle_s, options.shrink_after_s)
    return options.shrink_after_s * (DEAR if is_dear(now_s, memory) else 1.0)


def _reason(snapshot: Snapshot, demand: Demand, need: Need, memory: NodeMemory, *, target: int) -> Reason:
    rate = float(demand.rate_rps[need.query])
    if target < memory.nodes:
        tried = memory.trial is not None and memory.trial.time_s == snapshot.time_s
        code = "room-for-a-trial" if tried else "fewer-nodes-suffice"
    elif need.rate_rps > STEADY * rate:
        code = "rise-foreseen"
    elif need.nodes <= memory.nodes:
        code = "spare-nodes"
    else:
        code = "backlog" if need.for_backlog else "bound-needs-nodes"
    cost = memory.costs[demand.names[need.query]]
    return Reason(
        code=code,
        facts={
            "constraint": need.constraint.name,
            "bound_ms": need.constraint.bound_ms,
            "predicted_ms": 1e3 * need.predicted_s if np.isfinite(need.predicted_s) else None,
            "rate_rps": rate,
            "foreseen_rps": need.rate_rps,
            "backlog_records": float(demand.backlog[need.query]),
            "batch_overhead_ms": 1e3 * cost.overhead_s,
            "tasks_core_ms": 1e3 * cost.task_core_s,
            "record_core_us": 1e6 * cost.record_s,
        },
    )


def _out_of_reach(need: Need, options: NodeOptions) -> Notice:
    predicted = 1e3 * need.predicted_s
    if not np.isfinite(predicted):
        helps = "more nodes, a cheaper alternate, or shedding"
    else:
        helps = f"more nodes, or a bound of at least {need.predicted_s / options.margin:.3g} s"
        if need.fixed_s > FIXED_SHARE * need.predicted_s:
            helps = (
                f"fewer tasks in a batch (spark.sql.shuffle.partitions, before a query's first start): it takes"
                f" {need.fixed_s:.2g} s even without records; {helps}"
            )
    return Notice(
        goal=need.constraint.name,
        reason=Reason(
            code="bound-needs-more-nodes",
            facts={
                "bound_ms": need.constraint.bound_ms,
                "aim_ms": options.margin * need.constraint.bound_ms,
                "nodes": need.nodes,
                "predicted_ms": predicted if np.isfinite(predicted) else None,
            },
        ),
        helps=helps,
    )
