"""Which share of an application's input gets through to each operator (eqs. 3 and 4 of the paper).

Counts come from the snapshot: a task's `arrived` and a stream's `records` are what shedding let pass; a source's
`keep` applies to what it read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from penstock.arrays import Floats, Ints
from penstock.policies.shedding.graph import Graph
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals


@dataclass(frozen=True, slots=True, eq=False)
class Accuracy:
    """Per operator, as measured in one interval."""

    local: Floats
    """lAc: share that the operator itself (its slowest task) lets through of what the operators above send."""
    current: Floats
    """cAc = lAc · min over upstream of cAc: the share that is guaranteed to have counted."""
    offered: Floats
    """Share of the full input that reaches the operator's tasks, each stream weighed by its records. Above 1 while a
    backlog is read. Unlike cAc it is not lowered by the worst input, so CPU can be extrapolated with it."""
    surge: Floats
    """How much more than now produced it must take on, where sources above read a backlog."""

    @classmethod
    def of(cls, snapshot: Snapshot, graph: Graph, surge: Floats) -> Accuracy:
        """The model of a snapshot; `surge` is given at the sources and carried down."""
        tasks, count = snapshot.tasks, len(graph)
        seen = tasks.known
        arrived = totals(tasks.operator[seen], tasks.arrived[seen], count)
        processed = totals(tasks.operator[seen], tasks.processed[seen], count)
        emitted = totals(tasks.operator[seen], tasks.emitted[seen], count)
        passed = ratio(processed, arrived)
        slowest = np.ones(count)
        np.minimum.at(
            slowest, tasks.operator[seen], np.minimum(ratio(tasks.processed[seen], tasks.arrived[seen]), 1.0)
        )

        streams = snapshot.streams
        keep = np.where(streams.known, streams.keep, 1.0)
        before = np.where(  # records on each stream before shedding
            streams.known & (keep > 0), streams.records / np.where(keep > 0, keep, 1.0), emitted[graph.source]
        )

        sources, surge = snapshot.sources, surge.copy()
        share = np.where(sources.known, sources.keep * ratio(sources.read_rps, sources.produced_rps), 1.0)
        local, offered, current = np.ones(count), np.ones(count), np.ones(count)
        offered[sources.operator] = share
        local[sources.operator] = current[sources.operator] = np.minimum(share, 1.0)
        starts, into = graph.arriving
        _descend(
            graph.downward,
            starts,
            into,
            graph.source,
            before,
            keep,
            passed,
            slowest,
            local,
            current,
            offered,
            surge,
        )
        return cls(local, current, offered, surge)


@njit(cache=True)
def _descend(
    order: Ints,
    starts: Ints,
    into: Ints,
    source: Ints,
    before: Floats,
    keep: Floats,
    passed: Floats,
    slowest: Floats,
    local: Floats,
    current: Floats,
    offered: Floats,
    surge: Floats,
) -> None:
    """Fill the last four, given at the sources, for the operators below them."""
    leaving = (
        offered.copy()
    )  # share of its full output that leaves an operator; sources are measured at their exit
    for t in order:
        if starts[t] == starts[t + 1]:
            continue
        sent, had, at_full, surging = 0.0, 0.0, 0.0, 0.0
        idle, guaranteed = np.inf, np.inf
        for k in range(starts[t], starts[t + 1]):
            e, above = into[k], source[into[k]]
            full = before[e] / leaving[above] if leaving[above] > 0 else 0.0
            sent += before[e] * keep[e]
            had += before[e]
            at_full += full
            surging += full * surge[above]
            idle = min(idle, keep[e] * leaving[above])
            guaranteed = min(guaranteed, current[above])
        offered[t] = sent / at_full if at_full > 0 else idle
        surge[t] = surging / at_full if at_full > 0 else 1.0
        leaving[t] = offered[t] * passed[t]
        local[t] = (sent / had if had > 0 else 1.0) * slowest[t]
        current[t] = local[t] * guaranteed


def ratio(part: Floats, whole: Floats) -> Floats:
    """The share of a part, and 1 where there is no whole: who is given nothing leaves nothing undone."""
    return np.divide(part, whole, out=np.ones(len(part)), where=whole > 0)
