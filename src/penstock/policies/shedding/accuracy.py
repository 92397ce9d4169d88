"""Which share of an application's input gets through to each operator (eqs. 3 and 4 of the paper).

Counts come from the snapshot: a task's `arrived` and a stream's `records` are what shedding let pass; a source's
`keep` applies to what it read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.policies.shedding.graph import Floats, Graph
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
        leaving = offered.copy()
        """Share of its full output that leaves an operator; sources are measured at their exit."""
        for rows in graph.forward:
            above, below = graph.source[rows], graph.target[rows]
            reached = np.flatnonzero(np.bincount(below, minlength=count))
            sent = totals(below, before[rows] * keep[rows], count)[reached]
            had = totals(below, before[rows], count)[reached]
            full = np.divide(before[rows], leaving[above], out=np.zeros(len(rows)), where=leaving[above] > 0)
            at_full = totals(below, full, count)[reached]
            surging = totals(below, full * surge[above], count)[reached]
            idle, guaranteed = np.full(count, np.inf), np.full(count, np.inf)
            np.minimum.at(idle, below, keep[rows] * leaving[above])
            np.minimum.at(guaranteed, below, current[above])
            flows = at_full > 0
            at_full = np.where(flows, at_full, 1.0)
            offered[reached] = np.where(flows, sent / at_full, idle[reached])
            surge[reached] = np.where(flows, surging / at_full, 1.0)
            leaving[reached] = offered[reached] * passed[reached]
            local[reached] = np.where(had > 0, sent / np.where(had > 0, had, 1.0), 1.0) * slowest[reached]
            current[reached] = local[reached] * guaranteed[reached]
        return cls(local, current, offered, surge)


def ratio(part: Floats, whole: Floats) -> Floats:
    """The share of a part, and 1 where there is no whole: who is given nothing leaves nothing undone."""
    return np.divide(part, whole, out=np.ones(len(part)), where=whole > 0)
