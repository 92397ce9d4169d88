"""The accuracy of each sink in this cycle: what the CPU allows, without see-saw."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.policies.shedding.grants import Claims
from penstock.policies.shedding.lag import lag_ceiling, lag_of
from penstock.policies.shedding.situation import Situation
from penstock.telemetry.moments import totals


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Per sink: its accuracy, and what keeps it from having more."""

    accuracy: Floats
    stopped_by: Ints
    """Row of the node that is full, or -1."""
    ceiling: Floats
    """Most that one core per task allows; the floor where a neighbour warms up."""
    disturbed: Bools
    """Whether it has tasks on a node where another moves or warms up."""
    lags: Bools
    """Whether lag, not CPU, says what it gets (`lag`)."""
    floor: Floats
    """Least that it may get."""


def settle(
    now: Situation, node: Ints, busy: Bools, before: Floats, blind: Bools, unmeasured: Bools
) -> Settled:
    """Down at once; up only with margin to spare and on good measurements.

    `node` is where tasks are or go, `busy` the nodes that tasks leave or warm up on, `before` the sinks' accuracies in
    the cycle before, `blind` those of whom nothing was measured: neither they nor their neighbours rise. Those that are
    `unmeasured` for long get what their lag allows. A sink of higher priority is never held back for a lower one: who
    has not reached its ceiling left nothing on that node, and so nothing to rise with, for those below it.
    """
    options, graph, sinks = now.options, now.graph, now.snapshot.sinks
    tasks, demand = now.snapshot.tasks, now.demand
    claims = Claims(graph, sinks, tasks.operator, node, demand.drain_slope, demand.drain_base)
    floor = np.maximum(np.minimum(sinks.min_accuracy + _reserve(now), 1.0), options.least_keep)
    if not options.hold_minima:
        steady = Claims(graph, sinks, tasks.operator, node, demand.slope, demand.base)
        floor = steady.grant(np.full(len(floor), options.least_keep), floor, now.available).accuracy

    def lowest(values: Floats) -> Floats:
        """Of all tasks that work for a sink, per sink."""
        of_operator = np.ones(len(graph))
        np.minimum.at(of_operator, tasks.operator, values)
        return graph.lowest_above(of_operator)[sinks.operator]

    disturbed = lowest(np.append(~busy, True)[node].astype(np.float64)) == 0
    unclear = np.zeros(len(busy) + 1, np.bool_)
    unclear[node[_of_applications(now, blind)]] = True
    clear = ~blind & (lowest((~unclear[node]).astype(np.float64)) > 0)
    moving = np.zeros(len(graph), np.bool_)
    moving[[graph.application[now.snapshot.dataflow.row[w.operator]] for w in now.warmups]] = True
    clear &= ~moving[
        graph.application[sinks.operator]
    ]  # an application that stands still measures too little

    if options.by_slots:
        # All share the slots: who rises takes from those that lag, itself or one as important.
        lag_s, bound_s = lag_of(now)
        late = sinks.priority[lag_s > bound_s]
        clear &= sinks.priority > late.max(initial=np.iinfo(np.int64).min)

    def best(share: float) -> Settled:
        """What fits into this share of the CPU."""
        reach = np.clip(lowest(demand.reach(share * options.utilisation)), floor, 1.0)
        ceiling, lags = lag_ceiling(now, unmeasured, before, floor, np.where(disturbed, floor, reach))
        granted = claims.grant(floor, ceiling, share * now.available)
        return Settled(granted.accuracy, granted.stopped_by, ceiling, disturbed, lags, floor)

    fits = best(1.0)
    if np.all(fits.accuracy <= before):
        return fits
    safe = best(1.0 - options.raise_margin)
    worth = (safe.accuracy >= before + options.least_step) | (safe.accuracy >= safe.ceiling)
    raised = np.where(clear & worth, np.maximum(safe.accuracy, before), before)
    return replace(fits, accuracy=np.minimum(fits.accuracy, raised))


def _reserve(now: Situation) -> Floats:
    """What each sink gets beyond its minimum, because a hash keeps a share only on average.

    Of n independent records the share that is kept scatters by √(m·(1-m)/n) around m.
    """
    sources, sinks, application = now.snapshot.sources, now.snapshot.sinks, now.graph.application
    produced = np.where(sources.known, sources.produced_rps, 0.0)
    rate = totals(application[sources.operator], produced, len(now.graph))
    count = rate[application[sinks.operator]] * now.options.reserve_window_s
    least = sinks.min_accuracy
    scatter = np.sqrt(np.clip(least * (1 - least), 0.0, None) / np.where(count > 0, count, np.inf))
    reserve: Floats = now.options.reserve_sigmas * scatter
    return reserve


def _of_applications(now: Situation, sinks: Bools) -> Bools:
    """The tasks of the applications that these sinks belong to."""
    chosen = np.zeros(len(now.graph), np.bool_)
    chosen[now.graph.application[now.snapshot.sinks.operator[sinks]]] = True
    return chosen[now.graph.application[now.snapshot.tasks.operator]]
