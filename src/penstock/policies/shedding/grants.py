"""The accuracy each sink can have, given the CPU of the nodes: minima first, then priority by priority."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.policies.shedding.fair_share import fill, upstream_of
from penstock.policies.shedding.graph import Graph
from penstock.policies.shedding.requirements import at_sinks
from penstock.telemetry import Sinks
from penstock.telemetry.moments import totals


@dataclass(frozen=True, slots=True, eq=False)
class Grants:
    """What each sink gets, and why not more."""

    accuracy: Floats
    """Of each sink, in the order of the snapshot."""
    stopped_by: Ints
    """Row of the node that is full; -1: nothing stopped the sink before its ceiling."""
    used: Floats
    """Cores handed out on each node, minima included."""


@dataclass(frozen=True, eq=False)
class Claims:
    """Who needs CPU where: tasks of operators on nodes (-1: nowhere), each `base + accuracy · slope` cores."""

    graph: Graph
    sinks: Sinks
    operator: Ints
    node: Ints
    slope: Floats
    base: Floats

    def used(self, accuracy: Floats, nodes: int) -> Floats:
        """Cores per node with the sinks at the given accuracies; an operator works for its most accurate one."""
        of_operator = self.graph.highest_below(at_sinks(self.graph, self.sinks, accuracy))
        placed = self.node >= 0
        cores = self.base + of_operator[self.operator] * self.slope
        return totals(self.node[placed], cores[placed], nodes)

    def grant(self, floor: Floats, ceiling: Floats, available: Floats) -> Grants:
        """Raise sinks from `floor` towards `ceiling`, higher priorities first, as far as the nodes' CPU goes.

        A node on which the floors themselves do not fit grants nothing more; that is for the caller to notice.
        """
        nodes = len(available)
        full = self.used(ceiling, nodes)
        if np.all(full <= available):
            return Grants(ceiling.copy(), np.full(len(ceiling), -1), full)
        order = np.lexsort((-floor, -self.sinks.priority))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        falls = np.flatnonzero(np.diff(self.sinks.priority[order])) + 1
        groups = np.concatenate([[0], falls, [len(order)]])
        up_at, up = _regrouped(self._up, order)
        down_at, down = _inverse(up_at, up, len(self.graph))
        by_operator, by_node = self._tasks
        got, stopped_by = fill(
            groups,
            floor[order],
            ceiling[order],
            self.graph.application[self.sinks.operator[order]],
            up_at,
            up,
            down_at,
            down,
            _starts(self.operator[by_operator], len(self.graph)),
            self.node[by_operator],
            self.slope[by_operator],
            _starts(self.node[by_node], nodes),
            self.operator[by_node],
            self.slope[by_node],
            self.used(floor, nodes),
            available,
        )
        return Grants(got[rank], stopped_by[rank], self.used(got[rank], nodes))

    @cached_property
    def _tasks(self) -> tuple[Ints, Ints]:
        """Rows of placed tasks, by operator and by node."""
        placed = np.flatnonzero(self.node >= 0)
        by_operator = placed[np.argsort(self.operator[placed], kind="stable")]
        return by_operator, placed[np.argsort(self.node[placed], kind="stable")]

    @cached_property
    def _up(self) -> tuple[Ints, Ints]:
        """For each sink, itself and the operators above it."""
        starts, into = self.graph.arriving
        found: tuple[Ints, Ints] = upstream_of(
            np.asarray(self.sinks.operator, np.int64), starts, self.graph.source[into], len(self.graph)
        )
        return found


def _starts(sorted_groups: Ints, count: int) -> Ints:
    return np.searchsorted(sorted_groups, np.arange(count + 1))


def _regrouped(lists: tuple[Ints, Ints], order: Ints) -> tuple[Ints, Ints]:
    """Lists one after the other, in another order."""
    at, items = lists
    lengths = np.diff(at)[order]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    return starts, items[np.repeat(at[:-1][order], lengths) + within]


def _inverse(at: Ints, items: Ints, count: int) -> tuple[Ints, Ints]:
    """For each item the lists it stands in, ascending."""
    owner = np.repeat(np.arange(len(at) - 1), np.diff(at))
    order = np.argsort(items, kind="stable")
    return _starts(items[order], count), owner[order]
