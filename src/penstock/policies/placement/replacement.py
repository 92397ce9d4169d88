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

from penstock.policies.placement.budget import Budget
from penstock.policies.placement.exact import Bounded
from penstock.policies.placement.placement import settled
from penstock.policies.placement.portfolio import best_found
from penstock.policies.placement.problem import UNPLACED, Assignment, PlacementProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementOptions:
    """When a running placement is changed."""

    horizon_s: float = 600.0
    """Seconds over which saved traffic has to pay for the moves; above 0."""
    least_gain: float = 0.05
    """Share (0 to 1) of the running cost that has to be saved, so that noise moves nothing."""
    cool_down_s: float = 120.0
    """Seconds after a change in which only a placement that no longer fits is changed again."""
    confirmations: int = 2
    """Times in a row that a change has to be worth it before it is made; at least 1."""

    def __post_init__(self) -> None:
        if (
            self.horizon_s <= 0
            or not 0 <= self.least_gain <= 1
            or self.cool_down_s < 0
            or self.confirmations < 1
        ):
            raise ValueError(
                "horizon_s > 0, 0 ≤ least_gain ≤ 1, cool_down_s ≥ 0 and confirmations ≥ 1 are needed"
            )


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TradeOff:
    """One point between staying and the best placement."""

    assignment: Assignment
    moves: int
    cost: float


def priced(problem: PlacementProblem, move_costs: npt.ArrayLike, horizon_s: float) -> PlacementProblem:
    """`problem` with each task's one-time `move_costs` (in traffic units times seconds) spread over the horizon."""
    prices = np.broadcast_to(np.asarray(move_costs, dtype=np.float64) / horizon_s, (problem.tasks,)).copy()
    return replace(problem, move_prices=prices)


def replacement(
    problem: PlacementProblem,
    memory: ReplacementMemory,
    options: ReplacementOptions,
    *,
    move_costs: npt.ArrayLike,
    now_s: float,
    budget: Budget,
    solve: Callable[[PlacementProblem, Budget], Assignment] | None = None,
) -> tuple[Keep | Replace, ReplacementMemory]:
    """Whether to leave the running placement, and for which; `solve` finds it (default: `best_found`)."""
    fits = problem.fits(problem.running)
    if fits and memory.changed_at_s is not None and now_s - memory.changed_at_s < options.cool_down_s:
        return Keep(code="cool-down", facts={"since_s": now_s - memory.changed_at_s}), memory
    charged = priced(problem, move_costs, options.horizon_s)
    found = settled(
        charged, best_found(charged, budget).assignment if solve is None else solve(charged, budget)
    )
    facts = _facts(charged, found, options.horizon_s)
    changed = ReplacementMemory(changed_at_s=now_s)
    if not fits:
        return Replace(code="does-not-fit", facts=facts, assignment=found), changed
    quiet = replace(memory, worth_it=0)
    if facts["saved"] < options.least_gain * facts["cost_now"] or not facts["moves"]:
        return Keep(code="gain-too-small", facts=facts), quiet
    if facts["saved"] * options.horizon_s <= facts["move_cost"]:
        return Keep(code="moves-cost-more", facts=facts), quiet
    if memory.worth_it + 1 < options.confirmations:
        return Keep(code="unconfirmed", facts=facts), replace(memory, worth_it=memory.worth_it + 1)
    return Replace(code="worth-it", facts=facts, assignment=found), changed


def trade_offs(problem: PlacementProblem, budget: Budget, *, steps: int = 8) -> tuple[TradeOff, ...]:
    """Placements from few moves to low cost, none of them beaten in both by another.

    The price of a move falls from what no task would pay to nothing, in `steps` of equal ratio.
    """
    traffic = np.asarray(problem.adjacency.sum(axis=1)).ravel()
    dearest = float(traffic.max(initial=0.0))
    points: list[TradeOff] = []
    for step in range(steps):
        price = dearest * 0.5**step if step < steps - 1 else 0.0
        charged = replace(problem, move_prices=np.full(problem.tasks, price))
        answer: Bounded = best_found(charged, budget.share(1.0 / (steps - step)))
        assignment = settled(charged, answer.assignment)
        moves = int(np.count_nonzero(problem.moved(assignment)))
        points.append(TradeOff(assignment=assignment, moves=moves, cost=problem.cost(assignment)))
    if problem.fits(problem.running):
        points.append(TradeOff(assignment=problem.running, moves=0, cost=problem.cost(problem.running)))
    front: list[TradeOff] = []
    for point in sorted(points, key=lambda p: (p.moves, p.cost)):
        if not front or point.cost < front[-1].cost:
            front.append(point)
    return tuple(front)


def _facts(charged: PlacementProblem, found: Assignment, horizon_s: float) -> dict[str, float]:
    running = charged.running
    known = running != UNPLACED
    both = known[charged.sources] & known[charged.targets]
    crosses = running[charged.sources] != running[charged.targets]
    cost_now = float(charged.rates[both & crosses].sum())
    cost_then, move_cost = charged.cost(found), charged.move_cost(found) * horizon_s
    return {
        "cost_now": cost_now,
        "cost_then": cost_then,
        "saved": cost_now - cost_then,
        "moves": float(np.count_nonzero(charged.moved(found))),
        "move_cost": move_cost,
    }
