"""The provisioning policy in the loop: alternates and nodes of the most value within budget, throughput and latency.

On fixed nodes it only switches. With `rent` it also acquires and releases nodes, in the same plan. Works from what was
measured; a figure that is missing is replaced by the declaration, and without a rate nothing is decided.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.policies.actions import Action
from penstock.policies.elasticity.foresight import Foresight
from penstock.policies.policy import Notice, Proposal
from penstock.policies.provisioning.capacity import (
    measured_graph,
    node_power,
    produced_rps,
    untried,
    usable_cores,
)
from penstock.policies.provisioning.choosing import choices
from penstock.policies.provisioning.fleet import size_fleet
from penstock.policies.provisioning.options import ProvisioningOptions
from penstock.policies.provisioning.problem import Bools, DemandError, Floats, Ints
from penstock.policies.provisioning.situation import NAME, ProvisioningMemory, Situation, situation, switches
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import Snapshot


class Provisioning:
    """Alternates (and machines) for the load there is."""

    name = NAME
    options_type = ProvisioningOptions

    def start(self, options: ProvisioningOptions) -> ProvisioningMemory:
        """Nothing learnt yet."""
        return ProvisioningMemory(patience_s=options.return_after_s)

    def decide(
        self, snapshot: Snapshot, memory: ProvisioningMemory, options: ProvisioningOptions
    ) -> tuple[Proposal, ProvisioningMemory]:
        """Switches, acquisitions and releases for this cycle, or a notice of what is out of reach."""
        if not options.rent and all(len(o.alternates) < 2 for o in snapshot.dataflow.operators):
            return Proposal(policy=NAME), memory
        memory = replace(memory, efficiency=memory.efficiency.learn(snapshot.batches, usable_cores(snapshot)))
        rates = produced_rps(snapshot)
        if rates is None:
            return Proposal(policy=NAME), replace(memory, fits_since_s=None)
        memory = replace(memory, foresight=_foreseen(snapshot, memory, rates, options))
        try:
            graph = measured_graph(snapshot)
        except DemandError:
            return Proposal(policy=NAME), memory
        now = situation(snapshot, graph, rates, memory, options)
        if not rates.any():
            return Proposal(policy=NAME), replace(memory, fits_since_s=None)
        nodes, money = snapshot.nodes, dict[str, Fact]()
        staying = nodes.ready & ~nodes.draining
        sized: tuple[Action, ...] = ()
        notices: tuple[Notice, ...] = ()
        if options.rent and any(c.price_per_hour > 0 for c in snapshot.classes):
            fleet = size_fleet(snapshot, now, memory, options)
            memory, staying, money = fleet.memory, fleet.staying, fleet.money
            sized, notices = fleet.actions, fleet.notices
        now = replace(now, capacity=float(node_power(snapshot)[staying].sum()) * now.full)
        if not now.capacity > 0:
            switched, memory = Proposal(policy=NAME), replace(memory, fits_since_s=None)
        else:
            switched, memory = _switch(snapshot, now, memory, options, money)
        if any(a.kind == "acquire" for a in sized):
            # More nodes are on their way: the load is not out of reach.
            switched = replace(switched, notices=())
        return (
            Proposal(policy=NAME, actions=(*switched.actions, *sized), notices=(*notices, *switched.notices)),
            memory,
        )


def _foreseen(
    snapshot: Snapshot, memory: ProvisioningMemory, rates: Floats, options: ProvisioningOptions
) -> Foresight:
    sources = snapshot.sources.operator
    known = memory.foresight
    if known is None or known.history.shape[1] != len(sources):
        known = Foresight.start(
            len(sources), step_s=snapshot.step_s, horizon_s=options.foresight_s, kept_steps=512
        )
    told = snapshot.sources.known
    return known.observe(np.where(told, rates[sources], np.nan))


def _switch(
    snapshot: Snapshot,
    now: Situation,
    memory: ProvisioningMemory,
    options: ProvisioningOptions,
    money: dict[str, Fact],
) -> tuple[Proposal, ProvisioningMemory]:
    chosen = choices(now.graph, now.active)
    new = untried(snapshot)[np.arange(chosen.shape[1]), chosen] & (chosen != now.active)
    chosen = chosen[~new.any(axis=1)] if not new.any(axis=1).all() else now.active[None, :]
    draining = now.rates_rps * (1 + now.drain / max(options.drain_s, snapshot.interval_s))
    mine = now.active[None, :]
    fits_now = bool(now.carried(mine, 1.0, now.at_once * now.rates_rps)[0][0])
    time_s = snapshot.time_s
    recent = time_s - memory.relieved_s < max(options.drain_s, snapshot.interval_s)
    if not fits_now or (now.backlog > 0 and not recent):
        return _relieve(
            snapshot, now, memory, options, _worth_giving_up(now, memory, options, chosen), draining, money
        )
    fits, power, value = now.carried(chosen, 1 - options.band, np.maximum(now.foreseen_rps, draining))
    worth = now.graph.worth(now.active)
    # Nodes are counted for the planned alternates: these need no room to spare.
    planned = (chosen == np.array(memory.planned)).all(axis=1) if memory.planned and options.rent else False
    fits |= planned & now.carried(chosen, 1.0, draining)[0]
    better = fits & (value > worth + 1e-9)
    if now.backlog > 0 or not better.any():
        return Proposal(policy=NAME), replace(memory, fits_since_s=None)
    since = time_s if memory.fits_since_s is None else memory.fits_since_s
    if time_s - since < memory.patience_s - snapshot.interval_s / 2:
        return Proposal(policy=NAME), replace(memory, fits_since_s=since)
    best = _pick(better, power, value)
    actions = switches(snapshot, now, chosen[best], "load-has-fallen", float(power[best]), money)
    return Proposal(policy=NAME, actions=actions), replace(memory, fits_since_s=None, returned_s=time_s)


def _worth_giving_up(
    now: Situation, memory: ProvisioningMemory, options: ProvisioningOptions, chosen: Ints
) -> Ints:
    """The choices that relief may go to.

    Where nodes are counted for certain alternates, a short peak waits for its end: less value than theirs is run only
    where too little gets through, or where the backlog is more than nodes are bought for.
    """
    if not options.rent or len(memory.planned) != chosen.shape[1]:
        return chosen
    planned = np.array(memory.planned, dtype=np.int64)
    enough = now.carried(planned[None, :], 1.0, (now.at_once - now.tolerance) * now.rates_rps)[0][0]
    if not enough or now.drain > options.catch_up_s:
        return chosen
    value = np.array([now.graph.worth(c) for c in chosen])
    return np.asarray(chosen[value >= now.graph.worth(planned) - 1e-9])


def _relieve(
    snapshot: Snapshot,
    now: Situation,
    memory: ProvisioningMemory,
    options: ProvisioningOptions,
    chosen: Ints,
    draining: Floats,
    money: dict[str, Fact],
) -> tuple[Proposal, ProvisioningMemory]:
    """To the most valuable choice that carries the load and drains the backlog, else as cheap as possible."""
    time_s = snapshot.time_s
    memory = replace(memory, fits_since_s=None)
    current_power = float(now.carried(now.active[None, :], 1.0, now.rates_rps)[1][0])
    notices: tuple[Notice, ...] = ()
    for rates in (draining, now.rates_rps):
        fits, power, value = now.carried(chosen, 1.0, rates)
        _, steady, _ = now.carried(chosen, 1.0, now.rates_rps)
        cheaper = fits & (steady < current_power * (1 - 1e-6))
        if cheaper.any():
            best = _pick(cheaper, power, value)
            break
    else:
        _, steady, value = now.carried(chosen, 1.0, now.rates_rps)
        best = int(np.lexsort((-value, steady))[0])
        if not now.carried(now.active[None, :], 1.0, now.rates_rps)[0][0]:
            notices = (_out_of_reach(now, float(steady[best])),)
    if (chosen[best] == now.active).all() or steady[best] >= current_power * (1 - 1e-6):
        return Proposal(policy=NAME, notices=notices), memory
    actions = switches(snapshot, now, chosen[best], "throughput-low", float(steady[best]), money)
    patience = memory.patience_s
    if time_s - memory.returned_s < 3 * max(patience, options.return_after_s):
        patience = min(options.most_patience_s, 2 * patience)
    elif time_s - memory.returned_s > 10 * patience:
        patience = options.return_after_s
    memory = replace(memory, patience_s=patience, relieved_s=time_s)
    return Proposal(policy=NAME, actions=actions, notices=notices), memory


def _pick(allowed: Bools, power: Floats, value: Floats) -> int:
    """The most valuable of the allowed, the cheapest of those."""
    rows = np.flatnonzero(allowed)
    return int(rows[np.lexsort((power[rows], -np.round(value[rows], 9)))[0]])


def _out_of_reach(now: Situation, least: float) -> Notice:
    return Notice(
        goal="throughput",
        reason=Reason(
            code="no-alternate-carries-the-load",
            facts={
                "rate_rps": float(now.rates_rps.sum()),
                "capacity_cores": now.capacity,
                "needs_cores": least,
                "share": min(1.0, now.capacity / least) if least > 0 else None,
            },
        ),
        helps=f"{max(0.0, least - now.capacity):.2g} more cores, or shedding",
    )
