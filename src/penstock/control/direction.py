"""What an action does to the load on operators: take some away, or give spare capacity back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from penstock.control.effects import read
from penstock.dataflow import Dataflow, OperatorId
from penstock.policies.actions import Acquire, Action, Move, Release, Scale, Shed, Switch
from penstock.telemetry import Snapshot

Direction = Literal["relieves", "returns", "neutral"]


def direction(action: Action, snapshot: Snapshot) -> Direction:
    """Whether the action relieves its operators, returns spare capacity, or does neither.

    More tasks or nodes, a cheaper alternate, more shedding and a move relieve; their opposites return.
    """
    match action:
        case Scale():
            return "relieves" if action.target > action.current else "returns"
        case Shed():
            now = read(snapshot, "keep", action.subject)
            return "returns" if action.keep > (1.0 if now is None else now) else "relieves"
        case Switch():
            before, after = (
                alternate_cost_s(snapshot, action.operator, n) for n in (action.current, action.target)
            )
            return "returns" if after > before else "relieves"
        case Move() | Acquire():
            return "relieves"
        case Release():
            return "returns"
        case _:
            return "neutral"


def alternate_cost_s(snapshot: Snapshot, operator: OperatorId, name: str) -> float:
    """Core-seconds per record of an alternate: as measured, or as declared while it has never run."""
    declared = snapshot.dataflow.operator(operator)
    index = declared.alternate_index(name)
    table = snapshot.alternates
    rows = np.flatnonzero((table.operator == snapshot.dataflow.row[operator]) & (table.index == index))
    if rows.size and table.service_s.count[rows[0]] > 0:
        return float(table.service_s.mean[rows[0]])
    return declared.alternates[index].cost_s


class Reach:
    """Each operator with everything downstream of it."""

    def __init__(self, dataflow: Dataflow) -> None:
        self._targets: dict[str, list[str]] = {}
        for stream in dataflow.streams:
            self._targets.setdefault(stream.source, []).append(stream.target)
        self._found: dict[str, frozenset[str]] = {}

    def __getitem__(self, start: str) -> frozenset[str]:
        if start not in self._found:
            found, waiting = {start}, [start]
            while waiting:
                new = [t for t in self._targets.get(waiting.pop(), ()) if t not in found]
                found.update(new)
                waiting += new
            self._found[start] = frozenset(found)
        return self._found[start]


def touched(action: Action, reach: Reach) -> frozenset[str]:
    """The operators whose load the action changes; empty for actions on nodes, which serve them all."""
    match action:
        case Scale(operator=operator) if operator is not None:
            return frozenset({operator})
        case Move() | Switch():
            return frozenset({action.operator})
        case Shed():
            return reach[action.operator if action.target is None else action.target]
        case _:
            return frozenset()


def overlap(one: Iterable[str], other: frozenset[str]) -> str | None:
    """An operator in both (the first by name), or None."""
    common = other.intersection(one)
    return min(common) if common else None
