"""The fewest tasks that keep the waits of a sequence within a budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.policies.elasticity.waits import Waits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Rebalanced:
    """Parallelism per operator; `wait_s` is what the model then predicts for the whole sequence."""

    parallelism: Ints
    wait_s: float
    feasible: bool


def rebalance(waits: Waits, minimum: Ints, maximum: Ints, budget_s: float) -> Rebalanced:
    """Minimise Σp subject to ΣW(p) ≤ budget and the bounds; infeasible: the maximum, and it says so.

    The paper raises the operator with the steepest drop, one jump after another. Each W_i is convex and
    decreasing, so that greedy order is the order of marginal gains: a threshold δ on the gain determines which
    units are taken, and P_Δ(δ) (the spec's closed form) gives all of them at once. Bisection finds the last δ
    that does not yet reach the budget; the few units between are then taken one by one. The result is the
    greedy one, in a bounded number of vector operations.
    """
    a, b = waits.a, waits.b
    # p must exceed b, or the queue never ends.
    floor = np.maximum(minimum, np.floor(b).astype(np.int64) + 1)
    at_most = float(np.sum(waits.at(maximum)))
    if np.any(floor > maximum) or not at_most <= budget_s:
        return Rebalanced(maximum.copy(), at_most, False)
    p = floor
    if float(np.sum(waits.at(p))) > budget_s:
        p = _below_threshold(waits, floor, maximum, budget_s)
        p = _step_by_step(a, b, p, maximum, budget_s)
    return Rebalanced(p, float(np.sum(waits.at(p))), True)


def first_gain_at_least(a: Floats, b: Floats, delta: float) -> Floats:
    """P_Δ: the first p where one task more gains no more than |δ| (δ < 0): ceil((2b-1)/2 + √(1/4 - a/δ))."""
    return np.ceil((2 * b - 1) / 2 + np.sqrt(0.25 - a / delta))


def _below_threshold(waits: Waits, floor: Ints, maximum: Ints, budget_s: float) -> Ints:
    """Parallelism at the last gain threshold that still misses the budget."""
    a, b = waits.a, waits.b

    def taken(delta: float) -> Ints:
        return np.clip(first_gain_at_least(a, b, delta), floor, maximum).astype(np.int64)

    gain = a / ((floor - b) * (floor + 1 - b))
    steep, flat = -float(gain.max()) * 2, -float((a / ((maximum - b) * (maximum + 1 - b))).min()) / 2
    flat = min(flat, -1e-300)
    for _ in range(200):
        middle = -float(np.sqrt(steep * flat))  # gains span many orders of magnitude
        if middle in (steep, flat):
            break
        if float(np.sum(waits.at(taken(middle)))) > budget_s:
            steep = middle
        else:
            flat = middle
        if int(np.sum(taken(flat) - taken(steep))) <= 1:
            break
    return taken(steep)


def _step_by_step(a: Floats, b: Floats, start: Ints, maximum: Ints, budget_s: float) -> Ints:
    """One task more where it gains most, until the budget is met."""
    p = start.copy()
    room = p - b
    wait = float(np.sum(a / room))
    while wait > budget_s:
        gain = np.where(p < maximum, a / ((p - b) * (p + 1 - b)), -1.0)
        best = int(np.argmax(gain))
        if gain[best] < 0:
            break
        p[best] += 1
        wait = float(np.sum(a / (p - b)))
    return p
