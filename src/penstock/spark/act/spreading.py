"""Which state partitions to move so that executors carry equal weight, with the fewest moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """A state partition of a query: Spark's number of the operator, and the partition."""

    operator: int
    partition: int

    def __str__(self) -> str:
        return f"{self.operator}[{self.partition}]"


Places = Mapping[Place, str | None]
"""The executor of each state partition, None while nobody has opened it."""
Weights = Mapping[Place, float]
"""How much work a partition is, in any unit; one that is not named weighs as much as the mean of the others."""


def even_moves(
    places: Places, executors: Collection[str], weights: Weights | None = None
) -> dict[Place, str]:
    """The fewest moves after which each operator's partitions weigh about the same on every executor.

    Operators run one after the other, so each is spread by itself. What is on no listed executor is placed first.
    """
    if not executors:
        return {}
    moves: dict[Place, str] = {}
    for operator in sorted({p.operator for p in places}):
        mine = {p: e for p, e in places.items() if p.operator == operator}
        moves |= _evened(mine, sorted(executors), _filled(mine, weights or {}))
    return moves


def moves_away(
    places: Places, leaving: Collection[str], staying: Collection[str], weights: Weights | None = None
) -> dict[Place, str]:
    """Where the partitions of leaving executors go: the heaviest first, each to the executor that carries least."""
    if not staying:
        return {}
    moves: dict[Place, str] = {}
    for operator in sorted({p.operator for p in places}):
        mine = {p: e for p, e in places.items() if p.operator == operator}
        weight = _filled(mine, weights or {})
        load = _loads(mine, sorted(staying), weight)
        homeless = [p for p, e in mine.items() if e in leaving]
        moves |= _placed(homeless, load, weight)
    return moves


def _evened(mine: Places, executors: list[str], weight: Weights) -> dict[Place, str]:
    load = _loads(mine, executors, weight)
    at = {p: e if e in load else None for p, e in mine.items()}
    placed = _placed([p for p, e in at.items() if e is None], load, weight)
    at |= placed
    held: dict[str, list[Place]] = {e: [] for e in executors}
    for place, executor in at.items():
        held[executor or ""].append(place)
    for _ in range(len(mine)):
        heaviest, lightest = max(executors, key=load.__getitem__), min(executors, key=load.__getitem__)
        gap = load[heaviest] - load[lightest]
        # Only what weighs less than the gap narrows it, most of all what weighs half of it.
        best = min(
            (p for p in held[heaviest] if 0 < weight[p] < gap),
            key=lambda p: (abs(weight[p] - gap / 2), p),
            default=None,
        )
        if best is None or gap <= 1e-9 * max(load.values()):
            break
        held[heaviest].remove(best)
        held[lightest].append(best)
        load[heaviest] -= weight[best]
        load[lightest] += weight[best]
        placed[best] = lightest
    return {p: e for p, e in placed.items() if mine[p] != e}


def _placed(homeless: list[Place], load: dict[str, float], weight: Weights) -> dict[Place, str]:
    """Give each a home; `load` then has them."""
    homes: dict[Place, str] = {}
    for place in sorted(homeless, key=lambda p: (-weight[p], p)):
        lightest = min(load, key=lambda e: (load[e], e))
        load[lightest] += weight[place]
        homes[place] = lightest
    return homes


def _loads(mine: Places, executors: list[str], weight: Weights) -> dict[str, float]:
    load = dict.fromkeys(executors, 0.0)
    for place, executor in mine.items():
        if executor is not None and executor in load:
            load[executor] += weight[place]
    return load


def _filled(mine: Places, weights: Weights) -> dict[Place, float]:
    known = [weights[p] for p in mine if weights.get(p, 0.0) > 0]
    mean = sum(known) / len(known) if known else 1.0
    return {p: weights.get(p, mean) for p in mine}
