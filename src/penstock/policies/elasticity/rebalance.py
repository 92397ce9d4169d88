"""The fewest tasks that keep the waits of a sequence within a budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.policies.elasticity.waits import Waits


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
    that does not yet reach the budget; of the few units between, the steepest are taken. The result is the
    greedy one, in a bounded number of vector operations.
    """
    # p must exceed b, or the queue never ends.
    floor = np.maximum(minimum, np.floor(waits.b).astype(np.int64) + 1)
    at_most = float(np.sum(waits.at(maximum)))
    if np.any(floor > maximum) or not at_most <= budget_s:
        return Rebalanced(maximum.copy(), at_most, False)
    p = floor
    if float(np.sum(waits.at(p))) > budget_s:
        few, many = _thresholds(waits, floor, maximum, budget_s)
        p = _steepest_between(waits, few, many, budget_s)
    return Rebalanced(p, float(np.sum(waits.at(p))), True)


def first_gain_at_least(a: Floats, b: Floats, delta: float) -> Floats:
    """P_Δ: the first p where one task more gains no more than |δ| (δ < 0): ceil((2b-1)/2 + √(1/4 - a/δ))."""
    return np.ceil((2 * b - 1) / 2 + np.sqrt(0.25 - a / delta))


def _thresholds(waits: Waits, floor: Ints, maximum: Ints, budget_s: float) -> tuple[Ints, Ints]:
    """Parallelism at the last gain threshold that misses the budget, and at the first that meets it."""
    a, b = waits.a, waits.b

    def taken(delta: float) -> Ints:
        return np.clip(first_gain_at_least(a, b, delta), floor, maximum).astype(np.int64)

    gain = a / ((floor - b) * (floor + 1 - b))
    steep, flat = -float(gain.max()) * 2, -float((a / ((maximum - b) * (maximum + 1 - b))).min()) / 2
    flat = min(flat, -1e-300)
    few, many = taken(steep), taken(flat)
    while int(np.sum(many - few)) > 1:
        middle = -float(np.sqrt(steep * flat))  # gains span many orders of magnitude
        if middle in (steep, flat):
            break
        p = taken(middle)
        if float(np.sum(waits.at(p))) > budget_s:
            steep, few = middle, p
        else:
            flat, many = middle, p
    return few, many


def _steepest_between(waits: Waits, few: Ints, many: Ints, budget_s: float) -> Ints:
    """From `few` towards `many`, the tasks that gain most first, until the budget is met."""
    extra = many - few
    operator = np.repeat(np.arange(len(extra)), extra)
    offset = np.arange(len(operator)) - np.repeat(np.cumsum(extra) - extra, extra)
    room = (few - waits.b)[operator] + offset
    gain = waits.a[operator] / (room * (room + 1))
    order = np.argsort(-gain, kind="stable")
    missing = float(np.sum(waits.at(few))) - budget_s
    needed = int(np.searchsorted(np.cumsum(gain[order]), missing)) + 1
    while True:
        p = few + np.bincount(operator[order[:needed]], minlength=len(extra))
        # The running sum of gains and the sum of waits may differ in the last bits.
        if needed >= len(order) or float(np.sum(waits.at(p))) <= budget_s:
            return p
        needed += 1
