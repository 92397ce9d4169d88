"""GA at run time: the running deployment and its mutants compete; machines that are paid for cost nothing more."""

from __future__ import annotations

import numpy as np

from penstock.policies.provisioning.problem import Demand
from penstock_papers.dynamic_dataflows.genetic import ABSENT, FREE, GeneticOptions, Slots, evolve
from penstock_papers.dynamic_dataflows.running import Adaptation, Running

RUNTIME = GeneticOptions()
"""As much search as for a deployment."""
EVERY = 2
"""Intervals between two decisions."""


def adapt_genetic(demand: Demand, running: Running, options: GeneticOptions = RUNTIME) -> Adaptation:
    """The fittest deployment for the rate last seen, starting from the one that runs."""
    kinds = len(demand.classes)
    there = len(running.rows)
    spare = np.repeat(np.arange(kinds), 2 + there // (4 * kinds))
    rows = np.concatenate([running.rows, spare])
    widest = int(demand.cores.max())
    owners = np.where(np.arange(widest)[None, :] < demand.cores[rows][:, None], FREE, ABSENT)
    for m, table in enumerate(running.cores):
        mine = np.repeat(np.arange(len(table)), table)
        owners[m, : len(mine)] = mine
    sunk = running.paid_left_s(demand) > running.interval_s
    slots = Slots(
        rows=rows,
        speed=np.concatenate([running.speed, demand.core_speed[spare]]),
        price=np.concatenate([np.where(sunk, 0.0, demand.hourly[running.rows]), demand.hourly[spare]]),
        owners=owners,
    )
    current = (running.alternates, owners)
    seeded = Demand(
        graph=demand.graph,
        input_rps=running.input_rps,
        classes=demand.classes,
        throughput=demand.throughput,
        tolerance=demand.tolerance,
        worth=demand.break_even,
        budget_per_hour=demand.budget_per_hour,
        period_s=demand.period_s,
        seed=demand.seed + running.step,
    )
    alternates, found = evolve(seeded, slots, [current], options, current=current)
    tables = np.zeros((len(rows), running.cores.shape[1]), dtype=np.int64)
    slot, core = np.nonzero(found >= 0)
    np.add.at(tables, (slot, found[slot, core]), 1)
    used = tables.sum(axis=1) > 0
    keep = used[:there] | sunk
    fresh = np.flatnonzero(used[there:]) + there
    return Adaptation(
        alternates=alternates,
        keep=keep,
        acquire=rows[fresh],
        cores=np.vstack([tables[:there][keep], tables[fresh]]),
    )
