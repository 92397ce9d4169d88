"""Hold a latency bound with the fewest nodes, on a runtime that works in micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow import Constraint
from penstock.policies.actions import Cost, Expectation, Scale
from penstock.policies.elasticity.foresight import Foresight
from penstock.policies.elasticity.microbatch import BatchCost, batch_length_s, cores_to_drain, latency_s
from penstock.policies.elasticity.options import NodeOptions
from penstock.policies.policy import Notice, Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot, Sources

STEADY = 1.1
"""A rate within this factor of its slow mean counts as steady."""
FAR = 4.0
"""A latency is far below its bound when this many times as much would still hold it."""
TRIAL_REST_S = 600.0
"""After a trial that had to be taken back, none is made at such a load for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One node fewer, tried where the model could not tell."""

    time_s: float
    nodes: int
    rate_rps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """What batches cost, what the load will be, what was wanted lately as (time, nodes), what is under way."""

    cost: BatchCost = field(default_factory=BatchCost)
    foresight: Foresight | None = None
    wanted: tuple[tuple[float, int], ...] = ()
    changed_s: float = float("-inf")
    """When the number of nodes last changed."""
    nodes: int = 0
    asked: tuple[float, int] | None = None
    """When more nodes were asked for, and how many in all; until they work."""
    startup_s: float | None = None
    """How long nodes were seen to take to start."""
    usual_rps: float = 0.0
    """Slow mean of the rate."""
    trial: Trial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Nodes that one constraint needs, and the numbers behind it."""

    constraint: Constraint
    nodes: int
    rate_rps: float
    predicted_s: float
    feasible: bool
    for_backlog: bool


class NodeElasticity:
    """As few nodes as hold every latency constraint: ready before a foreseen rise, backlog included.

    It grows at once and shrinks with patience. What was measured overrules the model: nodes that hold the bounds with
    a steady load are enough, and where there is room for a mistake one node fewer is tried.
    """

    name = "elasticity"

    def start(self, options: NodeOptions) -> NodeMemory:
        """Nothing learnt yet."""
        return NodeMemory()

    def decide(
        self, snapshot: Snapshot, memory: NodeMemory, options: NodeOptions
    ) -> tuple[Proposal, NodeMemory]:
        """Scale the nodes, or say which bound cannot be held."""
        memory = _observed(snapshot, memory, options)
        current, now_s = memory.nodes, snapshot.time_s
        if not memory.cost.known or not current or not snapshot.dataflow.constraints:
            return Proposal(policy=self.name), memory
        rate = _rate_rps(snapshot.sources)
        soon, later = _foreseen(rate, memory, options)
        content = _content(snapshot, memory, rate, options)
        needs = [
            need_of(snapshot, c, memory.cost, options, rate_rps=max(rate, soon))
            for c in snapshot.dataflow.constraints
        ]
        need = max(needs, key=lambda n: n.nodes)
        wants, enough = need.nodes, content and soon <= STEADY * rate
        late = ~_held(snapshot, options)
        notices = tuple(_out_of_reach(n, options) for i, n in enumerate(needs) if not n.feasible and late[i])
        if enough:
            wants = min(wants, current)
        # Not worth giving back what will be needed again before it could be had again.
        then = max(need_of(snapshot, n.constraint, memory.cost, options, rate_rps=later).nodes for n in needs)
        recent = tuple((t, n) for t, n in memory.wanted if t > now_s - _patience_s(memory, options))
        memory = replace(memory, wanted=(*recent, (now_s, max(wants, min(then, current)))))
        target = wants if wants > current else min(current, max(n for _, n in memory.wanted))
        if wants <= current and not _patient(now_s, memory, options):
            target = current
        elif target == current and content and _trial_is_safe(snapshot, memory, rate, options):
            target = current - 1
            memory = replace(memory, trial=Trial(time_s=now_s, nodes=target, rate_rps=rate))
        if target == current:
            return Proposal(policy=self.name, notices=notices), memory
        if target > current:
            memory = replace(memory, asked=memory.asked or (now_s, target))
        action = Scale(
            current=current,
            target=target,
            reason=_reason(snapshot, need, memory, target=target),
            expects=Expectation(
                metric="latency_s",
                subject=need.constraint.name,
                value=need.constraint.bound_ms / 1e3,
                within_s=options.settle_s + options.catch_up_s,
            ),
            cost=Cost(per_hour=(target - current) * float(snapshot.nodes.price_per_hour.mean())),
        )
        return Proposal(policy=self.name, actions=(action,), notices=notices), memory


