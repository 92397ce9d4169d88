"""The tasks of a snapshot added up by operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Bools, Floats
from penstock.telemetry.moments import Moments, totals
from penstock.telemetry.table import Table

if TYPE_CHECKING:
    from penstock.telemetry.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorView(Table):
    """Per operator, added up over its tasks: what most policies start from."""

    tasks: Floats
    arrived: Floats
    processed: Floats
    emitted: Floats
    shed: Floats
    queued: Floats
    busy_s: Floats
    cpu: Floats
    service_s: Moments
    interarrival_s: Moments
    """Of one task."""
    latency_s: Moments
    arrival_rps: Floats
    utilisation: Floats
    """ρ: busy share of the operator's tasks."""
    selectivity: Floats
    known: Bools
    """Whether any task of it was measured."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> OperatorView:
        """The view of a snapshot; tasks that were not measured count as present but add nothing."""
        tasks, count = snapshot.tasks, len(snapshot.dataflow.operators)
        measured = np.where(tasks.known, tasks.operator, -1)

        def total(column: Floats) -> Floats:
            return totals(tasks.operator, np.where(tasks.known, column, 0.0), count)

        arrived, processed, busy = total(tasks.arrived), total(tasks.processed), total(tasks.busy_s)
        emitted = total(tasks.emitted)
        seen = totals(tasks.operator, tasks.known.astype(np.float64), count)
        return cls(
            tasks=np.bincount(tasks.operator, minlength=count).astype(np.float64),
            arrived=arrived,
            processed=processed,
            emitted=emitted,
            shed=total(tasks.shed),
            queued=total(tasks.queued),
            busy_s=busy,
            cpu=total(tasks.cpu),
            service_s=tasks.service_s.grouped(measured, count),
            interarrival_s=tasks.interarrival_s.grouped(measured, count),
            latency_s=tasks.latency_s.grouped(measured, count),
            arrival_rps=arrived / snapshot.interval_s,
            utilisation=busy / np.where(seen > 0, seen * snapshot.interval_s, 1.0),
            selectivity=np.where(processed > 0, emitted / np.where(processed > 0, processed, 1.0), 1.0),
            known=seen > 0,
        )
