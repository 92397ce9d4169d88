"""How much gets through: equations 4 to 7 of dynamic-dataflows.txt.

Ω compares what leaves the output operators with what would leave them *for the current input* if nothing were short
of power (definition 4). The printed o^max also counts the queue; then a constant deployment at Ω = 0.8, which the
paper's table 2 has, would sink towards 0 within an hour.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from penstock.policies.provisioning.problem import Floats, Ints

FREE_S = 1e-12
"""Cheaper than this per record counts as free."""


@njit(cache=True)
def mean_share(processed: Floats, wanted: Floats, outputs: Ints) -> float:
    """Ω: mean over the outputs of what they process relative to what they should (equation 7)."""
    total = 0.0
    for o in outputs:
        total += min(1.0, processed[o] / wanted[o]) if wanted[o] > 0 else 1.0
    return total / len(outputs)


@njit(cache=True)
def lowest_share(processed: Floats, wanted: Floats) -> float:
    """The smallest share of its full input that any operator processes."""
    lowest = 1.0
    for i in range(len(wanted)):
        if wanted[i] > 0:
            lowest = min(lowest, processed[i] / wanted[i])
    return lowest


@njit(cache=True)
def advance(
    order: Ints,
    feeds: Floats,
    input_rps: Floats,
    cost: Floats,
    selectivity: Floats,
    power: Floats,
    carried_rps: Floats,
    queued: Floats,
    interval_s: float,
) -> tuple[Floats, Floats]:
    """(records per second processed, records queued) after one interval.

    o = min(q + i·Δt, φ·Δt/c)·s/Δt (equation 4); what flows on is capped by `carried_rps` (equation 5), what is left
    over stays queued.
    """
    arriving = input_rps.copy()
    processed = np.zeros(len(order))
    left = queued.copy()
    for i in order:
        there = left[i] + arriving[i] * interval_s
        limit = power[i] * interval_s / cost[i] if cost[i] > FREE_S else np.inf
        done = min(there, limit)
        left[i] = there - done
        processed[i] = done / interval_s
        for j in range(len(order)):
            if feeds[i, j] > 0:
                arriving[j] += min(processed[i] * selectivity[i], carried_rps[i, j])
    return processed, left
