"""How fast waiting records must go to be back under the bound in time.

The paper's controller compares rates only, so what piled up before it reacted stays (its lag spikes). Here a source
that lags takes on more than is produced, and a queue inside the dataflow asks for CPU of its own, until the lag is
under the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats
from penstock.dataflow.graph import OperatorId
from penstock.policies.shedding.options import SheddingOptions
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals

AIM = 0.5
"""Share of the bound to drain to: aiming at the bound itself would only ever approach it."""


@dataclass(frozen=True, slots=True, eq=False)
class Backlog:
    """Per operator: what lag asks for. `deadlines_s` (operator id to time) is to be remembered."""

    lag_s: Floats
    """Age of the backlog in seconds of arrivals; 0 where nothing waits."""
    bound_s: Floats
    """Age that is normal: the option `lag_s`, beside the user's own time between two batches."""
    surge: Floats
    """Sources: rate to take on, relative to the rate of production; 1 elsewhere."""
    drain_rps: Floats
    """Other operators: records per second by which the queues in front of their tasks must shrink."""
    deadlines_s: Mapping[str, float]

    @classmethod
    def of(cls, snapshot: Snapshot, deadlines_s: Mapping[str, float], options: SheddingOptions) -> Backlog:
        """What the snapshot's queues ask for, given the deadlines of those that were late before.

        A queue of B records at r records/s lags B/r. Late (lag > bound) since s, it is to reach half the bound by
        s + drain_s, so the rate is (B - ½·bound·r) / (time left), never asked for in less than one interval.
        """
        operators, count = snapshot.dataflow.operators, len(snapshot.dataflow.operators)
        tasks, sources = snapshot.tasks, snapshot.sources
        waiting = totals(tasks.operator, np.where(tasks.known, tasks.queued, 0.0), count)
        rate = totals(tasks.operator, np.where(tasks.known, tasks.arrived, 0.0), count) / snapshot.interval_s
        is_source = np.zeros(count, np.bool_)
        is_source[sources.operator] = True
        waiting[sources.operator] = np.where(sources.known, sources.backlog_records, 0.0)
        # Without production the pace of reading is the only measure of what a second's worth is.
        rate[sources.operator] = np.where(sources.produced_rps > 0, sources.produced_rps, sources.read_rps)
        lag = np.divide(waiting, rate, out=np.zeros(count), where=rate > 0)
        waits_s = _between_batches_s(snapshot)
        bound = options.lag_s + waits_s
        late: dict[str, float] = {
            operators[i].id: deadlines_s.get(operators[i].id, snapshot.time_s + options.drain_s)
            for i in np.flatnonzero(lag > bound)
        }
        left = np.full(count, np.inf)
        for id_, deadline in late.items():
            left[snapshot.dataflow.row[OperatorId(id_)]] = max(
                deadline - snapshot.time_s, snapshot.interval_s
            )
        pace = np.clip(waiting - (AIM * options.lag_s + waits_s) * rate, 0.0, None) / left
        surge = np.ones(count)
        produced = np.where(sources.known, sources.produced_rps, 0.0)
        wanted, usual = produced + pace[sources.operator], rate[sources.operator]
        pressed = np.isfinite(left[sources.operator])
        surge[sources.operator[pressed]] = wanted[pressed] / usual[pressed]
        return cls(lag, bound, surge, np.where(is_source, 0.0, pace), late)


def _between_batches_s(snapshot: Snapshot) -> Floats:
    """Per operator, how long records wait for a batch because the user's trigger says so."""
    queries, rows = snapshot.queries, np.arange(len(snapshot.dataflow.operators))
    if queries is None or not len(queries):
        return np.zeros(len(rows))
    waits_s = np.where(queries.interval_known, queries.interval_s, 0.0)
    found: Floats = np.append(waits_s, 0.0)[queries.of_operators(rows)]
    return found
