"""Re-placement of what runs: traffic saved against moves made, and when it is worth it.

A move costs once (state to transfer, a pause), traffic is saved every second. Over a horizon H a move of cost m
weighs as m / H of traffic: with that price on every task, one solver weighs both. Whether to act at all is decided
with hysteresis, so that noise in the measured traffic moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from penstock.policies.placement.options import PlacementOptions
from penstock.policies.placement.problem import UNPLACED, Assignment, PlacementProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementMemory:
    """What is remembered from one decision to the next."""

    changed_at_s: float | None = None
    worth_it: int = 0
    """How many decisions in a row found a change worth making."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Nothing moves; `code` says why: `cool-down`, `gain-too-small`, `moves-cost-more`, `unconfirmed`."""

    code: str
    facts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replace:
    """The tasks that change node move; `code` says why: `worth-it`, or `does-not-fit` when they have to."""

    code: str
    facts: Mapping[str, float]
    assignment: Assignment


def priced(problem: PlacementProblem, move_costs: npt.ArrayLike, horizon_s: float) -> PlacementProblem:
    """`problem` with each task's one-time `move_costs` (in traffic units times seconds) spread over the horizon."""
    prices = np.broadcast_to(np.asarray(move_costs, dtype=np.float64) / horizon_s, (problem.tasks,)).copy()
    return replace(problem, move_prices=prices)


def replacement(
    problem: PlacementProblem,
    memory: ReplacementMemory,
    options: PlacementOptions,
    *,
    move_costs: npt.ArrayLike,
    now_s: float,
    solve: Callable[[PlacementProblem], Assignment],
    least: float = 0.0,
) -> tuple[Keep | Replace, ReplacementMemory]:
    """Whether to leave the running placement, and for which; `solve` finds it. `least` traffic has to be saved."""
    fits = problem.fits(problem.running)
    if fits and memory.changed_at_s is not None and now_s - memory.changed_at_s < options.cool_down_s:
        return Keep(code="cool-down", facts={"since_s": now_s - memory.changed_at_s}), memory
    charged = priced(problem, move_costs, options.horizon_s)
    found = solve(charged)
    facts = _facts(charged, found, options.horizon_s)
    changed = ReplacementMemory(changed_at_s=now_s)
    if not fits:
        return Replace(code="does-not-fit", facts=facts, assignment=found), changed
    quiet = replace(memory, worth_it=0)
    if facts["saved"] < max(least, options.least_gain * facts["cost_now"]) or not facts["moves"]:
        return Keep(code="gain-too-small", facts=facts), quiet
    if facts["saved"] * options.horizon_s <= facts["move_cost"]:
        return Keep(code="moves-cost-more", facts=facts), quiet
    if memory.worth_it + 1 < options.confirmations:
        return Keep(code="unconfirmed", facts=facts), replace(memory, worth_it=memory.worth_it + 1)
    return Replace(code="worth-it", facts=facts, assignment=found), changed


def _facts(charged: PlacementProblem, found: Assignment, horizon_s: float) -> dict[str, float]:
    running = charged.running
    known = running != UNPLACED
    # What a task without a node sends or gets crosses nothing yet.
    both = known[charged.sources] & known[charged.targets]
    cost_now = replace(charged, rates=np.where(both, charged.rates, 0.0)).cost(running)
    cost_then, move_cost = charged.cost(found), charged.move_cost(found) * horizon_s
    return {
        "cost_now": cost_now,
        "cost_then": cost_then,
        "saved": cost_now - cost_then,
        "moves": float(np.count_nonzero(charged.moved(found))),
        "move_cost": move_cost,
    }
