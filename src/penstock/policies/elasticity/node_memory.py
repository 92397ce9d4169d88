"""What sizing nodes remembers from one cycle to the next, and what a snapshot adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.policies.elasticity.foresight import Foresight
from penstock.policies.elasticity.microbatch import BatchCost
from penstock.policies.elasticity.options import NodeOptions
from penstock.policies.elasticity.query_demand import Demand, free_cores, work_cores
from penstock.telemetry import Snapshot

TRIAL_REST_S = 600.0
"""After a trial that had to be taken back, none is made at such a load for this long; after nodes did not come, these
are not counted on."""
MOST_MISSED = 120
"""Steps of a pause that are filled; one that lasts longer ends the series anyway."""
NEVER = float("-inf")
WORSE = 1.5
"""A latency that rose by this factor since nodes came rose because they came: they were cold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One node fewer, tried where the model could not tell."""

    time_s: float
    nodes: int
    rate_rps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """What batches cost, what the load will be, what was wanted lately as (time, nodes), what is under way."""

    costs: Mapping[str, BatchCost] = field(default_factory=dict)
    """By query name."""
    cold: tuple[str, ...] = ()
    """Queries of which only batches have been seen that began when everything was cold."""
    foresight: Foresight | None = None
    """A column per query, in the order of `names`."""
    names: tuple[str, ...] = ()
    wanted: tuple[tuple[float, int], ...] = ()
    changed_s: float = float("-inf")
    """When the number of nodes last changed."""
    nodes: int = 0
    ready: int = 0
    """Nodes that work."""
    warm: int = 0
    """Of these, how many worked before the last of them came."""
    ready_s: float = float("-inf")
    """When the last of them came."""
    asked: tuple[float, int] | None = None
    """When more nodes were asked for, and how many in all; until they work."""
    refused_s: float = float("-inf")
    """When nodes that were asked for had not come for so long that they are not counted on."""
    startup_s: float | None = None
    """How long nodes were seen to take to start."""
    strain: float = 0.0
    """The worst latency over its bound when the last of them came."""
    hurt_s: float = NEVER
    """When a bound was last missed because nodes were cold: to have one back would be dear."""
    usual_rps: float = 0.0
    """Slow mean of the rate of all queries."""
    trial: Trial | None = None


def observed(snapshot: Snapshot, demand: Demand, memory: NodeMemory, options: NodeOptions) -> NodeMemory:
    """With what the snapshot teaches."""
    nodes, now_s = snapshot.nodes, snapshot.time_s
    staying = ~nodes.draining
    current, ready = int(staying.sum()), int((staying & nodes.ready).sum())
    costs = {name: memory.costs.get(name, BatchCost()) for name in demand.names}
    changed_s = now_s if current != memory.nodes else memory.changed_s
    came = ready > memory.ready
    ready_s = now_s if came else memory.ready_s
    # At the start, and when a node comes, everything is cold: batches that began then teach nothing about later ones.
    # One of them with a large backlog would outweigh a hundred ordinary ones, so what it said counts only until the
    # first that began later.
    settled_s, cold = now_s - max(changed_s, ready_s) - options.settle_s, set(memory.cold)
    if snapshot.batches is not None and settled_s >= 0:
        cores = float(nodes.cores[staying & nodes.ready].sum())
        work = work_cores(demand, costs, np.nan_to_num(demand.rate_rps), demand.interval_s)
        for q, name in enumerate(demand.names):
            free = float(free_cores(demand, q, np.array([cores]), work)[0])
            mine = snapshot.batches.of_query(q) if len(snapshot.queries) else snapshot.batches
            warm = mine.duration_s <= settled_s
            if not costs[name].known:
                cold.add(name)
            if name in cold and (warm & (mine.records > 0)).any():
                cold.remove(name)
                costs[name] = BatchCost()
            mine = mine if name in cold else mine.rows(warm)
            costs[name] = costs[name].learn(mine, free, float(demand.keep[q]))
    foresight = memory.foresight
    if foresight is None or demand.names != memory.names:
        ahead_s = 2 * options.startup_s + options.shrink_after_s
        foresight = Foresight.start(len(demand.names), step_s=snapshot.step_s, horizon_s=ahead_s)
    # After a pause of the loop the measured rate stands for all the steps that were missed.
    for _ in range(max(1, min(MOST_MISSED, round(snapshot.interval_s / foresight.step_s)))):
        foresight = foresight.observe(demand.rate_rps)
    rate = demand.total_rps
    fade = float(np.exp(-snapshot.interval_s / options.shrink_after_s))
    asked, startup_s, trial, refused_s = memory.asked, memory.startup_s, memory.trial, memory.refused_s
    if asked is not None and ready >= asked[1]:
        took = now_s - asked[0]
        startup_s = took if startup_s is None else startup_s + 0.5 * (took - startup_s)
        asked = None
    elif asked is not None and now_s - asked[0] > 4 * options.startup_s:
        asked, refused_s = None, now_s  # refused, or given up: the next growth is timed afresh
    if trial is not None and now_s - trial.time_s > TRIAL_REST_S:
        trial = None
    table = snapshot.constraints
    strain = float(np.max(table.latency_s / table.bound_s, where=table.known, initial=0.0))
    before = (strain if memory.ready else 0.0) if came else memory.strain
    soon_s = options.settle_s + options.catch_up_s
    hurt_s = now_s if now_s - ready_s <= soon_s and strain > max(1.0, WORSE * before) else memory.hurt_s
    if came and memory.asked is not None and memory.asked[0] - memory.hurt_s <= soon_s:
        hurt_s = NEVER  # what was missed right before was missed for want of these nodes
    return replace(
        memory,
        costs=costs,
        cold=tuple(sorted(cold)),
        foresight=foresight,
        names=demand.names,
        changed_s=changed_s,
        nodes=current,
        ready=ready,
        warm=memory.ready if came else min(memory.warm, ready),
        ready_s=ready_s,
        asked=asked,
        startup_s=startup_s,
        refused_s=refused_s,
        strain=before,
        hurt_s=hurt_s,
        usual_rps=fade * memory.usual_rps + (1 - fade) * rate if memory.usual_rps else rate,
        trial=trial,
    )


def is_dear(now_s: float, memory: NodeMemory) -> bool:
    """Whether a bound was missed lately because nodes were cold."""
    return now_s - memory.hurt_s < TRIAL_REST_S
