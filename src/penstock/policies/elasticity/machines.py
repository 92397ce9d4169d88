"""Machines for the tasks: as many as they keep busy, where the owner lets machines be rented (`max_nodes`)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from penstock.policies.actions import Acquire, Action, Cost, Expectation, Release
from penstock.policies.elasticity.options import ElasticityOptions
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot

Ints = NDArray[np.int64]

PATIENCE = 3
"""A machine is kept for this many times `shrink_after_s`: it costs more to come back than a task."""


def machines(
    snapshot: Snapshot, targets: Ints, spare_since_s: float | None, options: ElasticityOptions
) -> tuple[tuple[Action, ...], float | None]:
    """Machines to rent or to give back for the tasks there will be, and since when fewer machines would do.

    One task keeps one core busy. More machines are asked for at once; one is given back, the one with the fewest tasks,
    when fewer have sufficed for `PATIENCE` times `shrink_after_s`. Without `max_nodes` the machines are
    not the policy's to change.
    """
    nodes = snapshot.nodes
    if options.max_nodes is None or not snapshot.classes or not len(nodes):
        return (), None
    machine, staying = snapshot.classes[0], ~nodes.draining
    there = int(staying.sum())
    elastic = snapshot.operators.elastic
    cores = float(targets[elastic].sum() + snapshot.by_operator.cpu[~elastic].sum())
    wanted = min(max(math.ceil(cores / machine.cores - 1e-9), options.min_nodes), options.max_nodes)
    facts = {"tasks": int(targets.sum()), "machines": wanted, "machines_now": there}
    if wanted > there:
        count = wanted - there
        asked = Acquire(
            machine=machine.name,
            count=count,
            reason=Reason(code="tasks-need-machines", facts=facts),
            expects=Expectation(
                metric="nodes",
                subject=f"class:{machine.name}",
                value=float(sum(m == machine.name for m in nodes.machines) + count),
                within_s=machine.startup_s + 3 * snapshot.interval_s,
            ),
            cost=Cost(per_hour=count * machine.price_per_hour),
        )
        return (asked,), None
    if wanted == there:
        return (), None
    since_s = snapshot.time_s if spare_since_s is None else spare_since_s
    if snapshot.time_s - since_s < PATIENCE * options.shrink_after_s:
        return (), since_s
    tasks = np.bincount(snapshot.tasks.node[snapshot.tasks.node >= 0], minlength=len(nodes))
    # Of equals the youngest: what was there at first stays.
    emptiest = min(np.flatnonzero(staying).tolist(), key=lambda row: (tasks[row], -row))
    released = Release(
        node=nodes.ids[emptiest],
        reason=Reason(code="fewer-machines-suffice", facts=facts),
        cost=Cost(per_hour=-float(nodes.price_per_hour[emptiest])),
    )
    return (released,), snapshot.time_s
