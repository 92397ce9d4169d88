"""Interference scores: how much a computation disturbs, and is disturbed, on a node (figure 5 of the paper).

    score = Σ_p ((ru + c)^n - ru^n) · weight_p       ru: the node without the computation, c: the computation

`ru` and `c` are smoothed over neighbouring windows and divided by what the node has to give; a little load on a quiet
node costs little, the same load on a full one a lot. Resources are added up. Beyond what a node can carry at all
(`full`) each further bit costs as much as `OVERLOAD` says: nothing that is sent there comes through.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from penstock.arrays import Floats

OVERLOAD = 30.0
"""Score of load that a node cannot carry, over that of the same share of the usual load."""


@njit(cache=True, nogil=True, inline="always")
def power_of(base: float, n: int) -> float:
    """base^n for a small whole n; the usual one without a loop, which takes half the time."""
    if n == 3:
        return base * base * base
    result = base
    for _ in range(n - 1):
        result *= base
    return result


@njit(cache=True, nogil=True)
def cost_of(use: float, full: float, n: int) -> float:
    """What a use costs: its amplified self, and what is over the limit."""
    return power_of(use, n) + OVERLOAD * max(use - full, 0.0)


@njit(cache=True, nogil=True)
def score(
    rates: Floats, needs: Floats, load: Floats, room: Floats, full: Floats, weights: Floats, n: int
) -> float:
    """The score of one computation on one node that carries `load` besides it.

    `rates` [window] are records per second, `needs` [resource] what each takes, `load` [resource, window] what others
    use, `room` [resource] one over what may be used, `full` [resource] the use (in those terms) that is all there is.
    """
    total = 0.0
    for r in range(len(needs)):
        if needs[r] == 0.0:
            continue
        for p in range(len(rates)):
            before = max(load[r, p], 0.0) * room[r]
            after = before + rates[p] * needs[r] * room[r]
            total += (cost_of(after, full[r], n) - cost_of(before, full[r], n)) * weights[p]
    return total


@njit(cache=True, nogil=True)
def heats(loads: Floats, rooms: Floats, full: Floats, weights: Floats, n: int) -> Floats:
    """[node]: Σ cost of the load · weight over windows and resources, the sum whose growth scores are."""
    found = np.zeros(len(loads))
    for node in range(len(loads)):
        for r in range(loads.shape[1]):
            for p in range(loads.shape[2]):
                use = max(loads[node, r, p], 0.0) * rooms[node, r]
                found[node] += cost_of(use, full[r], n) * weights[p]
    return found
