"""What every operator has to carry: records per second for the load to come, and how long its queues then are.

The load of the sources is followed downstream through what was measured of each stream (records in it for each
record its producer processed), as DS2 does (Kalavri et al. 2018): arrivals that a bottleneck holds back do not
hide what comes, and neither does what shedding drops. Else both policies would settle for a part of the load.
Copies that a broadcast gives to every task do not get fewer with more tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats
from penstock.policies.elasticity.waits import FIT_LIMITS, Waits, kingman_wait_s, measured_wait_s
from penstock.telemetry import Moments, Snapshot, Streams

MEMORY_S = 10.0
"""Measurements fade with this time constant: long enough to be smooth, short enough to follow a changed cost."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learnt:
    """Faded measurements: rows of operators and of streams."""

    service_s: Moments
    interarrival_s: Moments
    latency_s: Moments
    processed: Floats
    records: Floats
    """Per stream, as many as there would have been without shedding."""
    fit: Floats
    """Measured wait over Kingman's, per operator."""

    @classmethod
    def start(cls, operators: int, streams: int) -> Learnt:
        """Nothing learnt yet."""
        nothing = Moments.empty(operators)
        return cls(
            service_s=nothing,
            interarrival_s=nothing,
            latency_s=nothing,
            processed=np.zeros(operators),
            records=np.zeros(streams),
            fit=np.ones(operators),
        )

    def learn(self, snapshot: Snapshot) -> Learnt:
        """With one snapshot more. Numbers that are not finite teach nothing."""
        view, keep = snapshot.by_operator, float(np.exp(-snapshot.interval_s / MEMORY_S))
        service = _faded(self.service_s, keep).merge(_clean(view.service_s))
        gaps = _faded(self.interarrival_s, keep).merge(_clean(view.interarrival_s))
        return Learnt(
            service_s=service,
            interarrival_s=gaps,
            latency_s=_faded(self.latency_s, keep).merge(_clean(view.latency_s)),
            processed=keep * self.processed + _finite(view.processed),
            records=keep * self.records + _unshed(snapshot.streams),
            fit=self._fitted(snapshot, service, gaps),
        )

    def _fitted(self, snapshot: Snapshot, service: Moments, gaps: Moments) -> Floats:
        """The fit, corrected where this interval was a steady one: a queue that grows or drains fits no formula."""
        view = snapshot.by_operator
        tasks = np.maximum(snapshot.operators.parallelism, 1)
        rho = _finite(view.arrival_rps) / tasks * service.mean
        model = kingman_wait_s(np.minimum(rho, 0.99), service.mean, _ca2(gaps), service.cv2)
        wait, measured = measured_wait_s(snapshot)
        queue_s = _finite(view.queued) / tasks * service.mean
        usual = np.isfinite(wait) & (queue_s < 4 * self.fit * model + service.mean)
        steady = measured & usual & (rho > 0.02) & (rho < 0.93) & (model > 0)
        seen = np.where(steady, wait / np.where(model > 0, model, 1.0), self.fit)
        # By steps: what was left of a queue may still pass, and a lasting difference is learnt in seconds anyhow.
        seen = np.clip(np.clip(seen, *FIT_LIMITS), self.fit / 1.5, self.fit * 1.5)
        # A handful of records says little about a mean.
        count = _finite(view.arrived)
        weight = np.where(steady, 0.3 * count / (count + 200.0), 0.0)
        return np.asarray(self.fit + weight * (seen - self.fit))

    def task_latency_s(self) -> Floats:
        """Mean task latency per operator; 0 where none was measured."""
        return self.latency_s.mean


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """Per operator: records per second that its tasks share, and that each of them gets (broadcasts)."""

    shared_rps: Floats
    each_rps: Floats
    waits: Waits
    service_s: Floats


def demand_of(snapshot: Snapshot, learnt: Learnt, produced_rps: Floats) -> Demand:
    """The demand when the sources produce `produced_rps` (rows of `snapshot.sources`) and nothing is shed."""
    flow = snapshot.dataflow
    tasks = np.maximum(snapshot.operators.parallelism, 1).astype(np.float64)
    shared, each = np.zeros(len(flow.operators)), np.zeros(len(flow.operators))
    shared[snapshot.sources.operator] = _finite(produced_rps)
    per_record = learnt.records / np.array(
        [max(learnt.processed[flow.row[s.source]], 1.0) for s in flow.streams], dtype=np.float64
    )
    streams = {s.id: i for i, s in enumerate(flow.streams)}
    for id_ in flow.topological:
        row = flow.row[id_]
        for stream in flow.upstream(id_):
            source = flow.row[stream.source]
            sent = (shared[source] + each[source] * tasks[source]) * per_record[streams[stream.id]]
            if stream.wiring == "broadcast":
                each[row] += sent / tasks[row]
            else:
                shared[row] += sent
    service = learnt.service_s
    s = service.mean
    # With W = e·S·ρ/(1-ρ)·c and ρ = S·(shared/p + each): a/(p - b), what each task gets taken as it is now.
    free = np.clip(1 - each * s, 0.05, 1.0)
    b = shared * s / free
    variability = (_ca2(learnt.interarrival_s) + service.cv2) / 2
    a = learnt.fit * s * s * (shared + each * tasks) * variability / free
    return Demand(shared_rps=shared, each_rps=each, waits=Waits(a, b), service_s=s)


def _unshed(streams: Streams) -> Floats:
    kept = streams.known & (streams.keep > 0)
    return np.where(kept, _finite(streams.records) / np.where(kept, streams.keep, 1.0), 0.0)


def _ca2(gaps: Moments) -> Floats:
    # A task that saw fewer than two gaps has no cA; arrivals of many independent sources tend to Poisson (1).
    return np.where(gaps.count > 1, gaps.cv2, 1.0)


def _faded(moments: Moments, keep: float) -> Moments:
    return Moments(moments.count * keep, moments.mean, moments.m2 * keep)


def _clean(moments: Moments) -> Moments:
    good = np.isfinite(moments.count) & np.isfinite(moments.mean) & np.isfinite(moments.m2)
    good &= (moments.count > 0) & (moments.mean >= 0)
    return Moments(*(np.where(good, column, 0.0) for column in (moments.count, moments.mean, moments.m2)))


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), np.maximum(values, 0.0), 0.0)