def need_of(
    snapshot: Snapshot, constraint: Constraint, cost: BatchCost, options: NodeOptions, *, rate_rps: float
) -> Need:
    """The fewest nodes that the model says hold one constraint with that load and the backlog, nothing shed."""
    nodes, sources = snapshot.nodes, snapshot.sources
    per_node = float(nodes.cores[nodes.known].mean()) if nodes.known.any() else float(nodes.cores.mean())
    backlog = float(sources.backlog_records[sources.known].sum())
    counts = np.arange(options.min_nodes, max(options.min_nodes, _limit(snapshot, options)) + 1)
    cores = counts.astype(np.float64) * per_node
    interval = snapshot.batches.interval_s if snapshot.batches is not None else 0.0
    o, s = cost.overhead_s, cost.record_s
    bound = constraint.bound_ms / 1e3
    predicted = latency_s(o, s, rate_rps, cores, interval, constraint.statistic)
    holds = (predicted <= options.margin * bound) & (rate_rps * s / cores <= options.utilisation)
    # What one ordinary batch holds is no backlog: it is read by the next one.
    length = batch_length_s(o, s, rate_rps, cores[-1:], interval)[0]
    spare = max(0.0, backlog - 2 * rate_rps * (length if np.isfinite(length) else bound))
    drains = cores >= cores_to_drain(o, s, rate_rps, spare, options.catch_up_s, bound / 2) - 1e-9
    enough = holds & (drains | (spare <= 0))
    feasible = bool(enough.any())
    at = int(np.argmax(enough)) if feasible else len(counts) - 1
    return Need(
        constraint=constraint,
        nodes=int(counts[at]),
        rate_rps=rate_rps,
        predicted_s=float(predicted[at]),
        feasible=feasible,
        for_backlog=feasible and bool(holds[:at].any()),
    )


def _observed(snapshot: Snapshot, memory: NodeMemory, options: NodeOptions) -> NodeMemory:
    """With what the snapshot teaches."""
    nodes, sources, now_s = snapshot.nodes, snapshot.sources, snapshot.time_s
    staying = ~nodes.draining
    current, ready = int(staying.sum()), int((staying & nodes.ready).sum())
    cost = memory.cost
    changed_s = now_s if current != memory.nodes else memory.changed_s
    # At the start, and when a node comes, everything is cold: such batches teach nothing about later ones.
    if snapshot.batches is not None and now_s - changed_s >= options.settle_s:
        cores = float(nodes.cores[staying & nodes.ready].sum())
        cost = cost.learn(snapshot.batches.of_query(0), cores, _kept(sources))
    foresight = memory.foresight
    if foresight is None:
        ahead_s = 2 * options.startup_s + options.shrink_after_s
        foresight = Foresight.start(1, step_s=snapshot.interval_s, horizon_s=ahead_s)
    rate = _rate_rps(sources)
    foresight = foresight.observe(np.array([rate if sources.known.any() else np.nan]))
    fade = float(np.exp(-snapshot.interval_s / options.shrink_after_s))
    asked, startup_s, trial = memory.asked, memory.startup_s, memory.trial
    if asked is not None and ready >= asked[1]:
        took = now_s - asked[0]
        startup_s = took if startup_s is None else startup_s + 0.5 * (took - startup_s)
        asked = None
    elif asked is not None and now_s - asked[0] > 4 * options.startup_s:
        asked = None  # refused, or given up: the next growth is timed afresh
    if trial is not None and now_s - trial.time_s > TRIAL_REST_S:
        trial = None
    return replace(
        memory,
        cost=cost,
        foresight=foresight,
        changed_s=changed_s,
        nodes=current,
        asked=asked,
        startup_s=startup_s,
        usual_rps=fade * memory.usual_rps + (1 - fade) * rate if memory.usual_rps else rate,
        trial=trial,
    )


def _foreseen(rate: float, memory: NodeMemory, options: NodeOptions) -> tuple[float, float]:
    """The highest rates to be ready for: until nodes asked for now would work, and if they were asked for later."""
    foresight, caution = memory.foresight, options.caution
    if foresight is None or not foresight.season_steps:
        return rate, rate  # without a known cycle the best forecast of a step is no forecast
    startup_s = options.startup_s if memory.startup_s is None else memory.startup_s
    within = (startup_s + foresight.step_s, startup_s + foresight.step_s + options.shrink_after_s)
    soon, later = (
        float(foresight.highest_rps(w, sigmas=caution, most=options.most_caution)[0]) for w in within
    )
    return soon, max(soon, later)


