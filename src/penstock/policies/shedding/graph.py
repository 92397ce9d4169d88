"""A dataflow as arrays, so that a value travels up or down all of it in one step per level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import ref

import numpy as np
from numba import njit

from penstock.arrays import Floats, Ints
from penstock.dataflow import Dataflow, OperatorId


@dataclass(frozen=True, eq=False)
class Graph:
    """Streams as pairs of operator rows, and the operators' distance from the sources (longest path)."""

    level: Ints
    source: Ints
    target: Ints
    application: Ints
    """Number of the connected component each operator belongs to."""
    ids: tuple[OperatorId, ...] = ()

    @cached_property
    def downward(self) -> Ints:
        """Rows of operators, those above before those below."""
        return np.argsort(self.level, kind="stable")

    @cached_property
    def arriving(self) -> tuple[Ints, Ints]:
        """(starts, streams): rows of the streams into each operator, one operator after the other."""
        into = np.argsort(self.target, kind="stable")
        return np.searchsorted(self.target[into], np.arange(len(self) + 1)), into

    @classmethod
    def of(cls, dataflow: Dataflow) -> Graph:
        """The graph of a dataflow; a cycle is a ValueError. Asked again for the same dataflow, the same graph."""
        if _LAST and _LAST[0][0]() is dataflow:
            return _LAST[0][1]
        graph = cls._made(dataflow)
        _LAST[:] = [(ref(dataflow), graph)]
        return graph

    @classmethod
    def _made(cls, dataflow: Dataflow) -> Graph:
        row, count = dataflow.row, len(dataflow.operators)
        source = np.fromiter((row[s.source] for s in dataflow.streams), np.int64, len(dataflow.streams))
        target = np.fromiter((row[s.target] for s in dataflow.streams), np.int64, len(dataflow.streams))
        return cls(
            level=_levels(count, source, target),
            source=source,
            target=target,
            application=components(count, source, target),
            ids=tuple(o.id for o in dataflow.operators),
        )

    def __len__(self) -> int:
        return len(self.level)

    def highest_below(self, values: Floats) -> Floats:
        """For every operator, the highest of its own value and those of all operators downstream."""
        best: Floats = _highest(values, self.downward, *self.arriving, self.source)
        return best

    def lowest_above(self, values: Floats) -> Floats:
        """For every operator, the lowest of its own value and those of all operators upstream."""
        least: Floats = _lowest(values, self.downward, *self.arriving, self.source)
        return least


@njit(cache=True)
def _highest(values: Floats, order: Ints, starts: Ints, into: Ints, source: Ints) -> Floats:
    best = values.copy()
    for t in order[::-1]:
        for k in range(starts[t], starts[t + 1]):
            best[source[into[k]]] = max(best[source[into[k]]], best[t])
    return best


@njit(cache=True)
def _lowest(values: Floats, order: Ints, starts: Ints, into: Ints, source: Ints) -> Floats:
    least = values.copy()
    for t in order:
        for k in range(starts[t], starts[t + 1]):
            least[t] = min(least[t], least[source[into[k]]])
    return least


_LAST: list[tuple[ref[Dataflow], Graph]] = []
"""The graph made last: the dataflow is the same object in every cycle, and nothing in a graph ever changes."""


@njit(cache=True)
def components(count: int, source: Ints, target: Ints) -> Ints:
    """Number of the connected part each vertex belongs to, in the order of their first vertices (union-find)."""
    parent = np.arange(count)
    for e in range(len(source)):
        a, b = source[e], target[e]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        parent[max(a, b)] = min(a, b)
    label, known = np.empty(count, np.int64), 0
    for v in range(count):  # a root comes before its members
        if parent[v] == v:
            label[v] = known
            known += 1
        else:
            label[v] = label[parent[v]]
    return label


def _levels(count: int, source: Ints, target: Ints) -> Ints:
    level = np.zeros(count, np.int64)
    for _ in range(count + 1):
        deeper = level.copy()
        np.maximum.at(deeper, target, level[source] + 1)
        if np.array_equal(deeper, level):
            return level
        level = deeper
    raise ValueError("the dataflow has a cycle")
