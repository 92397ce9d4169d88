"""Alternates and machines together, in the loop: paid time is used, what is not needed goes when that ends."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from penstock.policies.actions import Acquire, Action, Cost, Expectation, Release
from penstock.policies.policy import Proposal
from penstock.policies.provisioning.choosing import choices, needs
from penstock.policies.provisioning.options import ProvisioningOptions
from penstock.policies.provisioning.problem import HEADROOM
from penstock.policies.provisioning.situation import NAME, ProvisioningMemory, Situation, switches
from penstock.policies.reasons import Reason
from penstock.telemetry import MachineClass, Snapshot

SWITCH_GAIN = 0.02
"""Share of the whole range of value that a switch must gain."""


def rent(
    snapshot: Snapshot, now: Situation, memory: ProvisioningMemory, options: ProvisioningOptions
) -> tuple[Proposal, ProvisioningMemory]:
    """The choice of the highest Γ - σ·cost, with the machines it needs beyond those there are."""
    machine = _cheapest(snapshot)
    if machine is None:
        return Proposal(policy=NAME), memory
    per_core = now.capacity / max(_cores(snapshot), 1e-9)
    price = machine.price_per_hour / max(machine.cores * machine.speed * per_core, 1e-9)
    chosen = choices(now.graph, now.active)
    draining = now.rates_rps * (1 + now.drain / options.drain_s)
    wanted = np.maximum(now.foreseen_rps, draining)
    power = needs(now.graph, wanted, chosen)[0].sum(axis=1)
    value = np.array([now.graph.worth(c) for c in chosen])
    full = float(needs(now.graph, wanted, now.graph.best[None, :])[0].sum()) * price
    worth = options.break_even_per_hour or HEADROOM * full
    spread = float(value.max() - value.min())
    sigma = (2 * spread if spread > 0 else 1.0) / max(worth, 1e-12)
    # Capacity that is there costs nothing more until its hour ends; a change must be worth a little.
    extra = np.maximum(0.0, power - now.capacity) * price
    score = value - sigma * (extra + 1e-3 * power * price)
    same = (chosen == now.active).all(axis=1)
    score[same] += SWITCH_GAIN * spread
    best = int(np.argmax(score))
    actions: list[Action] = []
    if not same[best]:
        code = "throughput-low" if power[best] < power[same].min(initial=np.inf) else "value-pays"
        actions += switches(snapshot, now, chosen[best], code, float(power[best]))
    short = float(power[best]) - now.capacity
    if short > 1e-9:
        count = math.ceil(short / (machine.cores * machine.speed * per_core) - 1e-9)
        if machine.available is not None:
            there = sum(m == machine.name for m in snapshot.nodes.machines)
            count = min(count, machine.available - there)
        count -= int((~snapshot.nodes.ready).sum())
        if count > 0:
            actions.append(_acquire(snapshot, machine, count, short))
        return Proposal(policy=NAME, actions=tuple(actions)), replace(memory, spare_since_s=None)
    released, memory = _release(snapshot, now, memory, options, float(power[best]), per_core)
    return Proposal(policy=NAME, actions=(*actions, *released)), memory


def _cheapest(snapshot: Snapshot) -> MachineClass | None:
    classes = [c for c in snapshot.classes if c.available is None or c.available > 0]
    return min(classes, key=lambda c: (c.price_per_hour / (c.cores * c.speed), -c.cores), default=None)


def _cores(snapshot: Snapshot) -> float:
    nodes = snapshot.nodes
    there = nodes.ready & ~nodes.draining
    return float((nodes.cores * np.where(nodes.speed > 0, nodes.speed, 1.0))[there].sum())


def _acquire(snapshot: Snapshot, machine: MachineClass, count: int, short: float) -> Acquire:
    there = sum(m == machine.name for m in snapshot.nodes.machines)
    return Acquire(
        machine=machine.name,
        count=count,
        reason=Reason(code="load-needs-machines", facts={"short_cores": short, "machines": count}),
        expects=Expectation(
            metric="nodes",
            subject=f"class:{machine.name}",
            value=float(there + count),
            within_s=machine.startup_s + 3 * snapshot.interval_s,
        ),
        cost=Cost(per_hour=count * machine.price_per_hour),
    )


def _release(
    snapshot: Snapshot,
    now: Situation,
    memory: ProvisioningMemory,
    options: ProvisioningOptions,
    power: float,
    per_core: float,
) -> tuple[tuple[Action, ...], ProvisioningMemory]:
    """Machines that are not needed, lastingly, and whose paid time is about to end."""
    nodes = snapshot.nodes
    spare = (1 - options.band) * now.capacity - power
    size = nodes.cores * np.where(nodes.speed > 0, nodes.speed, 1.0) * per_core
    there = nodes.ready & ~nodes.draining
    if there.sum() <= 1 or not (there & (size <= spare)).any():
        return (), replace(memory, spare_since_s=None)
    since = snapshot.time_s if memory.spare_since_s is None else memory.spare_since_s
    memory = replace(memory, spare_since_s=since)
    if snapshot.time_s - since < options.return_after_s - snapshot.interval_s / 2:
        return (), memory
    actions: list[Action] = []
    left = int(there.sum())
    # The dearest for its power first; a paid hour is used up.
    for row in np.argsort(-nodes.price_per_hour / np.maximum(size, 1e-9), kind="stable"):
        ends = nodes.paid_until_s[row] - snapshot.time_s
        if not there[row] or size[row] > spare or left <= 1 or ends > 1.5 * snapshot.interval_s:
            continue
        actions.append(
            Release(
                node=nodes.ids[row],
                reason=Reason(code="machine-not-needed", facts={"spare_cores": spare, "paid_for_s": ends}),
                cost=Cost(per_hour=-float(nodes.price_per_hour[row])),
            )
        )
        spare -= float(size[row])
        left -= 1
    return tuple(actions), memory