def _content(snapshot: Snapshot, memory: NodeMemory, rate: float, options: NodeOptions) -> bool:
    """Whether all bounds are held with room to spare, and will be: by far, or under a load that stays as it is."""
    table, sources = snapshot.constraints, snapshot.sources
    # What waits in the steady state is what comes in the two batches of a record's latency at most.
    ordinary = 1.5 * rate * float(table.latency_s.max(initial=0.0))
    if not _held(snapshot, options).all() or sources.backlog_records[sources.known].sum() > ordinary:
        return False
    steady = memory.usual_rps / STEADY <= rate <= STEADY * memory.usual_rps
    return steady or bool(np.all(FAR * table.latency_s <= options.margin * table.bound_s))


def _held(snapshot: Snapshot, options: NodeOptions) -> NDArray[np.bool_]:
    """Which bounds are seen to be held, with the margin."""
    table = snapshot.constraints
    return np.asarray(table.known & (table.latency_s <= options.margin * table.bound_s))


def _trial_is_safe(snapshot: Snapshot, memory: NodeMemory, rate: float, options: NodeOptions) -> bool:
    """Whether one node fewer may be tried: if it turned out wrong, the bounds would still hold until it is back.

    At worst all cores are busy now; then lag grows by the share of the node given up, until a new one works.
    """
    if memory.nodes <= max(1, options.min_nodes):
        return False
    trial = memory.trial
    taken_back = (
        trial is not None and trial.nodes == memory.nodes - 1
    )  # one that went well is where we are now
    if trial is not None and taken_back and rate >= trial.rate_rps / STEADY:
        return False
    startup_s = options.startup_s if memory.startup_s is None else memory.startup_s
    lag_s = (startup_s + options.settle_s + 2 * snapshot.interval_s) / memory.nodes
    table = snapshot.constraints
    return bool(np.all(table.latency_s + 2 * lag_s <= options.margin * table.bound_s))


def _patient(now_s: float, memory: NodeMemory, options: NodeOptions) -> bool:
    """Whether fewer nodes have sufficed for long enough."""
    patience_s = _patience_s(memory, options)
    settled = now_s - memory.changed_s >= max(options.settle_s, patience_s)
    return settled and memory.wanted[0][0] <= now_s - 0.7 * patience_s


def _patience_s(memory: NodeMemory, options: NodeOptions) -> float:
    """How long fewer nodes must have sufficed: not long where the load to come is known."""
    foresees = memory.foresight is not None and memory.foresight.season_steps > 0
    return min(options.settle_s, options.shrink_after_s) if foresees else options.shrink_after_s


def _limit(snapshot: Snapshot, options: NodeOptions) -> int:
    available = next((c.available for c in snapshot.classes if c.available), None)
    return options.max_nodes or available or len(snapshot.nodes)


def _rate_rps(sources: Sources) -> float:
    produced = sources.produced_rps[sources.known]
    return float(produced[np.isfinite(produced)].sum())


def _kept(sources: Sources) -> float:
    """Share of all records read that the sources let pass."""
    read = np.where(sources.known, np.maximum(sources.read_rps, 0.0), 0.0)
    if read.sum() > 0:
        return float((read * sources.keep).sum() / read.sum())
    return float(sources.keep[sources.known].mean()) if sources.known.any() else 1.0


def _reason(snapshot: Snapshot, need: Need, memory: NodeMemory, *, target: int) -> Reason:
    sources, rate = snapshot.sources, _rate_rps(snapshot.sources)
    if target < memory.nodes:
        tried = memory.trial is not None and memory.trial.time_s == snapshot.time_s
        code = "room-for-a-trial" if tried else "fewer-nodes-suffice"
    elif need.rate_rps > STEADY * rate:
        code = "rise-foreseen"
    else:
        code = "backlog" if need.for_backlog else "bound-needs-nodes"
    return Reason(
        code=code,
        facts={
            "constraint": need.constraint.name,
            "bound_ms": need.constraint.bound_ms,
            "predicted_ms": 1e3 * need.predicted_s if np.isfinite(need.predicted_s) else None,
            "rate_rps": rate,
            "foreseen_rps": need.rate_rps,
            "backlog_records": float(sources.backlog_records[sources.known].sum()),
            "batch_overhead_ms": 1e3 * memory.cost.overhead_s,
            "record_core_us": 1e6 * memory.cost.record_s,
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
