"""The provisioning policy in the loop: cheaper alternates while the load is too high, better ones when it has fallen.

On fixed cores it only switches. With `rent` it also acquires and releases machines where value pays for them. Works
from what was measured; a figure that is missing is replaced by the declaration, and without a rate nothing is decided.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.policies.elasticity.foresight import Foresight
from penstock.policies.policy import Notice, Proposal
from penstock.policies.provisioning.capacity import measured_graph, produced_rps, usable_cores
from penstock.policies.provisioning.choosing import choices
from penstock.policies.provisioning.options import ProvisioningOptions
from penstock.policies.provisioning.problem import Bools, DemandError, Floats, Ints
from penstock.policies.provisioning.renting import rent
from penstock.policies.provisioning.situation import NAME, ProvisioningMemory, Situation, situation, switches
from penstock.policies.reasons import Reason
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
        """Switches for this cycle, or a notice that no alternate carries the load."""
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
        if not now.capacity > 0 or not rates.any():
            return Proposal(policy=NAME), replace(memory, fits_since_s=None)
        if options.rent:
            return rent(snapshot, now, memory, options)
        return _switch(snapshot, now, memory, options)


def _foreseen(
    snapshot: Snapshot, memory: ProvisioningMemory, rates: Floats, options: ProvisioningOptions
) -> Foresight:
    sources = snapshot.sources.operator
    known = memory.foresight
    if known is None or known.history.shape[1] != len(sources):
        known = Foresight.start(
            len(sources), step_s=max(snapshot.interval_s, 1e-3), horizon_s=options.foresight_s, kept_steps=512
        )
    told = snapshot.sources.known
    return known.observe(np.where(told, rates[sources], np.nan))


def _switch(
    snapshot: Snapshot, now: Situation, memory: ProvisioningMemory, options: ProvisioningOptions
) -> tuple[Proposal, ProvisioningMemory]:
    chosen = choices(now.graph, now.active)
    draining = now.rates_rps * (1 + now.drain / options.drain_s)
    mine = now.active[None, :]
    fits_now = bool(now.carried(mine, 1.0, now.rates_rps)[0][0])
    time_s = snapshot.time_s
    recent = time_s - memory.relieved_s < options.drain_s
    if not fits_now or (now.backlog > 0 and not recent):
        return _relieve(snapshot, now, memory, options, chosen, draining)
    fits, power, value = now.carried(chosen, 1 - options.band, np.maximum(now.foreseen_rps, draining))
    worth = now.graph.worth(now.active)
    better = fits & (value > worth + 1e-9)
    if now.backlog > 0 or not better.any():
        return Proposal(policy=NAME), replace(memory, fits_since_s=None)
    since = time_s if memory.fits_since_s is None else memory.fits_since_s
    if time_s - since < memory.patience_s - snapshot.interval_s / 2:
        return Proposal(policy=NAME), replace(memory, fits_since_s=since)
    best = _pick(better, power, value)
    actions = switches(snapshot, now, chosen[best], "load-has-fallen", float(power[best]))
    return Proposal(policy=NAME, actions=actions), replace(memory, fits_since_s=None, returned_s=time_s)


def _relieve(
    snapshot: Snapshot,
    now: Situation,
    memory: ProvisioningMemory,
    options: ProvisioningOptions,
    chosen: Ints,
    draining: Floats,
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
    actions = switches(snapshot, now, chosen[best], "throughput-low", float(steady[best]))
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
